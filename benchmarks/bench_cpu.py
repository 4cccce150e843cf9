"""Suite `cpu`: chains, depthwise convolutions and stencils on the CPU, beside eager and compiled torch.

Caches are warm; rows use one thread or two. Memory-bound rows have `clone` as their floor, or `copy_` if the result is
allocated already. Arithmetic-bound rows have torch's float32 matmul on as many threads, close to the rate of FMA.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
import torch.nn.functional as F

import sluice
from sluice import Chain, stages
from sluice.bench import Case, HostClock, Suite, Workload, compiled, fresh

Eager = Callable[[torch.Tensor], torch.Tensor]


def _ten(x: torch.Tensor) -> torch.Tensor:
    for _ in range(5):
        x = x * 0.9 + 0.1
    return x


_AFFINE = stages.scale(0.9) | stages.shift(0.1)
CHAINS: dict[str, tuple[Chain, Eager]] = {
    "1.5 * x": (stages.scale(1.5), lambda x: 1.5 * x),
    "silu(x)": (stages.silu(), F.silu),
    "gelu(x)": (stages.gelu(), F.gelu),
    "silu(1.5*x + 0.25) * 0.7": (
        stages.scale(1.5) | stages.shift(0.25) | stages.silu() | stages.scale(0.7),
        lambda x: F.silu(1.5 * x + 0.25) * 0.7,
    ),
    "ten arithmetic ops": (_AFFINE | _AFFINE | _AFFINE | _AFFINE | _AFFINE, _ten),
}


@functools.cache
def _matmul_tflops(threads: int) -> float:
    torch.set_num_threads(threads)
    a, b = torch.randn(1024, 1024), torch.randn(1024, 1024)
    return 2 * 1024**3 / min(HostClock(torch.device("cpu"), calls=None).measure(lambda: a @ b, 10)) / 1e6


def _make_chain(op: str, n: int, dtype: str, threads: int, in_place: bool, device: torch.device) -> Workload:
    torch.set_num_threads(threads)
    chain, eager = CHAINS[op]
    x = fresh(n, dtype=dtype, device=device)
    out = torch.empty_like(x)
    target, floor = (out, "copy_") if in_place else (None, "clone")
    return Workload(
        ours=lambda: sluice.transform(x, chain, out=target),
        write=lambda result: sluice.transform(x, chain, out=result),
        reference=lambda: sluice.reference.transform(x.double(), chain, dtype=torch.float64),
        plan=sluice.plan("transform", x, chain),
        traffic=2 * x.nbytes,
        peers={
            "torch": lambda: eager(x),
            "torch_compile": compiled(eager, x),
            floor: (lambda: out.copy_(x)) if in_place else x.clone,
        },
        linked=False,
        floor_peer=floor,
    )


def _make_conv1d(
    op: str, batch: int, channels: int, length: int, taps: int, dtype: str, threads: int, device: torch.device
) -> Workload:
    rate = _matmul_tflops(threads)
    torch.set_num_threads(threads)
    x = fresh(batch, channels, length, dtype=dtype, device=device)
    weight = fresh(channels, 1, taps, dtype=dtype, device=device)
    if op == "causal_conv1d":
        flat = weight[:, 0]

        def ours(out: torch.Tensor | None = None) -> torch.Tensor:
            return sluice.causal_conv1d(x, flat, activation="silu", out=out)

        def eager(x: torch.Tensor) -> torch.Tensor:
            return F.silu(F.conv1d(x, weight, padding=taps - 1, groups=channels)[..., :length])

        def reference() -> torch.Tensor:
            return sluice.reference.causal_conv1d(x.double(), flat.double(), activation="silu")[0]

        plan = sluice.plan("causal_conv1d", x, flat)
    else:

        def ours(out: torch.Tensor | None = None) -> torch.Tensor:
            return sluice.conv1d(x, weight, padding=taps // 2, groups=channels, out=out)

        def eager(x: torch.Tensor) -> torch.Tensor:
            return F.conv1d(x, weight, padding=taps // 2, groups=channels)

        def reference() -> torch.Tensor:
            return sluice.reference.conv1d(x.double(), weight.double(), padding=taps // 2, groups=channels)

        plan = sluice.plan("conv1d", x, weight, padding=taps // 2, groups=channels)
    few = taps <= 4
    return Workload(
        ours=ours,
        write=lambda out: ours(out),
        reference=reference,
        plan=plan,
        traffic=2 * x.nbytes + weight.nbytes,
        flops=2 * taps * x.numel(),
        peers={"torch": lambda: eager(x), "torch_compile": compiled(eager, x), "clone": x.clone},
        linked=False,
        floor_peer="clone" if few else None,
        fma_tflops=rate,
    )


def _make_filter2d(side: int, taps: int, dtype: str, threads: int, device: torch.device) -> Workload:
    rate = _matmul_tflops(threads)
    torch.set_num_threads(threads)
    x = fresh(8, 16, side, side, dtype=dtype, device=device)
    kernel = fresh(16, taps, taps, dtype=dtype, device=device)
    weight = kernel[:, None]
    eager = lambda x: F.conv2d(x, weight, padding=taps // 2, groups=16)  # noqa: E731
    return Workload(
        ours=lambda: sluice.filter2d(x, kernel),
        write=lambda out: sluice.filter2d(x, kernel, out=out),
        reference=lambda: sluice.reference.filter2d(x.double(), kernel.double()),
        plan=sluice.plan("filter2d", x, kernel),
        traffic=2 * x.nbytes,
        flops=2 * taps * taps * x.numel(),
        peers={"torch": lambda: eager(x), "torch_compile": compiled(eager, x), "clone": x.clone},
        linked=False,
        floor_peer="clone" if taps <= 3 else None,
        fma_tflops=rate,
    )


def _where(threads: int) -> str:
    return f"{threads} thread" + "s" * (threads > 1)


def chain_case(dtype: str, n: int, op: str, threads: int, *, in_place: bool = False) -> Case:
    return Case(
        name=f"{dtype} 2^{n.bit_length() - 1} {op}{', out=' * in_place}, {_where(threads)}",
        params={"n": n, "dtype": dtype, "op": op, "threads": threads},
        make=functools.partial(_make_chain, op, n, dtype, threads, in_place),
    )


def conv1d_case(dtype: str, op: str, shape: tuple[int, int, int], taps: int, threads: int) -> Case:
    batch, channels, length = shape
    return Case(
        name=f"{dtype} {op} ({batch}, {channels}, {length}) K={taps}, {_where(threads)}",
        params={"B": batch, "C": channels, "L": length, "K": taps, "dtype": dtype, "fn": op, "threads": threads},
        make=functools.partial(_make_conv1d, op, batch, channels, length, taps, dtype, threads),
    )


def filter2d_case(dtype: str, side: int, taps: int, threads: int) -> Case:
    return Case(
        name=f"{dtype} filter2d (8, 16, {side}, {side}) {taps}x{taps}, {_where(threads)}",
        params={"B": 8, "C": 16, "H": side, "W": side, "K": taps, "dtype": dtype, "threads": threads},
        make=functools.partial(_make_filter2d, side, taps, dtype, threads),
    )


def _cases(threads: int, dtype: str) -> list[Case]:
    sequences = (8, 512, 2048)
    return [
        *(chain_case(dtype, 2**power, op, threads) for op in CHAINS for power in (12, 16, 22, 24)),
        chain_case(dtype, 2**22, "1.5 * x", threads, in_place=True),
        chain_case(dtype, 2**24, "1.5 * x", threads, in_place=True),
        conv1d_case(dtype, "conv1d", sequences, 4, threads),
        conv1d_case(dtype, "conv1d", sequences, 31, threads),
        conv1d_case(dtype, "conv1d", (8, 1, 102_397), 255, threads),
        conv1d_case(dtype, "causal_conv1d", sequences, 4, threads),
        filter2d_case(dtype, 256, 3, threads),
        filter2d_case(dtype, 256, 11, threads),
    ]


SUITE = Suite(
    "cpu",
    [case for threads in (1, 2) for dtype in ("fp32", "bf16") for case in _cases(threads, dtype)],
    clock=functools.partial(HostClock, calls=None),
    device="cpu",
)
