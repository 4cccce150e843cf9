"""Bad input: the Python functions raise TypeError or ValueError with op, argument, rule and value; the raw ops
RuntimeError with the same text; nothing is written before."""

from __future__ import annotations

import pytest
import torch

import sluice
from common import memory_in_use
from sluice import stages

SILU = stages.silu()


def bad_calls(device: str) -> dict[str, tuple]:
    """name -> (error, text, call)."""
    x = torch.randn(2, 6, 20, device=device)
    w, b = torch.randn(6, 1, 3, device=device), torch.randn(6, device=device)
    dense = torch.randn(4, 6, 3, device=device)
    cw = torch.randn(6, 4, device=device)
    ints = torch.ones(2, 6, 20, dtype=torch.int32, device=device)
    half = torch.randn(4, 6, 3, device=device).half()
    conv, causal, transform, stencil = sluice.conv1d, sluice.causal_conv1d, sluice.transform, sluice.filter2d
    image, three = torch.randn(2, 6, 9, 20, device=device), torch.randn(6, 3, 3, device=device)

    def out(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype, device=device)

    return {
        "wrong rank": (ValueError, r"conv1d: input must have shape .*, got \(6,\)", lambda: conv(x[0, :, 0], w)),
        "weight's rank": (ValueError, r"conv1d: weight must have shape .*, got \(6, 3\)", lambda: conv(x, w[:, 0])),
        "weight's shape": (ValueError, r"conv1d: weight must have shape \(out_channels, 6, taps\)", lambda: conv(x, w)),
        "bias's shape": (
            ValueError,
            r"conv1d: bias must have shape \(4,\), got \(6,\)",
            lambda: conv(x, dense, b),
        ),
        "groups": (
            ValueError,
            "conv1d: groups must divide the input's 6 channels, got 4",
            lambda: conv(x, w, groups=4),
        ),
        "groups of outputs": (
            ValueError,
            "conv1d: groups must divide the weight's 4 output channels, got 6",
            lambda: conv(x, torch.randn(4, 1, 3, device=device), groups=6),
        ),
        "no outputs": (
            ValueError,
            r"conv1d: weight must have at least one output channel, got \(0, 6, 3\)",
            lambda: conv(x, dense[:0]),
        ),
        "no positions": (
            ValueError,
            r"conv1d: input must have at least one position, got \(2, 6, 0\)",
            lambda: conv(x[..., :0], dense, padding=2),
        ),
        "no pixels": (
            ValueError,
            r"filter2d: image must have at least one pixel, got \(2, 6, 0, 20\)",
            lambda: stencil(image[:, :, :0], three, padding=(2, 2)),
        ),
        "padding": (ValueError, "conv1d: padding must not be negative, got -1", lambda: conv(x, dense, padding=-1)),
        "padding's name": (ValueError, "conv1d: padding must be .*'full'", lambda: conv(x, dense, padding="full")),
        "same with stride": (ValueError, "conv1d: .*stride 1, got 2", lambda: conv(x, dense, None, 2, "same")),
        "stride": (ValueError, "conv1d: stride must be at least 1, got 0", lambda: conv(x, dense, stride=0)),
        "stride's type": (TypeError, "conv1d: stride must be an int, got float", lambda: conv(x, dense, stride=1.5)),
        "stride's length": (ValueError, r"conv1d: stride must be one number", lambda: conv(x, dense, stride=(1, 1))),
        "dilation": (ValueError, "conv1d: dilation must be at least 1, got 0", lambda: conv(x, dense, dilation=0)),
        "too short": (
            ValueError,
            "conv1d: input must have at least 39 positions with padding, .*, got 20",
            lambda: conv(x, dense, dilation=19),
        ),
        "transposed weight": (
            ValueError,
            r"conv_transpose1d: weight must have shape \(6, out_channels / groups, taps\) for 6 channels, got \(4",
            lambda: sluice.conv_transpose1d(x, dense),
        ),
        "transposed groups": (
            ValueError,
            "conv_transpose1d: groups must divide the input's 6 channels, got 4",
            lambda: sluice.conv_transpose1d(x, w, groups=4),
        ),
        "transposed bias": (
            ValueError,
            r"conv_transpose1d: bias must have shape \(18,\), got \(6,\)",
            lambda: sluice.conv_transpose1d(x, three, b, groups=6),
        ),
        "output_padding": (
            ValueError,
            "conv_transpose1d: output_padding must be less than stride or dilation, got 2 for a stride of 2 and a dila",
            lambda: sluice.conv_transpose1d(x, w, None, 2, 0, 2, 6),
        ),
        "output_padding below 0": (
            ValueError,
            "conv_transpose1d: output_padding must not be negative, got -1",
            lambda: sluice.conv_transpose1d(x, w, None, 2, 0, -1, 6),
        ),
        "nothing left": (
            ValueError,
            "conv_transpose1d: padding must leave a result of at least 0 positions, got 12, which leaves -2",
            lambda: sluice.conv_transpose1d(x, w, padding=12, groups=6),
        ),
        "stride far": (
            ValueError,
            r"conv_transpose1d: stride, padding, dilation and taps must be less than 2\^31, got 1099511627776, 0, 1, 3",
            lambda: sluice.conv_transpose1d(x, w, stride=2**40, groups=6),
        ),
        "transposed out": (
            ValueError,
            "conv_transpose1d: out must not overlap input",
            lambda: sluice.conv_transpose1d(x, w, padding=1, groups=6, out=x),
        ),
        "dtype": (TypeError, "conv1d: input must have dtype .*, got int32", lambda: conv(ints, dense)),
        "weight's dtype": (TypeError, "conv1d: weight must have dtype float32 .*, got float16", lambda: conv(x, half)),
        "result's dtype": (
            TypeError,
            "conv1d: dtype must have dtype .*, got int64",
            lambda: conv(x, dense, dtype=torch.int64),
        ),
        "not a tensor": (TypeError, "conv1d: weight must be a torch.Tensor, got list", lambda: conv(x, [1.0])),
        "out's shape": (
            ValueError,
            r"conv1d: out must have shape \(2, 4, 18\), got \(2, 4, 20\)",
            lambda: conv(x, dense, out=out(2, 4, 20)),
        ),
        "out's dtype": (
            TypeError,
            "conv1d: out must have dtype float32, got float16",
            lambda: conv(x, dense, out=out(2, 4, 18, dtype=torch.float16)),
        ),
        "out overlaps": (
            ValueError,
            "conv1d: out must not overlap input",
            lambda: conv(x, w, groups=6, padding=1, out=x),
        ),
        "out overlaps in part": (
            ValueError,
            "transform: out must not overlap input unless it is that tensor",
            lambda: transform(x.view(-1)[1:], SILU, out=x.view(-1)[:-1]),
        ),
        "out holds an element twice": (
            ValueError,
            "transform: out must not have two elements at one address",
            lambda: transform(x, SILU, out=out(1).expand(2, 6, 20)),
        ),
        "operand enlarges": (
            ValueError,
            r"transform: chain operand 0 must broadcast to the result's shape \(20,\), got \(2, 6, 20\)",
            lambda: transform(x[0, 0], stages.add(x)),
        ),
        "operand of post": (
            ValueError,
            r"conv1d: post operand 0 must broadcast to the result's shape \(2, 4, 18\), got \(6,\)",
            lambda: conv(x, dense, post=stages.mul(b)),
        ),
        "operand's dtype": (TypeError, "add: a tensor parameter must have a floating dtype", lambda: stages.add(ints)),
        "schedule": (
            ValueError,
            "transform: schedule must be one of auto, direct, .*, got 'fastest'",
            lambda: transform(x, SILU, schedule="fastest"),
        ),
        "depth 0": (ValueError, "transform: depth must be 1 to 8, got 0", lambda: transform(x, SILU, depth=0)),
        "depth of one": (
            ValueError,
            "transform: depth must be 1 with schedule single_stage, got 2",
            lambda: transform(x, SILU, schedule="single_stage", depth=2),
        ),
        "depth of two": (
            ValueError,
            "causal_conv1d: depth must be 2 with schedule two_stage, got 3",
            lambda: causal(x, cw, schedule="two_stage", depth=3),
        ),
        "depth 9": (ValueError, "causal_conv1d: depth must be 1 to 8, got 9", lambda: causal(x, cw, depth=9)),
        "not a chain": (TypeError, "transform: chain must be a chain or a list", lambda: transform(x, torch.relu)),
        "x's rank": (ValueError, r"causal_conv1d: x must have shape .*, got \(6, 20\)", lambda: causal(x[0], cw)),
        "causal weight": (
            ValueError,
            r"causal_conv1d: weight must have shape \(C, K\) with C = 6, got \(5, 4\)",
            lambda: causal(x, cw[:5]),
        ),
        "activation": (
            ValueError,
            "causal_conv1d: activation must be .*, got 'gelu'",
            lambda: causal(x, cw, activation="gelu"),
        ),
        "states": (
            ValueError,
            r"causal_conv1d: initial_states must have shape .* \(2, 6, 3\), got \(2, 6, 4\)",
            lambda: causal(x, cw, initial_states=x[..., :4]),
        ),
        "final states": (
            ValueError,
            r"causal_conv1d: final_states_out must have shape .* \(2, 6, 3\), got \(2, 6, 2\)",
            lambda: causal(x, cw, final_states_out=x[..., :2].clone()),
        ),
        "image's rank": (
            ValueError,
            r"filter2d: image must have shape \(..., H, W\), got \(20,\)",
            lambda: stencil(image[0, 0, 0], three[0]),
        ),
        "image's dtype": (
            TypeError,
            "filter2d: image must have dtype .* or uint8, got int32",
            lambda: stencil(ints, three[0]),
        ),
        "kernel's shape": (
            ValueError,
            r"filter2d: kernel must have shape \(kh, kw\) or \(C, kh, kw\) with C = 6, got \(5, 3, 3\)",
            lambda: stencil(image, three[:5]),
        ),
        "kernel's rank": (
            ValueError,
            r"filter2d: kernel must have shape .*, got \(6, 1, 3, 3\)",
            lambda: stencil(image, three[:, None]),
        ),
        "kernel's vectors": (
            ValueError,
            r"filter2d: kernel must have two vectors .* with C = 6, got \(3,\) and \(6, 3\)",
            lambda: stencil(image, (three[0, 0], three[0].expand(2, 3, 3).reshape(6, 3))),
        ),
        "kernel's parts": (
            ValueError,
            "filter2d: kernel must be a tensor or a column and a row, got 3 parts",
            lambda: stencil(image, (three[0, 0],) * 3),
        ),
        "no taps": (
            ValueError,
            r"filter2d: kernel must have at least one tap, got \(0, 3\)",
            lambda: stencil(image, out(0, 3)),
        ),
        "kernel's dtype": (
            TypeError,
            "filter2d: kernel must have dtype float32 like the image, got float16",
            lambda: stencil(image, three.half()),
        ),
        "kernel's dtype for bytes": (
            TypeError,
            "filter2d: kernel must have dtype float32 for a uint8 image, got float16",
            lambda: stencil(image.to(torch.uint8), three.half()),
        ),
        "bias of an image": (
            ValueError,
            r"filter2d: bias must have shape \(1,\), got \(6,\)",
            lambda: stencil(image, three[0], b),
        ),
        "padding's name for an image": (
            ValueError,
            "filter2d: padding must be 'same', 'valid' or two numbers, got 'full'",
            lambda: stencil(image, three, padding="full"),
        ),
        "padding's type": (
            TypeError,
            "filter2d: padding must be a string or two ints, got float",
            lambda: stencil(image, three, padding=(1, 0.5)),
        ),
        "padding's length": (
            ValueError,
            "filter2d: padding must be two numbers, got 3",
            lambda: stencil(image, three, padding=(1, 2, 3)),
        ),
        "padding below 0": (
            ValueError,
            "filter2d: padding must be at least 0 and less than .*, got -1",
            lambda: stencil(image, three, padding=(0, -1)),
        ),
        "kernel too large": (
            ValueError,
            "filter2d: image must be at least 11 x 3 with padding, the kernel's size, got 9 x 20",
            lambda: stencil(image, out(11, 3), padding="valid"),
        ),
        "image as its own out": (
            ValueError,
            "filter2d: out must not overlap image, got memory in common",
            lambda: stencil(image, three, out=image),
        ),
        "an image's out": (
            ValueError,
            r"filter2d: out must have shape \(2, 6, 9, 20\), got \(2, 6, 7, 18\)",
            lambda: stencil(image, three, out=out(2, 6, 7, 18)),
        ),
        "an image's operand": (
            ValueError,
            r"filter2d: post operand 0 must broadcast to the result's shape \(2, 6, 7, 18\), got \(20,\)",
            lambda: stencil(image, three, padding="valid", post=stages.mul(image[0, 0, 0])),
        ),
    }


