"""Packed weights of dense transposed convolutions: their order, which calls read them, what is refused."""

from __future__ import annotations

import functools
import itertools
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.library import opcheck

import sluice
from common import NARROW_TYPES, assert_close
from dense_problems import HAS_CODE
from op_checks import ALL_CHECKS, FAST_CHECKS
from rows import naming
from sluice import PackedWeight
from sluice._polyphase import may_go_by_positions, polyphase_weights
from sluice.nn import packing
from sluice.pack import Numbers, pack_transposed, packed_shape_transposed, packed_transposed
from sluice.plan import H200
from tf32 import Setting, fakes

pytestmark = pytest.mark.no_gpu
PRECISIONS = ("ieee", "tf32")
# Output channels, taps, stride, dilation: one range and two, without taps, common divisors, one component, one channel.
CASES = [
    *((24, 16, 8, 1), (13, 4, 2, 1), (19, 7, 3, 1), (5, 2, 5, 1), (16, 10, 5, 3), (9, 5, 4, 2), (1, 8, 4, 1)),
    *((1, 7, 3, 1), (12, 3, 1, 1), (12, 5, 1, 4), (8, 64, 64, 1), (8, 4, 2, 2)),
]


def packed_of(w: torch.Tensor, numbers: Numbers, precision: str = "ieee") -> torch.Tensor:
    """Packed on every device, as `pack_transposed` does where kernels read it."""
    return packed_transposed(w, w.dtype, numbers, {"precision": precision})


def handle_of(w: torch.Tensor, *numbers: Any) -> PackedWeight:
    return PackedWeight(w, packed_of(w, numbers), numbers)


def first_line(call: Callable[[], object]) -> str:
    with pytest.raises(RuntimeError) as error:
        call()
    return str(error.value).split("\n", 1)[0]


