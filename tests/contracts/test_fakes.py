"""A fake result is the real one without its values: shape, strides, dtype and device, for every op, layout, dtype and
result dtype; alone, compiled, exported and packaged."""

from __future__ import annotations

import itertools
import pathlib
import random
import re
from collections.abc import Callable, Iterator

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.library import opcheck

import sluice
from common import DTYPES, load_packaged
from every_layout import DEGENERATE, SHAPES, laid_out_like, layouts
from linked_forms import link_mode
from op_checks import ALL_CHECKS, FAST_CHECKS
from ops import OPS, VARIANTS, Call, run
from rows import naming
from sluice import _fake, stages

NAMES = {dtype: str(dtype).removeprefix("torch.") for dtype in DTYPES}
# In the models that are compiled: contiguous, channels-last, permuted otherwise, and not dense.
FEW = {
    3: ("dense (0, 1, 2)", "dense (0, 2, 1)", "dense (1, 0, 2)", "expanded 1", "sliced 2"),
    4: ("dense (0, 1, 2, 3)", "part of channels-last", "dense (3, 1, 2, 0)", "stepped 3"),
}


@pytest.fixture(autouse=True)
def _fresh_compiler_and_interpreted_chains(device: str) -> Iterator[None]:
    torch._dynamo.reset()
    if device == "cpu":
        yield
    else:
        with link_mode("never"):  # hundreds of chains, none for long
            yield


def metadata(tensors: list[torch.Tensor]) -> list[tuple]:
    return [(tuple(t.shape), t.stride(), t.dtype, t.device, t.storage_offset()) for t in tensors]


def outcome(call: Call) -> list[tuple] | str:
    """The results' metadata, or the words in which the op refuses the call."""
    try:
        return metadata(run(call))
    except RuntimeError as error:
        return str(error).split("\nException raised from", 1)[0].strip()


Chain = tuple[str, "torch.dtype | None"]


def chains_to(dtypes: list[torch.dtype]) -> list[Chain]:
    """All ways to say the result's dtype: a last cast, or `dtype=`, which goes before."""
    return [
        ("silu", None),
        *((" relu | cast ( " + NAMES[dtype] + " )  ", None) for dtype in dtypes),
        *(("cast(bfloat16) | silu ", dtype) for dtype in dtypes),
    ]


def compare(make: Callable[..., Call], x: torch.Tensor, chains: list[Chain], mode: FakeTensorMode, name: str) -> None:
    real = [outcome(make(x, *chain)) for chain in chains]
    with mode:
        fake_x = mode.from_tensor(x)
        fake = [outcome(make(fake_x, *chain)) for chain in chains]
    assert fake == real, f"{name} {x.dtype} {chains}"


def dtypes_of(op: str) -> list[torch.dtype]:
    return next(row.dtypes for row in OPS.values() if op in row.variants)


@pytest.mark.parametrize("op", VARIANTS)
def test_every_layout_dtype_and_result_dtype(device: str, op: str) -> None:
    """Every layout has every dtype; a layout of each kind has all chains, the others take turns at them."""
    rank, make = VARIANTS[op]
    chains, mode = chains_to(DTYPES), FakeTensorMode()
    turns = itertools.cycle(chains)
    for name, layout in layouts(SHAPES[rank]).items():
        for dtype in dtypes_of(op):
            given = chains if name in FEW[rank][:3] else [next(turns)]
            compare(make, laid_out_like(layout, dtype, device), given, mode, name)


@pytest.mark.parametrize("op", VARIANTS)
def test_sides_of_one_element_and_of_none(device: str, op: str) -> None:
    rank, make = VARIANTS[op]
    turns, mode = itertools.cycle(chains_to([torch.float16])), FakeTensorMode()
    for shape in DEGENERATE[rank]:
        for name, layout in layouts(shape).items():
            compare(make, laid_out_like(layout, torch.float32, device), [next(turns)], mode, f"{shape} {name}")


@pytest.mark.parametrize("op", VARIANTS)
def test_strides_of_one_element_decide_nothing(device: str, op: str) -> None:
    """Compilers change them at will: equal but for them, two inputs have results in one layout."""
    rank, make = VARIANTS[op]

    def significant(call: Call) -> list[list[int]]:
        return [[s for n, s in zip(y.shape, y.stride(), strict=True) if n != 1] for y in run(call)]

    for shape in DEGENERATE[rank]:
        if 0 in shape:
            continue
        for name, layout in layouts(shape).items():
            canonical = layout.squeeze()
            free = [97 if n == 1 else s for n, s in zip(shape, layout.stride(), strict=True)]
            ones = [1 if n == 1 else s for n, s in zip(shape, layout.stride(), strict=True)]
            results = []
            for strides in (layout.stride(), free, ones):
                x = laid_out_like(torch.empty(1000).as_strided(shape, strides), torch.float32, device)
                results.append(significant(make(x, "silu", None)))
            assert results[0] == results[1] == results[2], f"{shape} {name} {canonical.stride()}"