@pytest.mark.parametrize("name", bad_calls("cpu"))
def test_each_is_refused(device: str, name: str) -> None:
    error, text, call = bad_calls(device)[name]
    with pytest.raises(error, match=text):
        call()


def test_an_unknown_stage_is_refused(device: str) -> None:
    x = torch.randn(4, device=device)
    with pytest.raises(RuntimeError, match="transform: chain must be a chain of stages: unknown stage 'frobnicate'"):
        torch.ops.sluice.transform(x, "scale(2)|frobnicate()")
    for text, rule in {
        "scale": "at least 1 parameter",
        "silu(1)": "at most 0 parameters",
        "scale(one)": "a number or an operand",
        "add($0)": "one of the 0 given",
        "cast(int8)": "cast must name",
        "scale(2": "written name",
        "silu|": "a stage must follow",
    }.items():
        with pytest.raises(RuntimeError, match=rule):
            torch.ops.sluice.transform(x, text)
    with pytest.raises(AttributeError, match="frobnicate"):
        stages.frobnicate()  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="clamp: at least one of min and max"):
        stages.clamp()
    with pytest.raises(ValueError, match="gelu: approximate must be"):
        stages.gelu("erf")
    with pytest.raises(TypeError, match="cast: dtype must be"):
        stages.cast(torch.int32)


