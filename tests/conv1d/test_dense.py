"""Dense conv1d in half types: weights packed ahead, plans, and F.conv1d's results for every layout and alignment."""

from __future__ import annotations

import itertools
import pathlib

import pytest
import torch
import torch.nn.functional as F
from torch.library import opcheck

import sluice
from common import (
    HALF_TYPES,
    LAYOUTS,
    NARROW_TYPES,
    assert_close,
    contiguous,
    in_float64,
    offset_by_one,
    permuted,
    relative_error,
    sliced,
)
from convolution_tensors import convolution
from dense_problems import Problem
from rows import naming
from sluice import PackedWeight, stages


def expected(x, w, b, padding, dilation, pre=None, post=None) -> torch.Tensor:
    return in_float64(sluice.reference.conv1d, x, w, b, 1, padding, dilation, pre=pre, post=post)


# Shape, output channels, taps, padding, dilation: few channels, many channels, odd counts of channels, more taps than
# positions of a tile, rows shorter than a vector, results of one position.
CASES = [
    ((2, 64, 300), 64, 3, 1, 1),
    ((2, 64, 1000), 128, 7, 9, 3),
    ((1, 128, 1031), 96, 11, 25, 5),
    ((3, 16, 777), 32, 4, 2, 1),
    ((2, 1, 600), 40, 10, 0, 1),
    ((2, 3, 130), 200, 2, 5, 1),
    ((1, 100, 65), 33, 5, 2, 2),
    ((2, 256, 40), 256, 1, 0, 1),
    ((1, 32, 2000), 1, 7, 3, 1),
    ((1, 8, 700), 8, 300, 150, 1),
    ((1, 48, 200), 80, 65, 1000, 31),
    ((2, 72, 1), 40, 1, 0, 1),
    ((2, 72, 1), 40, 3, 1, 1),
    ((5, 24, 17), 24, 2, 0, 1),
]


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", HALF_TYPES, ids=str)
def test_results(device: str, dtype: torch.dtype, layout) -> None:
    for case in CASES:
        with naming(case):
            shape, outputs, taps, padding, dilation = case
            if Problem(shape, outputs, taps, 1, padding, dilation).is_left_out(device):
                continue
            x, w, b = convolution(shape, outputs, taps, dtype, layout, device=device)
            wanted = expected(x, w, b, padding, dilation)
            if (
                device == "cpu"
                and dtype == torch.bfloat16
                and relative_error(F.conv1d(x, w, b, 1, padding, dilation), wanted) > 0.1
            ):
                continue  # torch's own result is wrong: oneDNN, bfloat16 and few channels on a CPU with AMX
            assert_close(sluice.conv1d(x, w, b, 1, padding, dilation), wanted)
            # The result's layout does not depend on the input's. On a CPU torch computes it, and the result is copied.
            for other in (permuted, sliced) if device == "cpu" else (contiguous, permuted, sliced, offset_by_one):
                out = other(torch.empty(wanted.shape, device=device, dtype=dtype)).fill_(float("nan"))
                assert sluice.conv1d(x, sluice.pack(w), b, 1, padding, dilation, out=out) is out
                assert_close(out, wanted)


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", HALF_TYPES, ids=str)
def test_results_with_chains(device: str, dtype: torch.dtype, layout) -> None:
    for case in (CASES[1], CASES[5], CASES[6], CASES[8]):
        with naming(case):
            shape, outputs, taps, padding, dilation = case
            if Problem(shape, outputs, taps, 1, padding, dilation).is_left_out(device):
                continue
            x, w, b = convolution(shape, outputs, taps, dtype, layout, device=device)
            # shift(0.5) shows whether padding is zero after `pre`, as it must be.
            alpha = torch.rand(shape[1], 1, device=device) + 0.5
            pre = stages.shift(0.5) | stages.snake(alpha) | stages.leaky_relu(0.1)
            plain = expected(x, w, b, padding, dilation, pre)
            residual = layout(torch.randn(plain.shape, device=device, dtype=dtype))
            scale = torch.randn(outputs, 1, device=device)
            for post in (stages.gelu(), stages.leaky_relu(0.1) | stages.add(residual) | stages.mul(scale)):
                wanted = expected(x, w, b, padding, dilation, pre, post)
                result = sluice.conv1d(x, w, b, 1, padding, dilation, pre=pre, post=post)
                assert_close(result, wanted, factor=2)
                assert result.stride() == sluice.conv1d(x, w, b, 1, padding, dilation).stride()
                wide = sluice.conv1d(x, w, b, 1, padding, dilation, pre=pre, post=post, dtype=torch.float32)
                assert wide.dtype == torch.float32
                assert_close(wide.to(dtype), wanted, factor=2)


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda f: f.__name__)
def test_strided_weights_and_unbatched_inputs(device: str, layout) -> None:
    x, w, b = convolution((1, 24, 333), 40, 5, torch.bfloat16, device=device)
    wanted = sluice.conv1d(x, w, b, padding=2)
    across = w.permute(2, 1, 0).contiguous().permute(2, 1, 0)
    for other in (layout(w), across):
        for result in (
            sluice.conv1d(x, other, layout(b), padding=2),
            sluice.conv1d(x, sluice.pack(other), b, padding=2),
            sluice.conv1d(x[0], other, b, padding=2)[None],
        ):
            assert_close(result, wanted.double())  # on the CPU torch's order of sums depends on the layout
            assert device == "cpu" or torch.equal(result, wanted)