@pytest.mark.parametrize("op", VARIANTS)
def test_opcheck(device: str, op: str) -> None:
    """A layout of each kind: test_every_layout_dtype_and_result_dtype has all, test_dynamic_shapes_compile_once traces
    each kind."""
    rank, make = VARIANTS[op]
    for name in FEW[rank]:
        with naming(name):
            call = make(laid_out_like(layouts(SHAPES[rank])[name], torch.float32, device), "silu|cast( float16)", None)
            tests = ALL_CHECKS if name == FEW[rank][1] else FAST_CHECKS
            opcheck(call.op.default, call.arguments, call.options, test_utils=tests)
            results = run(call)
            out = {"out": results if op == "transform_many" else results[0]}
            into = getattr(torch.ops.sluice, call.op.__name__ + "_out").default
            opcheck(into, call.arguments, call.options | out, test_utils=tests)


def one_of_each_raw_op() -> list[tuple[int, Callable[..., Call]]]:
    """The other variants are compiled by test_dynamic_shapes_compile_once."""
    found: dict[object, tuple[int, Callable[..., Call]]] = {}
    for rank, make in VARIANTS.values():
        found.setdefault(make(torch.ones(SHAPES[rank]), "silu", None).op, (rank, make))
    return list(found.values())


RAW_OPS = one_of_each_raw_op()