def test_raw_ops_raise_runtime_error_with_the_same_text(device: str) -> None:
    x, w = torch.randn(2, 6, 20, device=device), torch.randn(6, 1, 3, device=device)
    with pytest.raises(RuntimeError, match="conv1d: stride must be at least 1, got 0") as raised:
        torch.ops.sluice.conv1d(x, w, None, 0, 0, 1, 6)
    assert type(raised.value) is RuntimeError


@pytest.mark.parametrize("op", ["transform", "conv1d", "conv_transpose1d", "causal_conv1d", "filter2d"])
def test_an_input_that_requires_grad(device: str, op: str) -> None:
    x, w = torch.randn(2, 6, 20, device=device, requires_grad=True), torch.randn(6, 1, 3, device=device)
    call = {
        "transform": lambda t: sluice.transform(t, SILU),
        "conv1d": lambda t: sluice.conv1d(t, w, groups=6),
        "conv_transpose1d": lambda t: sluice.conv_transpose1d(t, w, groups=6),
        "causal_conv1d": lambda t: sluice.causal_conv1d(t, w[:, 0]),
        "filter2d": lambda t: sluice.filter2d(t, w[:, 0]),
    }[op]
    with pytest.raises(RuntimeError, match=rf"{op}: sluice is forward-only .* torch.inference_mode\(\)"):
        call(x)
    with torch.no_grad():
        call(x)
    call(x.detach())
    with torch.inference_mode():
        call(torch.randn(2, 6, 20, device=device))
    parameter = torch.nn.Parameter(torch.randn(20, device=device))
    with pytest.raises(RuntimeError, match="forward-only"):
        sluice.transform(x.detach(), stages.add(parameter))


