"""How torch.compile finds `backend="sluice"`, what importing costs, and the log; each in a process of its own."""

from __future__ import annotations

import importlib
import re

import pytest

from common import ROOT
from python_process import python

pytestmark = pytest.mark.no_gpu
HEAVY = "[name for name in sys.modules if name.startswith(('torch._dynamo', 'torch._inductor'))]"
MODEL = "torch.nn.Sequential(torch.nn.Conv1d(2, 2, 3), torch.nn.ReLU(), torch.nn.Flatten())"
RUN = f"""
with torch.no_grad():
    model, x = {MODEL}, torch.randn(1, 2, 9)
    torch.testing.assert_close(torch.compile(model, backend="sluice", fullgraph=True)(x), model(x))
"""


def test_importing_sluice_loads_no_compiler() -> None:
    done = python(f"import sys, torch, sluice\nassert not {HEAVY}, {HEAVY}\nassert sluice.compile.backend")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("first", ["import torch._dynamo, sluice", "import sluice, torch._dynamo"])
def test_the_backend_is_known_whichever_comes_first(first: str) -> None:
    source = f"import sys, torch\n{first}\nassert 'sluice' in torch._dynamo.list_backends()\n{RUN}"
    waiting = "assert not [one for one in sys.meta_path if type(one).__module__.startswith('sluice')]"
    done = python(f"{source}\n{waiting}")
    assert done.returncode == 0, done.stderr


def test_the_entry_point_of_a_wheel_is_the_same_function() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    found = re.search(r'\[project\.entry-points\.torch_dynamo_backends\]\nsluice = "([\w.]+):(\w+)"', text)
    assert found is not None
    registration = importlib.import_module("sluice.compile.registration")
    assert registration._ENTRY.value == f"{found[1]}:{found[2]}"
    assert registration._ENTRY.load() is importlib.import_module("sluice.compile").backend


def test_an_entry_point_that_loads_sluice_registers_it_once() -> None:
    # An installed wheel: torch's list has the entry point before sluice is imported.
    done = python(
        "import torch, torch._dynamo\nfrom importlib.metadata import EntryPoint\n"
        "from torch._dynamo.backends import registry\n"
        "entry = EntryPoint('sluice', 'sluice.compile.backend:sluice', 'torch_dynamo_backends')\n"
        "registry._BACKENDS['sluice'] = entry\n" + RUN
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("setting", "says_each"), [("+sluice", True), ("sluice", False)])
def test_the_log_says_what_became_of_each_convolution(setting: str, says_each: bool) -> None:
    caches = {"TORCHINDUCTOR_FX_GRAPH_CACHE": "0", "TORCHINDUCTOR_AUTOGRAD_CACHE": "0"}
    done = python(f"import torch, sluice\n{RUN}", TORCH_LOGS=setting, **caches)
    assert done.returncode == 0, done.stderr
    assert ("convolution is conv1d now, with pre='' and post='relu()'" in done.stderr) == says_each
    assert "1 of 1 convolutions are sluice's" in done.stderr
