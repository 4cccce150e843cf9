"""Rows of the suite `stream` with real work: a convolution along a signal, a network over images."""

from __future__ import annotations

import functools
import importlib
import importlib.util

import torch

import sluice
from sluice.bench import DTYPES, Case, Workload
from stream_data import random_source, result_like
from stream_peers import NAIVE, Loop, peers
from stream_work import DEPTH, compute_seconds, floor_seconds, size_text, streamed


def _streamer(device: torch.device) -> sluice.Streamer:
    return sluice.Streamer([device], depth=DEPTH)


# --- a depthwise convolution in chunks along the sequence, with a halo, against the whole ---------------------------
def _make_conv(channels: int, length: int, taps: int, chunk: int | None, device: torch.device) -> Workload:
    x = random_source("pinned", (1, channels, length), torch.float32, device)
    out = result_like("pinned", x.shape, x.dtype)
    weight = torch.randn(channels, 1, taps, device=device) / taps**0.5
    fn = functools.partial(sluice.conv1d, weight=weight, padding="same", groups=channels)  # known: C++ issues it

    def reference() -> torch.Tensor:
        whole = x.to(device).double()
        return torch.nn.functional.conv1d(whole, weight.double(), padding=taps // 2, groups=channels)

    return streamed(
        _streamer(device),
        fn,
        x,
        out,
        reference,
        floor=floor_seconds(x.nbytes, out.nbytes, device, pinned=True),
        peers=peers(NAIVE if chunk is None else (), Loop(fn, x, out, 1, device)),
        dim=-1,
        halo=taps // 2,
        chunk_size=chunk,
    )


def conv_case(channels: int, length: int, taps: int, chunk: int | None = None) -> Case:
    """A depthwise convolution with an odd number of taps over a pinned signal; `chunk` positions, if forced."""
    name = f"conv1d K={taps}, {channels}x{length} fp32 pinned"
    if chunk is not None:
        name += f", chunks of {size_text(chunk * channels * DTYPES['fp32'].itemsize)}"
    params = {"C": channels, "L": length, "K": taps, "dtype": "fp32", "op": "conv1d", "source": "pinned"}
    params |= {"order": "depth_first", "fn": "Streamer.map", "devices": 1}
    make = functools.partial(_make_conv, channels, length, taps, chunk)
    return Case(name=name, params=params, make=make, auto=chunk is None)


# --- a network over pageable images ---------------------------------------------------------------------------------
def has_torchvision() -> bool:
    """Whether torchvision is installed."""
    return importlib.util.find_spec("torchvision") is not None


def network(name: str) -> torch.nn.Module:
    """A network of torchvision with random weights."""
    return importlib.import_module("torchvision.models").get_model(name, weights=None)


def _make_images(name: str, images: int, side: int, batch: int, dtype: str, device: torch.device) -> Workload:
    torch.manual_seed(0)
    model = network(name).to(device, DTYPES[dtype], memory_format=torch.channels_last).eval().requires_grad_(False)

    def fn(x: torch.Tensor) -> torch.Tensor:
        return model(x.to(DTYPES[dtype], memory_format=torch.channels_last) / 127.5 - 1)

    x = random_source("pageable", (images, 3, side, side), torch.uint8, device)
    chunk = x[:batch].to(device)
    out = result_like("pageable", (images, fn(chunk).shape[1]), DTYPES[dtype])

    def reference() -> torch.Tensor:
        # Without streaming, in the same batches and by the same kernels: streaming must add no error.
        with torch.backends.cudnn.flags(enabled=True, benchmark=True):
            return torch.cat([fn(part.to(device)) for part in x.split(batch)]).double()

    compute = compute_seconds(fn, chunk) * images / batch
    return streamed(
        _streamer(device),
        fn,
        x,
        out,
        reference,
        floor=floor_seconds(x.nbytes, out.nbytes, device, pinned=False, compute=compute),
        peers=peers(["sequential", "prefetch"], Loop(fn, x, out, batch, device)),
        chunk_size=batch,
    )


def images_case(name: str, images: int, side: int, batch: int, dtype: str = "bf16") -> Case:
    """A network over uint8 images, converted to float on the device."""
    title = f"{name}, {images} images {side}x{side} {dtype} pageable"
    params = {"B": images, "H": side, "W": side, "dtype": dtype, "op": name, "source": "pageable"}
    params |= {"order": "depth_first", "fn": "Streamer.map", "devices": 1}
    make = functools.partial(_make_images, name, images, side, batch, dtype)
    return Case(name=title, params=params, make=make, auto=False)