def test_mixed_devices(cuda: str) -> None:
    x, w = torch.randn(2, 6, 20, device=cuda), torch.randn(6, 1, 3)
    with pytest.raises(ValueError, match="conv1d: weight must be on the input's device cuda:0, got cpu"):
        sluice.conv1d(x, w, groups=6)
    with pytest.raises(ValueError, match="transform: chain operand 0 must be on the input's device cuda:0, got cpu"):
        sluice.transform(x, stages.add(torch.randn(20)))
    with pytest.raises(ValueError, match="causal_conv1d: bias must be on the input's device cuda:0, got cpu"):
        sluice.causal_conv1d(x, w[:, 0].cuda(), torch.randn(6))
    with pytest.raises(ValueError, match="filter2d: kernel must be on the input's device cuda:0, got cpu"):
        sluice.filter2d(x, w[:, 0])
    with pytest.raises(ValueError, match="transform: out must be on the input's device cuda:0, got cpu"):
        sluice.transform(x, SILU, out=torch.empty(2, 6, 20))


def test_a_forced_schedule_that_cannot_run(cuda: str) -> None:
    dense = torch.randn(4, 6, 3, device=cuda)
    with pytest.raises(ValueError, match="conv1d: schedule must be auto here, because .*; got multi_stage"):
        sluice.conv1d(torch.randn(2, 6, 20, device=cuda), dense, schedule="multi_stage")
    x, w = torch.randn(1, 64, 9000, device=cuda), torch.randn(64, 1, 4000, device=cuda)
    with pytest.raises(ValueError, match="conv1d: schedule must be able to run here: the ring's stages"):
        sluice.conv1d(x.transpose(1, 2).contiguous().transpose(1, 2), w, groups=64, schedule="sync")
    with pytest.raises(ValueError, match="filter2d: schedule must be able to run here: the ring's stages"):
        sluice.filter2d(torch.randn(900, 900, device=cuda), torch.randn(201, 201, device=cuda), schedule="sync")


def test_memory_that_runs_out_keeps_its_type(cuda: str) -> None:
    huge = torch.empty(1, device=cuda).expand(1 << 40)
    with pytest.raises(torch.OutOfMemoryError, match="transform: out of memory"):
        sluice.transform(huge, SILU)


def test_nothing_is_written_or_leaked_by_a_refused_call(cuda: str) -> None:
    x = torch.randn(1 << 20, device=cuda)
    before = memory_in_use()
    for _ in range(3):
        with pytest.raises(ValueError, match="depth"):
            sluice.transform(x, SILU, depth=9)
    assert memory_in_use() == before
