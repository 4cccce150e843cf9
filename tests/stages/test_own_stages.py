"""Stages in C++ and linking, as far as they show without a GPU; test_gpu_own_stages.py has the rest."""

from __future__ import annotations

import json
import pathlib
import pickle

import pytest
import torch

import sluice
from common import DTYPES, LAYOUTS, assert_close, double_chain, poisoned_like
from link_processes import result_of, start_process
from sluice import reference, stages


def soft_of(x: torch.Tensor, a: torch.Tensor | float, b: torch.Tensor | float) -> torch.Tensor:
    return x / (1 + a * x.abs()) + b


def soft(a: float | torch.Tensor = 0.5, b: float | torch.Tensor = 0.25) -> sluice.Chain:
    return stages.cpp("x / (1.0f + a * fabsf(x)) + b", name="soft", reference=soft_of, a=a, b=b)


def test_a_cpp_stage_is_immutable_hashable_printable_and_pickles() -> None:
    y = torch.ones(3)
    chain = stages.scale(2.0) | soft(b=y) | stages.relu()
    assert repr(chain) == "scale(2.0) | cpp('x / (1.0f + a * fabsf(x)) + b', a=0.5, b=Tensor(3,)) | relu()"
    assert chain.text == 'scale(2.0)|cpp("x / (1.0f + a * fabsf(x)) + b",soft,a=0.5,b=$0)|relu()'
    assert chain.operands[0] is y
    assert chain == stages.scale(2.0) | soft(b=y) | stages.relu()
    assert hash(chain) == hash(stages.scale(2.0) | soft(b=y) | stages.relu())
    again = pickle.loads(pickle.dumps(chain))
    assert again.text == chain.text
    assert torch.equal(again(torch.ones(3)), chain(torch.ones(3)))


def test_a_cpp_stages_text_is_kept_to_the_letter() -> None:
    text = 'const char* s = "a|b,c)\\n";\nreturn x + s[0];'
    chain = stages.cpp(text)
    assert chain.text == 'cpp("const char* s = \\"a|b,c)\\\\n\\";\\nreturn x + s[0];",cpp)'


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_transform_uses_the_reference_on_the_cpu(dtype: torch.dtype, layout) -> None:
    x, scale = layout(torch.randn(3, 4, 50).to(dtype)), torch.rand(4, 1)
    chain = stages.scale(1.5) | soft(b=scale) | stages.silu() | soft(scale)
    wanted = reference.transform(x.double(), double_chain(chain), dtype=torch.float64)
    result = chain(x)
    assert_close(result, wanted)
    assert result.stride() == stages.relu()(x).stride()
    out = poisoned_like(x)
    assert sluice.transform(x, chain, out=out) is out
    assert torch.equal(out, result)
    assert sluice.transform(x, chain, dtype=torch.float64).dtype == torch.float64
    assert (chain | stages.cast(torch.float16))(x).dtype == torch.float16


def test_convolutions_use_the_reference_on_the_cpu() -> None:
    for dtype in (torch.float32, torch.bfloat16):
        x, w, scale = torch.randn(2, 6, 40).to(dtype), torch.randn(6, 1, 3).to(dtype), torch.rand(6, 1)
        pre, post = soft(scale) | stages.scale(2.0), stages.relu() | soft(b=scale) | stages.tanh()
        result = sluice.conv1d(x, w, padding=1, groups=6, pre=pre, post=post)
        exact = reference.conv1d(x, w, padding=1, groups=6, pre=pre, post=post, dtype=torch.float64)
        assert result.dtype == dtype
        assert_close(result, exact, factor=2)
        assert_close(
            sluice.conv1d(x[0], w, groups=6, post=post),
            reference.conv1d(x, w, groups=6, post=post)[0].double(),
            factor=2,
        )
        out = poisoned_like(result)
        assert sluice.conv1d(x, w, padding=1, groups=6, pre=pre, post=post, out=out) is out
        assert torch.equal(out, result)
        wanted, states = reference.causal_conv1d(
            x.double(), w[:, 0].double(), activation="silu", post=double_chain(post)
        )
        result, last = sluice.causal_conv1d(x, w[:, 0], activation="silu", post=post, return_final_states=True)
        assert_close(result, wanted)
        assert torch.equal(last.double(), states)


def test_a_chain_with_a_cpp_stage_compiles() -> None:
    x, chain = torch.randn(3, 20), stages.scale(2.0) | soft() | stages.relu()
    compiled = torch.compile(lambda x: chain(x), fullgraph=True, backend="aot_eager")
    assert_close(compiled(x), chain(x).double())