class EveryOp(torch.nn.Module):
    """All raw ops on each input, and a view of each result that only the right strides allow."""

    def forward(self, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        found = []
        for x in inputs:
            for rank, make in RAW_OPS:
                for y in run(make(x, "silu | cast (float64) ", None)) if rank == x.dim() else []:
                    found += [y, flat(y) * 2]
        return found


def flat(y: torch.Tensor) -> torch.Tensor:
    """The elements of a non-overlapping and dense tensor in the order of memory."""
    order = sorted((d for d in range(y.dim()) if y.shape[d] != 1), key=lambda d: -y.stride(d))
    return y.squeeze().permute([sorted(order).index(d) for d in order]).view(-1)


def few_inputs(device: str, start: int) -> list[torch.Tensor]:
    """The layouts from `start` on; 0 is contiguous."""
    return [
        laid_out_like(layouts(SHAPES[rank])[name], torch.float32, device)
        for rank in (3, 4)
        for name in FEW[rank][start:]
    ]


def assert_same(results: list[torch.Tensor], wanted: list[torch.Tensor]) -> None:
    assert metadata(results) == metadata(wanted)
    for result, one in zip(results, wanted, strict=True):
        torch.testing.assert_close(result, one)


def test_compiled(device: str) -> None:
    model, inputs = EveryOp(), few_inputs(device, 0)
    inputs += [
        laid_out_like(layouts(shape)["free strides"], torch.float32, device)
        for rank in (3, 4)
        for shape in DEGENERATE[rank]
        if 1 in shape
    ]
    assert_same(torch.compile(model, backend="aot_eager", fullgraph=True)(inputs), model(inputs))


def test_exported_and_packaged(device: str, tmp_path: pathlib.Path) -> None:
    model, inputs = EveryOp(), few_inputs(device, 1)
    with torch.no_grad():
        exported = torch.export.export(model, (inputs,))
        assert_same(exported.module()(inputs), model(inputs))
        path = torch._inductor.aoti_compile_and_package(exported, package_path=str(tmp_path / "model.pt2"))
        assert_same(load_packaged(path, device)(inputs), model(inputs))


@pytest.mark.parametrize("op", VARIANTS)
def test_dynamic_shapes_compile_once(device: str, op: str) -> None:
    rank, make = VARIANTS[op]
    sizes = {3: [(2, 4, 6), (3, 4, 7), (5, 4, 12)], 4: [(2, 3, 5, 6), (3, 3, 7, 9), (4, 3, 12, 8)]}[rank]

    def program(inputs: list[torch.Tensor]) -> list[list[torch.Tensor]]:
        return [run(make(x, "silu", None)) for x in inputs]

    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(program, backend=counter, fullgraph=True, dynamic=True)
    # A second compile is an error, which names the input by its place in FEW.
    with torch._dynamo.config.patch(error_on_recompile=True):
        for shape in sizes:
            inputs = [laid_out_like(layouts(shape)[name], torch.float32, device) for name in FEW[rank]]
            for name, found, wanted in zip(FEW[rank], compiled(inputs), program(inputs), strict=True):
                with naming(shape, name):
                    assert_same(found, wanted)
    assert counter.frame_count == 1


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("dim", ["batch", "positions"])
def test_sizes_that_only_the_run_knows(device: str, channels_last: bool, dim: str) -> None:
    plain = [VARIANTS[row.plain] for row in OPS.values()]

    def select(x: torch.Tensor, rank: int, kept: torch.Tensor) -> torch.Tensor:
        x = x if rank == 4 else x[:, :, 0]
        x = x.index_select(0 if dim == "batch" else rank - 1, kept)
        return x.movedim(1, -1).contiguous().movedim(-1, 1) if channels_last else x

    def program(x: torch.Tensor, chosen: torch.Tensor) -> list[list[tuple[torch.Tensor, tuple[int, ...]]]]:
        kept = chosen.nonzero().squeeze(1)
        # Compiled, the strides are what the fake kernel says of them.
        return [[(y, y.stride()) for y in run(make(select(x, rank, kept), "silu", None))] for rank, make in plain]

    x, chosen = torch.randn(7, 4, 5, 7, device=device), torch.arange(7, device=device) % 2 == 0
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        compiled = torch.compile(program, backend="aot_eager", fullgraph=True)
        for given in (chosen, ~chosen, chosen | True):
            for op, found, wanted in zip(OPS, compiled(x, given), program(x, given), strict=True):
                with naming(op):
                    assert [strides for _, strides in found] == [y.stride() for y, _ in found]
                    assert_same([y for y, _ in found], [y for y, _ in wanted])


def dtype_or_words(call: Call) -> object:
    found = outcome(call)
    return found if isinstance(found, str) else found[0][2]


def test_text_means_the_same_in_a_fake() -> None:
    rng = random.Random(torch.initial_seed())
    words = [
        "cast",
        "float16",
        "bfloat16",
        "float32",
        "int32",
        "silu",
        "clamp",
        "add",
        "$0",
        "$1",
        "-1",
        "2.5",
        "(",
        ")",
    ]
    marks = [" ", "  ", "|", ",", "(", ")", "$", "\t"]
    x, y = torch.randn(3), torch.randn(3)
    accepted = 0
    for _ in range(2000):
        stages_of = ["silu", "add($0)", "clamp(-1,1)", "cast(float16)", "cast(bfloat16)", "cast(float64)", "neg()"]
        tokens = re.findall(r"[\w$.-]+|.", "|".join(rng.choices(stages_of, k=rng.randint(1, 4))))
        for _ in range(rng.choice([0, 0, 1, 2])):
            tokens[rng.randrange(len(tokens))] = rng.choice(words + marks)
        text = "".join(" " * rng.choice([0, 0, 1, 2]) + token for token in tokens) + " " * rng.randint(0, 2)
        real = dtype_or_words(Call(torch.ops.sluice.transform, (x, text, [y]), {}))
        fake = dtype_or_words(Call(torch.ops.sluice.transform, (x.to("meta"), text, [y.to("meta")]), {}))
        assert fake == real, repr(text)
        accepted += isinstance(real, torch.dtype)
    assert 400 < accepted < 1900


def test_text_of_every_argument_is_read_by_the_op(device: str) -> None:
    for row in OPS.values():
        rank, make = VARIANTS[row.plain]
        for argument, text in row.broken_chains.items():
            call = make(torch.randn(SHAPES[rank], device=device), "silu", None)
            call = Call(call.op, call.arguments, {**call.options, argument: text})
            if argument == "chain":
                call = Call(call.op, (call.arguments[0], text), {})
            words = outcome(call)
            assert isinstance(words, str)
            assert re.match(rf"\w+: {argument} must be a chain of stages: ", words)
            with FakeTensorMode(allow_non_fake_inputs=True):
                assert outcome(call) == words
            torch._dynamo.reset()
            with pytest.raises(Exception, match=re.escape(words)):
                torch.compile(run, backend="eager", fullgraph=True)(call)


def test_quoted_text_is_no_stage() -> None:
    x = torch.empty(3, device="meta")
    assert torch.ops.sluice.transform(x, 'cpp("x;|cast(float16)",f)').dtype == torch.float32
    assert torch.ops.sluice.transform(x, ' cpp("\\"|",f)| cast ( float16 )').dtype == torch.float16
    assert (stages.cast(torch.float16) | stages.cpp("x")).result_dtype(torch.float64) == torch.float64


def test_eager_calls_do_not_read_a_text_twice(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(*arguments: object) -> str:
        pytest.fail("an eager call asked for a chain's dtype")

    monkeypatch.setattr(_fake, "chain_cast", asked)
    for rank, make in VARIANTS.values():
        run(make(torch.randn(SHAPES[rank], device=device), "cast(float16)", None))
    sluice.transform(torch.randn(3, device=device), stages.relu() | stages.cast(torch.float16))


def test_fakes_refuse_dtypes_that_the_ops_refuse(device: str) -> None:
    for call in (call for row in OPS.values() for call in row.refused(device)):
        words = outcome(call)
        assert isinstance(words, str), call
        with FakeTensorMode(allow_non_fake_inputs=True):
            assert outcome(call) == words
