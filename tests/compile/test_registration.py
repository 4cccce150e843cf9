"""How torch.compile finds `backend="sluice"`, what importing costs, and the log; each in a process of its own."""

from __future__ import annotations

import importlib
import re

import pytest

from common import ROOT
from python_process import python

pytestmark = pytest.mark.no_gpu
MODEL = "torch.nn.Sequential(torch.nn.Conv1d(2, 2, 3), torch.nn.ReLU(), torch.nn.Flatten())"
RUN = f"""
with torch.no_grad():
    model, x = {MODEL}, torch.randn(1, 2, 9)
    torch.testing.assert_close(torch.compile(model, backend="sluice", fullgraph=True)(x), model(x))
"""
LIGHT = """
heavy = [name for name in sys.modules if name.startswith(("torch._dynamo", "torch._inductor"))]
assert not heavy, f"importing sluice loads {heavy}"
assert sluice.compile.backend
"""
KNOWN = """
assert "sluice" in torch._dynamo.list_backends()
waiting = [one for one in sys.meta_path if type(one).__module__.startswith("sluice")]
assert not waiting, f"{waiting} still wait for torch's list of backends"
"""


def messages_of(source: str, setting: str) -> str:
    """What a program logs when `TORCH_LOGS` is `setting`."""
    done = python(source, TORCH_LOGS=setting, TORCHINDUCTOR_FX_GRAPH_CACHE="0", TORCHINDUCTOR_AUTOGRAD_CACHE="0")
    assert done.returncode == 0, done.stderr
    assert "1 of 1 convolutions are sluice's" in done.stderr
    return done.stderr


def test_sluice_first_loads_no_compiler_and_the_log_says_what_became_of_each_convolution() -> None:
    found = messages_of(f"import sys, torch, sluice\n{LIGHT}\nimport torch._dynamo\n{KNOWN}\n{RUN}", "+sluice")
    assert "convolution is conv1d now, with pre='' and post='relu()'" in found


def test_the_backend_is_known_where_dynamo_comes_first() -> None:
    same = "assert torch._dynamo.lookup_backend('sluice') is sluice.compile.backend"  # which the other tests run
    done = python(f"import sys, torch\nimport torch._dynamo, sluice\n{KNOWN}\n{same}")
    assert done.returncode == 0, done.stderr


def test_the_entry_point_of_a_wheel_is_the_same_function() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    found = re.search(r'\[project\.entry-points\.torch_dynamo_backends\]\nsluice = "([\w.]+):(\w+)"', text)
    assert found is not None
    registration = importlib.import_module("sluice.compile.registration")
    assert registration._ENTRY.value == f"{found[1]}:{found[2]}"
    assert registration._ENTRY.load() is importlib.import_module("sluice.compile").backend


def test_an_entry_point_that_loads_sluice_registers_it_once_and_the_log_is_short() -> None:
    # An installed wheel: torch's list has the entry point before sluice is imported.
    found = messages_of(
        "import torch, torch._dynamo\nfrom importlib.metadata import EntryPoint\n"
        "from torch._dynamo.backends import registry\n"
        "entry = EntryPoint('sluice', 'sluice.compile.backend:sluice', 'torch_dynamo_backends')\n"
        "registry._BACKENDS['sluice'] = entry\n" + RUN,
        "sluice",
    )
    assert "convolution is conv1d now" not in found