def test_what_a_cpp_stage_refuses() -> None:
    x = torch.randn(4)
    with pytest.raises(ValueError, match=r"transform: a cpp stage must be given a reference= .* 'lonely' without one"):
        stages.cpp("x + 1", name="lonely")(x)
    with pytest.raises(ValueError, match=r"the reference of 'cpp' must return a tensor of shape \(4,\), got \(1,\)"):
        stages.cpp("x", reference=lambda x: x[:1])(x)
    with pytest.raises(RuntimeError, match="a cpp stage must run on a CUDA device"):
        torch.ops.sluice.transform(x, 'cpp("x + 1",cpp)')
    for bad in ("", "   ", 3):
        with pytest.raises(ValueError, match="expression must be a non-empty string"):
            stages.cpp(bad)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="a name must be an identifier other than x, got 'x'"):
        stages.cpp("x", x=1.0)
    with pytest.raises(ValueError, match="got 'two words'"):
        stages.cpp("x", name="two words")
    with pytest.raises(TypeError, match="a tensor parameter must have a floating dtype"):
        stages.cpp("x + a", a=torch.ones(4, dtype=torch.int64))
    with pytest.raises(RuntimeError, match="a cpp stage must be an identifier other than x"):
        torch.ops.sluice.transform(x, 'cpp("x",f,x=1)')
    many = {f"p{i}": 1.0 for i in range(73)}
    with pytest.raises(RuntimeError, match="at most 24 stages"):
        torch.ops.sluice.transform(x, stages.cpp("x", **many).text)


def test_prepare_and_plan_say_why_nothing_is_linked() -> None:
    x, w = torch.randn(2, 4, 30), torch.randn(4, 1, 3)
    assert sluice.prepare(stages.relu(), x) == "the CPU needs no linking"
    assert sluice.prepare(stages.relu(), x, w, op="conv1d", groups=4) == "the CPU needs no linking"
    states = {"return_final_states": True, "activation": "silu"}
    assert sluice.prepare(stages.relu(), x, w[:, 0], op="causal_conv1d", **states) == "the CPU needs no linking"
    assert sluice.prepare([stages.relu(), stages.neg()], x) == "the CPU needs no linking"
    with pytest.raises(TypeError, match="prepare: chain must be a chain or the text of one, got list"):
        sluice.prepare([stages.relu()], x, w, op="conv1d", groups=4)
    with pytest.raises(TypeError, match="transform: chain must be a chain or a list of chains, got int"):
        sluice.prepare(3, x)  # type: ignore[arg-type]
    assert sluice.prepare("relu", x) == "the CPU needs no linking"
    names = "transform, conv1d, conv_transpose1d, causal_conv1d, causal_conv_transpose1d, filter2d"
    with pytest.raises(ValueError, match=f"prepare: op must be one of {names}, got 'sort'"):
        sluice.prepare(stages.relu(), x, op="sort")
    with pytest.raises(ValueError, match="conv1d: groups must divide"):
        sluice.prepare(stages.relu(), x, w, op="conv1d", groups=3)
    assert torch.equal(stages.relu()(x), x.relu())  # nothing is left of the preparation
    assert sluice.plan("conv1d", x, w, groups=4).form == ""
    plan = sluice.plan("transform", x, stages.relu())
    assert plan.form in ("linked", "interpreted")
    assert plan.form_reason
    assert sluice.info()["linking"]["unavailable"] is not None


# A process reads the variable once, so each directory has a fork of one that has imported sluice.
CACHE_PROBLEMS = """
import json, os, sluice

found, parent = {}, os.environ["SLUICE_CACHE_DIR"]
for name in json.loads(os.environ["DIRECTORIES"]):
    os.environ["SLUICE_CACHE_DIR"] = os.path.join(parent, name)
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.write(writer, json.dumps(sluice.info()["linking"]["cache_problem"]).encode())
        os._exit(0)
    os.close(writer)
    found[name] = json.loads(os.fdopen(reader).read())
    os.wait()
print(json.dumps(found))
"""


def test_info_says_why_nothing_is_kept_on_disk(tmp_path: pathlib.Path) -> None:
    if "cache_problem" not in sluice.info()["linking"]:
        pytest.skip("built without CUDA")
    (tmp_path / "file").write_text("no directory")
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    problems = {"open": "users other than its owner may write to it", "file": "Not a directory", "new": ""}
    found = result_of(start_process(tmp_path, CACHE_PROBLEMS, DIRECTORIES=json.dumps([*problems])))
    for name, problem in problems.items():
        assert (problem in found[name]) if problem else found[name] == ""
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "open"]


MANY_STAGES = """
import json, torch, sluice

def message(text):
    try:
        torch.ops.sluice.transform(torch.ones(1), text)
    except RuntimeError as error:
        return str(error).split("\\nException", 1)[0]

def stage(n):
    return f'cpp("x + {n}",f)'

first = message(stage(0))
for begin in range(0, 4095, 15):  # 15 stages a chain, 4095 in all
    message("|".join(map(stage, range(begin, begin + 15))))
texts = [stage(4095), stage(4096), "|".join(map(stage, range(4997, 5000))), stage(7), "relu"]
print(json.dumps([first, *map(message, texts)]))
"""


def test_stages_of_a_process_are_bounded(tmp_path: pathlib.Path) -> None:
    first, last, *beyond, known, other = result_of(start_process(tmp_path, MANY_STAGES))
    assert first == last == known
    assert "a cpp stage must run on a CUDA device" in first
    for text in beyond:
        assert text.startswith("transform: chain must be a chain of stages: a process must have at most 4096 different")
    assert other is None