# --- packing ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("by_positions", [False, True])
def test_components_are_rows_of_convolutions(by_positions: bool) -> None:
    for outputs, taps, stride in ((5, 6, 3), (5, 7, 3), (8, 2, 5), (3, 8, 4), (4, 3, 1), (1, 5, 2)):
        if by_positions and not may_go_by_positions(taps, stride, 1):
            continue
        x, w = torch.randn(2, 6, 20), torch.randn(6, outputs, taps)
        wanted = F.conv_transpose1d(x, w, stride=stride)
        result, first = torch.zeros_like(wanted), 0
        for part in polyphase_weights(w, stride, 1, by_positions):
            rows = F.conv1d(x, part, padding=part.shape[2] - 1)
            shape = (outputs, -1) if by_positions else (-1, -(-outputs // 8) * 8)
            rows = rows.unflatten(1, shape)
            own = rows if by_positions else rows.transpose(1, 2)[:, :outputs]
            for component in range(own.shape[2]):
                places = result[..., first + component :: stride]
                places += own[:, :, component, : places.shape[2]]
            first += own.shape[2]
        with naming(outputs, taps, stride):
            assert_close(result, wanted)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("dtype", NARROW_TYPES, ids=str)
def test_shapes_of_both_forms(dtype: torch.dtype, precision: str) -> None:
    for (outputs, taps, stride, dilation), last in itertools.product(CASES, (False, True)):
        w = torch.randn(40, outputs, taps, dtype=dtype)
        with naming(outputs, taps, stride, dilation, last):
            packed = packed_of(w, (stride, dilation, last), precision)
            by_positions = packed.dim() == 4
            one_form = stride == 1 or outputs == 1
            assert by_positions == (may_go_by_positions(taps, stride, dilation) and (one_form or not last))
            found = packed_shape_transposed(w, dtype, precision, stride, dilation, packed.dim())
            assert list(packed.shape) == found


def test_a_handle_says_what_it_is_packed_for(monkeypatch: pytest.MonkeyPatch) -> None:
    w = torch.randn(8, 4, 6)
    assert pack_transposed(w, None, 2, 1, False).packed is None  # on the CPU
    monkeypatch.setitem(sluice.pack.__globals__, "has_kernels", lambda device: True)
    handle = pack_transposed(w, torch.float16, 2, 1, False)
    assert handle.weight is w
    assert handle.numbers == (2, 1, False)
    assert handle.packed is not None
    assert torch.equal(handle.packed, packed_of(w.half(), (2, 1, False)))
    assert pack_transposed(w, None, 5, 5, False).packed is None  # aten's
    assert pack_transposed(w.double(), None, 2, 1, False).packed is None
    with pytest.raises(ValueError, match=r"pack: weight must have shape \(in_channels, out_channels, taps\), none of"):
        pack_transposed(w[0], None, 2, 1, False)
    with pytest.raises(TypeError, match="pack: weight must have dtype"):
        pack_transposed(w.int(), None, 2, 1, False)
    with pytest.raises(RuntimeError, match="pack"):
        pack_transposed(w.requires_grad_(), None, 2, 1, False)


def test_handles_of_both_ops_are_trees_of_their_tensors() -> None:
    w = torch.randn(8, 4, 6)
    plain, transposed = PackedWeight(w, w), PackedWeight(w, w, (2, 1, True))
    leaves, _ = torch.utils._pytree.tree_flatten(plain)
    assert [one is w for one in leaves] == [True, True]
    for handle in (plain, transposed):
        twin = torch.utils._pytree.tree_map_only(torch.Tensor, torch.clone, handle)
        assert twin.numbers == handle.numbers
        assert torch.equal(twin.weight, w)


class Argument(torch.nn.Module):
    def forward(self, x: torch.Tensor, weight: PackedWeight) -> torch.Tensor:
        return sluice.conv_transpose1d(x, weight, stride=2)


def test_a_handle_is_an_argument_of_compiled_and_exported_functions() -> None:
    x, w = torch.randn(2, 8, 30), torch.randn(8, 12, 4)
    wanted, handle = sluice.conv_transpose1d(x, w, stride=2), handle_of(w, 2, 1, False)
    with torch.no_grad():
        program = torch.export.export(Argument(), (x, handle))
        assert "packed = " in program.graph_module.code
        assert torch.equal(program.module()(x, handle), wanted)
        assert torch.equal(torch.compile(Argument(), fullgraph=True, backend="aot_eager")(x, handle), wanted)


# --- calls ------------------------------------------------------------------------------------------------------------
def test_a_call_takes_both_forms_of_either_precision() -> None:
    """A call whose kernel does not read the given form reads the weight, as the CPU always does."""
    op = torch.ops.sluice.conv_transpose1d
    for outputs, taps, stride, dilation in CASES:
        x, w = torch.randn(2, 6, 30), torch.randn(6, outputs, taps)
        arguments = (x, w, None, stride, 1, 0, 1, dilation)
        wanted = op(*arguments)
        for last, own, given in itertools.product((False, True), PRECISIONS, PRECISIONS):
            packed = packed_of(w, (stride, dilation, last), given)
            with naming(outputs, taps, stride, dilation, last, own, given):
                assert torch.equal(op(*arguments, packed=packed, precision=own), wanted)
                handle = PackedWeight(w, packed, (stride, dilation, last))
                assert torch.equal(sluice.conv_transpose1d(x, handle, None, *arguments[3:]), wanted)


def test_opcheck() -> None:
    x, w, b = torch.randn(2, 6, 20), torch.randn(6, 5, 7), torch.randn(5)
    for numbers, tests in (((3, 1, False), ALL_CHECKS), ((1, 1, False), FAST_CHECKS), ((2, 3, True), FAST_CHECKS)):
        packed, (stride, dilation, _) = packed_of(w, numbers), numbers
        arguments = (x, w, b, stride, 1, 0, 1, dilation)
        opcheck(
            torch.ops.sluice.conv_transpose1d.default, arguments, {"packed": packed, "post": "gelu"}, test_utils=tests
        )
        out = torch.ops.sluice.conv_transpose1d(*arguments)
        opcheck(torch.ops.sluice.conv_transpose1d_out.default, arguments, {"packed": packed, "out": out})


def test_what_does_not_fit_is_refused_by_kernel_and_fake() -> None:
    x, w = torch.zeros(2, 20, 30).half(), torch.zeros(20, 13, 4).half()
    call, rule, maker = torch.ops.sluice.conv_transpose1d, "conv_transpose1d: packed must", "sluice.nn.ConvTranspose1d"
    shape = "have shape {} for a weight of (20, 13, 4), as " + maker + " makes it, got {}"
    for packed, stride, words in (
        (torch.zeros(1, 2, 32, 24).half(), 2, shape.format("(1, 2, 32, 32)", "(1, 2, 32, 24)")),
        (torch.zeros(1, 2, 32, 32).half(), 3, shape.format("(2048,)", "(1, 2, 32, 32)")),
        (torch.zeros(2047).half(), 2, shape.format("(2048,)", "(2047,)")),
        (torch.zeros(4096).half()[::2], 2, f"be contiguous, as {maker} makes it, got strides (2,)"),
        (
            torch.zeros(2048).bfloat16(),
            2,
            "have dtype float32, float16 or bfloat16 like the input, got bfloat16 for float16",
        ),
        (torch.zeros(2048, device="meta").half(), 2, "be on the input's device cpu, got meta"),
    ):
        mode = FakeTensorMode()
        for tensors in ((x, w, packed), tuple(map(mode.from_tensor, (x, w, packed)))):
            with naming(words):
                found = first_line(functools.partial(call, *tensors[:2], None, stride, packed=tensors[2]))
                assert found == f"{rule} {words}"
    shifted = torch.zeros(2049).half()[1:]
    found = first_line(lambda: call(x, w, None, 2, packed=shifted))
    assert found.startswith(f"{rule} begin at a multiple of 16 bytes, as {maker} makes it")


def test_a_result_may_overlap_only_what_the_call_does_not_read() -> None:
    x, w = torch.randn(1, 8, 10), torch.randn(8, 8, 4)
    for own, given in itertools.product(PRECISIONS, PRECISIONS):
        packed = packed_of(w, (2, 1, True), given)
        out = packed[: 8 * 22].view(1, 8, 22)
        call = torch.ops.sluice.conv_transpose1d_out
        if own == given:
            found = first_line(lambda: call(x, w, None, 2, packed=packed, precision=own, out=out))  # noqa: B023
            assert found == "conv_transpose1d: out must not overlap packed, got memory in common"
        else:
            call(x, w, None, 2, packed=packed, precision=own, out=out)
            assert torch.equal(out, torch.ops.sluice.conv_transpose1d(x, w, None, 2))


# --- numbers ----------------------------------------------------------------------------------------------------------
def test_packed_values_for_other_numbers_are_ignored() -> None:
    x, w = torch.randn(2, 6, 30), torch.randn(6, 8, 6)
    wrong = torch.zeros(3)  # the raw ops would refuse it
    wanted = sluice.conv_transpose1d(x, w, stride=2)
    for numbers in (None, (3, 1, False), (2, 2, False), (2, 1, True)):
        assert torch.equal(sluice.conv_transpose1d(x, PackedWeight(w, wrong, numbers), stride=2), wanted)
    with pytest.raises(ValueError, match="packed must have shape"):
        sluice.conv_transpose1d(x, PackedWeight(w, wrong, (2, 1, False)), stride=2)
    last = torch.empty(2, wanted.shape[2], 8).transpose(1, 2)
    sluice.conv_transpose1d(x, PackedWeight(w, wrong, (2, 1, False)), stride=2, out=last)
    assert torch.equal(last, wanted)
    taps = torch.randn(4, 6, 3)
    assert torch.equal(sluice.conv1d(x, PackedWeight(taps, wrong, (1, 1, False))), sluice.conv1d(x, taps))


@pytest.mark.skipif(not HAS_CODE, reason="built for other GPUs")
@pytest.mark.parametrize("dtype", NARROW_TYPES, ids=str)
def test_a_plan_needs_no_memory_for_a_packed_weight(dtype: torch.dtype) -> None:
    for outputs, taps, stride, dilation, last in (
        *((64, 16, 8, 1, False), (64, 16, 8, 1, True), (64, 7, 1, 1, False), (64, 7, 1, 2, True)),
        *((20, 7, 3, 1, True), (20, 5, 4, 2, True), (24, 2, 5, 1, True)),
    ):
        x = torch.empty(2, 500, 64, dtype=dtype) if last else torch.empty(2, 64, 500, dtype=dtype)
        x, w = x.transpose(1, 2) if last else x, torch.zeros(64, outputs, taps, dtype=dtype)
        arguments = (None, stride, 0, 0, 1, dilation)
        plan = lambda weight: sluice.plan("conv_transpose1d", x, weight, *arguments, device=H200)  # noqa: B023, E731
        with naming(outputs, taps, stride, dilation, last):
            own, packed = plan(w), plan(handle_of(w, stride, dilation, last))
            if own.method == "aten":  # full float32 has no kernel for short sums
                assert (dtype, packed) == (torch.float32, own)
                continue
            assert packed.method == "dense"
            assert packed.workspace_bytes < own.workspace_bytes
            assert packed.workspace_bytes == 0 or "converted" in packed.detail or "split-K" in packed.detail
            forms = [packed_of(w, (stride, dilation, one)) for one in (last, not last)]
            if forms[0].dim() != forms[1].dim():
                assert plan(PackedWeight(w, forms[1], (stride, dilation, last))) == own


@pytest.mark.skipif(not HAS_CODE, reason="built for other GPUs")
def test_channels_first_results_without_positions_need_memory_for_rows_only() -> None:
    x, w = torch.empty(2, 64, 500, dtype=torch.float16), torch.zeros(64, 24, 7, dtype=torch.float16)
    handle = handle_of(w, 3, 1, False)
    own, packed = (sluice.plan("conv_transpose1d", x, one, None, 3, device=H200) for one in (w, handle))
    assert 0 < packed.workspace_bytes < own.workspace_bytes
    assert packed.detail == own.detail


# --- modules ----------------------------------------------------------------------------------------------------------
def test_modules_pack_once_for_their_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sluice.pack.__globals__, "has_kernels", lambda device: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    Setting(monkeypatch).put("ieee")
    values: dict[object, Any] = {}

    def of(parameters: tuple[torch.Tensor, ...], compute: Callable[[], Any], key: object) -> Any:
        if key not in values:
            values[key] = compute()
        return values[key]

    module, kept = sluice.nn.ConvTranspose1d(4, 4, 6, stride=2), types.SimpleNamespace(of=of)
    [module._parameters["weight"]] = fakes((4, 4, 6), dtype=torch.float16)
    find = lambda: packing.packed_weight(kept, module, module.weight)  # type: ignore[arg-type]  # noqa: E731
    with torch.no_grad():
        first = find()
        assert isinstance(first, PackedWeight)
        assert first.numbers == (2, 1, False)
        assert first.packed is not None
        assert first.packed.shape == (1, 3, 8, 16)
        assert find() is first
        module.stride = (3,)
        second = find()
        assert isinstance(second, PackedWeight)
        assert second.numbers == (3, 1, False)
        module.groups = 2
        assert find() is module.weight
