"""`python -m sluice {info,demo,bench,plan,trace}`."""

from __future__ import annotations

import argparse
import json
import sys

import torch

_DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16, "fp64": torch.float64}


def _info(_: list[str]) -> int:
    from . import info

    print(json.dumps(info(), indent=2))
    return 0


def _demo(arguments: list[str]) -> int:
    from .demo import main

    return main(arguments)


def _bench(arguments: list[str]) -> int:
    from .bench import main

    return main(arguments)


def _plan(arguments: list[str]) -> int:
    """Prints the plan for a shape, for the GPU that is there or for an H200."""
    from . import plan
    from ._registry import OPS

    parser = argparse.ArgumentParser(prog="python -m sluice plan", description=_plan.__doc__)
    parser.add_argument("op", choices=OPS)
    parser.add_argument("--shape", required=True, help="the input's shape, as 8,5120,2048")
    parser.add_argument("--dtype", choices=_DTYPES, default="bf16")
    parser.add_argument("--layout", choices=["cf", "cl"], default="cf", help="channels-first or channels-last")
    parser.add_argument("--taps", type=int, default=4, help="of filter2d on each side")
    parser.add_argument("--channels-out", type=int, help="of a dense convolution; depthwise without it")
    parser.add_argument("--schedule", default="auto")
    parser.add_argument("--depth", type=int)
    given = parser.parse_args(arguments)

    shape = [int(extent) for extent in given.shape.split(",")]
    x = torch.empty(shape, dtype=_DTYPES[given.dtype], device="meta")
    if given.layout == "cl" and len(shape) == 3:
        x = x.new_empty(shape[0], shape[2], shape[1]).transpose(1, 2)
    options = {"schedule": given.schedule, "depth": given.depth}
    try:
        if given.op == "transform":
            made = plan("transform", x, **options)
        elif given.op == "causal_conv1d":
            made = plan("causal_conv1d", x, x.new_empty(shape[1], given.taps), **options)
        elif given.op == "filter2d":
            made = plan("filter2d", x, x.new_empty(given.taps, given.taps), **options)
        elif given.channels_out is None:
            made = plan("conv1d", x, x.new_empty(shape[1], 1, given.taps), groups=shape[1], **options)
        else:
            made = plan("conv1d", x, x.new_empty(given.channels_out, shape[1], given.taps), **options)
    except (IndexError, ValueError, TypeError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    for field, value in vars(made).items():
        print(f"{field:16} {value}")
    return 0


def _trace(arguments: list[str]) -> int:
    from .stream.command import main

    return main(arguments)


_COMMANDS = {"info": _info, "demo": _demo, "bench": _bench, "plan": _plan, "trace": _trace}


def main(arguments: list[str] | None = None) -> int:
    """Runs a command and returns its exit status."""
    parser = argparse.ArgumentParser(prog="python -m sluice", add_help=True)
    parser.add_argument("command", choices=_COMMANDS)
    words = sys.argv[1:] if arguments is None else arguments
    given = parser.parse_args(words[:1] or ["--help"])
    return _COMMANDS[given.command](words[1:])


if __name__ == "__main__":
    sys.exit(main())