def test_empty_results(device: str) -> None:
    for shape in ((0, 64, 100), (2, 64, 2)):
        x, w, b = convolution(shape, 32, 3, torch.float16, device=device)
        padding = 1 if shape[2] > 2 else 0
        if shape[2] == 2:  # as torch does
            with pytest.raises(ValueError, match="at least 3 positions with padding, the kernel's reach"):
                sluice.conv1d(x, w, b)
            continue
        assert sluice.conv1d(x, sluice.pack(w), b, padding=padding).shape == (0, 32, 100)


# --- the layout of a packed weight -------------------------------------------------------------------------------


def in_packed_order(w: torch.Tensor) -> torch.Tensor:
    """kernels/operators/conv1d/dense/pack.h and kernels/shared/mma/swizzle.h, word by word."""
    outputs, inputs, taps = w.shape
    word, widest = 16 // w.itemsize, 128 // w.itemsize  # elements of a word, and of the widest row
    half, quarter = widest // 2, widest // 4
    is_half = inputs <= half or (inputs <= 5 * half and (inputs - 1) % widest < half)
    k_block = quarter if inputs <= quarter else half if is_half else widest
    k_blocks, rows, words = -(-inputs // k_block), -(-outputs // 8) * 8, k_block // word
    wide = w.new_zeros(rows, k_blocks * k_block, taps)
    wide[:outputs, :inputs] = w
    plain = wide.view(rows, k_blocks, words, word, taps).permute(1, 4, 0, 2, 3)
    packed = torch.empty_like(plain, memory_format=torch.contiguous_format)
    for row, place in itertools.product(range(rows), range(words)):
        packed[:, :, row, place ^ (row * words // 8 % words)] = plain[:, :, row, place]
    return packed.flatten(-2)


def rounded_to_tf32(w: torch.Tensor) -> torch.Tensor:
    """Finite float32 values as the nearest with 10 bits of fraction, ties away from zero; half types as they are."""
    if w.dtype != torch.float32:
        return w
    exponents = torch.frexp(w.double()).exponent
    units = torch.ldexp(w.double(), 11 - exponents)
    return torch.ldexp((units.abs() + 0.5).floor() * units.sign(), exponents - 11).float()


def low_parts(w: torch.Tensor) -> torch.Tensor:
    """What is left of float32 values beside the nearest in TF32, times 2048."""
    return (w - rounded_to_tf32(w)) * 2048


# k-blocks of each width, in which half types and float32 have different counts of channels.
PACKED = [
    *((5, 3, 2), (32, 32, 3), (40, 100, 5), (128, 64, 1), (7, 20, 4), (1, 130, 11), (96, 96, 7)),
    *((5, 8, 2), (12, 9, 3), (9, 16, 1), (24, 33, 2), (8, 48, 3), (130, 49, 1), (8, 81, 1), (8, 97, 2)),
]


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", NARROW_TYPES, ids=str)
def test_the_order_of_a_packed_weight(device: str, dtype: torch.dtype, layout) -> None:
    for shape in PACKED:
        with naming(shape):
            w = torch.randn(shape, device=device, dtype=dtype)
            w[0, 0, 0], w[-1, -1, -1] = 1 + 2**-11, -1 - 2**-11 - 2**-12  # a tie, and more than half a unit
            packed = torch.ops.sluice._pack_conv1d_weight(layout(w), precision="tf32")
            assert torch.equal(packed.cpu(), in_packed_order(rounded_to_tf32(w.cpu())))
            assert list(packed.shape) == torch.ops.sluice._packed_conv1d_shape(*shape, dtype, "tf32")
            packed = torch.ops.sluice._pack_conv1d_weight(layout(w))
            if dtype == torch.float32:
                high, low = (in_packed_order(part(w.cpu())) for part in (rounded_to_tf32, low_parts))
                assert torch.equal(packed.cpu(), torch.stack([high, low], 2).flatten(1, 2))
            else:
                assert torch.equal(packed.cpu(), in_packed_order(w.cpu()))
    row_bytes = {torch.ops.sluice._packed_conv1d_shape(*shape, dtype)[3] * dtype.itemsize for shape in PACKED}
    assert row_bytes == {32, 64, 128}


def test_packing_casts_first(device: str) -> None:
    w = torch.randn(8, 4, 3, device=device)
    packed = torch.ops.sluice._pack_conv1d_weight(w, torch.bfloat16)
    assert torch.equal(packed, torch.ops.sluice._pack_conv1d_weight(w.bfloat16()))


def test_what_cannot_be_packed(device: str) -> None:
    w = torch.randn(8, 4, 3, device=device)
    for match, weight, dtype in (
        ("pack: weight must have dtype float32, float16 or bfloat16, got float64", w.double(), None),
        ("pack: dtype must have dtype float32, float16 or bfloat16, got float64", w, torch.float64),
        (r"pack: weight must have shape \(out_channels, in_channels, taps\), got \(8, 4\)", w[..., 0].half(), None),
        ("pack: weight must have extents of 1 to 2\\^31 - 1, got \\(8, 0, 3\\)", w[:, :0].half(), None),
    ):
        with pytest.raises(RuntimeError, match=match):
            torch.ops.sluice._pack_conv1d_weight(weight, dtype)
    with pytest.raises(TypeError, match=r"pack: weight must be a torch\.Tensor, got list"):
        sluice.pack([1.0])
    with pytest.raises(TypeError, match="pack: weight must have dtype .*, got int32"):
        sluice.pack(w.int())
    with pytest.raises(ValueError, match=r"pack: weight must have shape \(out_channels.*, got \(8, 4\)"):
        sluice.pack(w[..., 0])
    with pytest.raises(RuntimeError, match="pack: sluice is forward-only"):
        sluice.pack(w.requires_grad_())


# --- the handle --------------------------------------------------------------------------------------------------


def handle(w: torch.Tensor) -> PackedWeight:
    """Packed on every device, as `pack` does where kernels read it."""
    return PackedWeight(w, torch.ops.sluice._pack_conv1d_weight(w))


class Model(torch.nn.Module):
    def __init__(self, weight: PackedWeight, bias: torch.Tensor) -> None:
        super().__init__()
        self.weight = weight
        self.register_buffer("bias", bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return sluice.conv1d(x, self.weight, self.bias, padding=2, post=stages.gelu())


@pytest.mark.parametrize("layout", [contiguous, permuted], ids=lambda f: f.__name__)
def test_a_packed_weight_is_compiled_and_exported(device: str, layout, tmp_path: pathlib.Path) -> None:
    x, w, b = convolution((2, 20, 400), 36, 5, torch.float16, layout, device=device)
    model = Model(handle(w), b)
    with torch.no_grad():
        wanted = model(x)
        assert torch.equal(sluice.conv1d(x, w, b, padding=2, post=stages.gelu()), wanted)
        result = torch.compile(model, fullgraph=True, backend="aot_eager")(x)
        assert torch.equal(result, wanted)
        assert result.stride() == wanted.stride()

        def call(x: torch.Tensor, weight: PackedWeight) -> torch.Tensor:
            return sluice.conv1d(x, weight, b, padding=2, post=stages.gelu())

        assert torch.equal(torch.compile(call, fullgraph=True, backend="aot_eager")(x, model.weight), wanted)
        for strict in (False, True) if layout is contiguous else (False,):
            program = torch.export.export(model, (x,), strict=strict)
            assert "packed = " in program.graph_module.code
            assert torch.equal(program.module()(x), wanted)
    path = tmp_path / "model.pt2"
    torch.export.save(program, path)
    assert torch.equal(torch.export.load(path).module()(x), wanted)


class Argument(torch.nn.Module):
    def forward(self, x: torch.Tensor, weight: PackedWeight) -> torch.Tensor:
        return sluice.conv1d(x, weight, padding=2)


def test_a_packed_weight_is_an_argument_of_an_exported_function(device: str) -> None:
    x, w, _ = convolution((2, 20, 400), 36, 5, torch.bfloat16, device=device)
    with torch.no_grad():
        program = torch.export.export(Argument(), (x, handle(w)))
        assert torch.equal(program.module()(x, handle(w)), sluice.conv1d(x, w, padding=2))


class PacksItself(torch.nn.Module):
    def __init__(self, weight: torch.Tensor) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(weight, requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        packed = torch.ops.sluice._pack_conv1d_weight(self.weight)  # on the CPU sluice.pack would not
        return sluice.conv1d(x, PackedWeight(self.weight, packed))


@pytest.mark.parametrize("freezing", [False, True])
def test_freezing_packs_once(device: str, freezing: bool) -> None:
    from torch._inductor.utils import run_and_get_code

    x, w, _ = convolution((2, 20, 400), 36, 5, torch.float16, device=device)
    model = PacksItself(w).eval()
    torch._dynamo.reset()
    with torch.no_grad(), torch._inductor.config.patch(freezing=freezing):
        result, code = run_and_get_code(torch.compile(model, fullgraph=True), x)
    assert torch.equal(result, sluice.conv1d(x, w))
    assert any("_pack_conv1d_weight" in text for text in code) != freezing


def test_opcheck(device: str) -> None:
    x, w, b = convolution((2, 20, 90), 36, 5, torch.float16, device=device)
    packed = torch.ops.sluice._pack_conv1d_weight(w)
    opcheck(torch.ops.sluice._pack_conv1d_weight.default, (w,))
    opcheck(torch.ops.sluice._pack_conv1d_weight.default, (w, torch.bfloat16))
    opcheck(torch.ops.sluice.conv1d.default, (x, w, b, 1, 2), {"packed": packed, "post": "gelu"})


def test_a_packed_weight_that_does_not_fit(device: str) -> None:
    x, w, _ = convolution((2, 20, 90), 36, 5, torch.float16, device=device)
    packed = torch.ops.sluice._pack_conv1d_weight(w)
    shifted = torch.cat([packed.flatten()[:1], packed.flatten()])[1:].view(packed.shape)
    conv = torch.ops.sluice.conv1d
    for match, call in {
        r"packed must have shape \(1, 5, 40, 32\) for a weight of \(36, 20, 5\), as sluice.pack makes it, got": (
            lambda: conv(x, w, packed=packed[:, :3])
        ),
        "packed must have dtype float32, float16 or bfloat16 like the input, got bfloat16 for float16": (
            lambda: conv(x, w, packed=packed.bfloat16())
        ),
        "packed must have dtype float32, float16 or bfloat16 like the input, got float64 for float64": (
            lambda: conv(x.double(), w.double(), packed=packed.double())
        ),
        "packed must be contiguous": lambda: conv(x, w, packed=packed.transpose(2, 3).contiguous().transpose(2, 3)),
        "packed must begin at a multiple of 16 bytes": lambda: conv(x, w, packed=shifted),
    }.items():
        with pytest.raises(RuntimeError, match=match):
            call()
    # The raw op uses the packed values where it can.
    assert torch.equal(sluice.conv1d(x.float(), PackedWeight(w.float(), packed)), sluice.conv1d(x.float(), w.float()))
    for packed in (None, torch.ops.sluice._pack_conv1d_weight(w[:, :10])):  # packed for 10 channels, for no kernel
        grouped = sluice.conv1d(x, PackedWeight(w[:, :10], packed), groups=2)
        assert torch.equal(grouped, sluice.conv1d(x, w[:, :10], groups=2))


def test_autocast_takes_weights_packed_for_it(device: str) -> None:
    x, w, b = (tensor.float() for tensor in convolution((2, 20, 90), 36, 5, torch.bfloat16, device=device))
    packed = PackedWeight(w, torch.ops.sluice._pack_conv1d_weight(w, torch.bfloat16))
    with torch.autocast(device, dtype=torch.bfloat16):
        wanted = sluice.conv1d(x, w, b)
        assert wanted.dtype == torch.bfloat16
        assert torch.equal(sluice.conv1d(x, packed, b), wanted)
        assert torch.equal(torch.ops.sluice.conv1d(x, w, b, packed=packed.packed), wanted)
    assert torch.equal(sluice.conv1d(x, packed, b), sluice.conv1d(x, w, b))
