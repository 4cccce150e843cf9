"""`python -m sluice {info,demo,bench,plan,trace}`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from .chain import Chain

_DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16, "fp64": torch.float64}


def _info(arguments: list[str]) -> int:
    from . import info

    argparse.ArgumentParser(prog="python -m sluice info", description=_COMMANDS["info"][1]).parse_args(arguments)
    print(json.dumps(info(), indent=2))
    return 0


def _demo(arguments: list[str]) -> int:
    try:
        from .demo import main
    except ModuleNotFoundError as error:
        if error.name != "sluice.demo":
            raise
        print("error: demo: a wheel has no demo; `make demo` runs it in the source tree", file=sys.stderr)
        return 2
    return main(arguments)


def _bench(arguments: list[str]) -> int:
    from .bench import main

    return main(arguments)


def _plan(arguments: list[str]) -> int:
    """Prints the plan for a shape, for the current GPU or an H200."""
    from . import plan
    from ._registry import OPS

    parser = argparse.ArgumentParser(prog="python -m sluice plan", description=_plan.__doc__)
    parser.add_argument("op", choices=OPS)
    parser.add_argument("--shape", type=_shape, required=True, help="the input's shape, as 8,5120,2048")
    parser.add_argument("--dtype", choices=_DTYPES, default="bf16")
    parser.add_argument("--layout", choices=["cf", "cl"], default="cf", help="channels-first or channels-last")
    parser.add_argument("--taps", type=_number, default=4, help="of filter2d on each side")
    parser.add_argument("--channels-out", type=_number, help="of a dense convolution; without it, depthwise")
    parser.add_argument("--stride", type=int)
    parser.add_argument("--padding", type=_padding, help="same, valid, a number, or for filter2d two: 1,2")
    parser.add_argument("--dilation", type=int)
    parser.add_argument("--chain", type=_chain, help='after the op, such as "scale(1.5)|silu"')
    parser.add_argument("--pre", type=_chain, help="before the op")
    parser.add_argument("--result-dtype", choices=_DTYPES)
    parser.add_argument("--schedule")
    parser.add_argument("--depth", type=int)
    given = vars(parser.parse_args(arguments))
    name, shape, dtype, layout, taps, channels_out, chain, result_dtype = map(
        given.pop, ("op", "shape", "dtype", "layout", "taps", "channels_out", "chain", "result_dtype")
    )
    op = OPS[name]
    options = {option: value for option, value in given.items() if value is not None}
    if result_dtype is not None:
        options["dtype"] = _DTYPES[result_dtype]
    if chain is not None:
        options[op.chain] = chain
    try:
        x = torch.empty(shape, dtype=_DTYPES[dtype], device="meta")
        if layout == "cl" and len(shape) > 2:
            channel = len(shape) + op.channel
            x = x.movedim(channel, -1).contiguous().movedim(-1, channel)
        channels = shape[-2] if len(shape) > 1 else 1
        weight = op.weight(channels, taps, channels_out)
        if op.has_groups and channels_out is None:
            options["groups"] = channels
        made = plan(name, x, *([] if weight is None else [x.new_empty(weight)]), **options)
    except (RuntimeError, TypeError, ValueError) as error:
        print(f"error: {str(error).splitlines()[0]}", file=sys.stderr)
        return 2
    for field, value in vars(made).items():
        print(f"{field:16} {value}")
    return 0


def _number(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"must be a number of at least 0, got {text!r}")
    return int(text)


def _shape(text: str) -> tuple[int, ...]:
    return tuple(map(_number, text.split(",")))


def _padding(text: str) -> object:
    if text.isalpha():
        return text
    numbers = _shape(text)
    return numbers if len(numbers) > 1 else numbers[0]


def _chain(text: str) -> Chain:
    """A chain of stages without tensors, as the raw ops write it."""
    from . import stages
    from .chain import Chain

    if "$" in text:
        raise argparse.ArgumentTypeError("must be a chain without tensors, got one with $")
    chain = Chain()
    for part in text.split("|"):
        name, _, values = part.strip().removesuffix(")").partition("(")
        words = [word.strip() for word in values.split(",") if word.strip()]
        if name not in stages.__all__ or name in ("Chain", "cpp"):
            raise argparse.ArgumentTypeError(f"must be a chain of stages such as scale(1.5)|silu, got {part!r}")
        try:
            chain |= getattr(stages, name)(*map(_value, words))
        except (TypeError, ValueError) as error:
            raise argparse.ArgumentTypeError(str(error)) from None
    return chain


def _value(word: str) -> object:
    """A stage's argument: a number, a dtype or a word."""
    try:
        return float(word)
    except ValueError:
        dtype = getattr(torch, word, word)
        return dtype if isinstance(dtype, torch.dtype) else word


def _trace(arguments: list[str]) -> int:
    from .stream.command import main

    return main(arguments)


# name -> (its function, its purpose)
_COMMANDS: dict[str, tuple[Callable[[list[str]], int], str]] = {
    "info": (_info, "print versions, devices and whether the CUDA kernels are loaded, as JSON"),
    "demo": (_demo, "run the main job on a recording, in the source tree, check it against torch and time both"),
    "bench": (_bench, "time the ops beside their peers and their floor, on a GPU and in a checkout"),
    "plan": (_plan, "print how a call would run on a GPU and why, without one"),
    "trace": (_trace, "stream a standard job through a device, and draw what overlapped"),
}


def main(arguments: list[str] | None = None) -> int:
    """Runs a command and returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m sluice", epilog="python -m sluice COMMAND --help lists the arguments of one."
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, (_, purpose) in _COMMANDS.items():
        commands.add_parser(name, help=purpose, add_help=False)
    words = sys.argv[1:] if arguments is None else arguments
    given = parser.parse_args(words[:1] or ["--help"])
    return _COMMANDS[given.command][0](words[1:])


if __name__ == "__main__":
    sys.exit(main())
