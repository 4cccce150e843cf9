"""Which functions and methods leave time as it is, and what others do to the dimensions of a tensor."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch

from .trace import bound, function_name, is_in_place
from .values import Constant, Length, NoStreamError, Other, Parts, Shape, Time, Unknown, Value

# Functions whose results depend on the same position of their inputs.
_POINTWISE = """
    abs add addcdiv addcmul alpha_dropout atan atan2 bfloat16 ceil celu clamp clamp_max clamp_min clip clone
    contiguous cos cosh detach div divide double dropout elu eq erf exp exp2 expm1 feature_dropout float floor
    full_like ge gelu gt half hardsigmoid hardswish hardtanh le leaky_relu lerp log log10
    log1p log2 logical_and logical_not logical_or logsigmoid lt masked_fill maximum minimum mish mul multiply
    nan_to_num ne neg negative ones_like positive pow prelu reciprocal relu relu6 round rsqrt rsub selu sigmoid sign
    silu sin sinh softplus softsign sqrt square sub subtract tan tanh tanhshrink threshold to true_divide truediv type
    type_as where xlogy zeros_like"""
# Functions that reduce dimensions, and functions along a dimension, which must not be time.
_REDUCTIONS = "all amax amin any argmax argmin logsumexp max mean min norm prod std sum var"
_ALONG = "cumprod cumsum flip log_softmax normalize repeat_interleave roll softmax softmin sort"
# Their positional arguments around `dim`.
_BEFORE_DIM = {"norm": ("p",), "normalize": ("p",), "repeat_interleave": ("repeats",), "roll": ("shifts",)}
_BEHIND_DIM = {"std": ("unbiased",), "var": ("unbiased",)}
POINTWISE, REDUCTIONS, ALONG = (frozenset(names.split()) for names in (_POINTWISE, _REDUCTIONS, _ALONG))
# Pointwise functions that may return their input, and other functions that never do.
_SAME = """
    alpha_dropout bfloat16 contiguous detach double dropout feature_dropout float half positive to type type_as"""
_OTHER = "batch_norm bmm cat concat concatenate glu layer_norm linear matmul repeat rms_norm stack tile"
NEW = (POINTWISE - frozenset(_SAME.split())) | REDUCTIONS | ALONG | frozenset(_OTHER.split())
# Functions that move dimensions.
PERMUTED = frozenset(["permute", "transpose", "swapaxes", "swapdims", "movedim", "moveaxis", "t"])
SQUEEZED = frozenset(["squeeze", "unsqueeze"])
REFUSED = {
    "interpolate": "interpolates over time",
    "upsample": "interpolates over time",
    "grid_sample": "interpolates over time",
    "group_norm": "normalises over time",
    "instance_norm": "normalises over time",
    "scaled_dot_product_attention": "attends over time",
    "fft_fft": "transforms over time",
    "fft_rfft": "transforms over time",
    "stft": "transforms over time",
    "istft": "transforms over time",
    "max_pool1d": "pools over time",
    "avg_pool1d": "pools over time",
    "adaptive_avg_pool1d": "pools over time",
    "adaptive_max_pool1d": "pools over time",
    "reshape": "changes the shape: permute, transpose, squeeze and unsqueeze keep time where it can be followed",
    "view": "changes the shape: permute, transpose, squeeze and unsqueeze keep time where it can be followed",
    "flatten": "changes the shape: permute, transpose, squeeze and unsqueeze keep time where it can be followed",
}


def check_writes(node: torch.fx.Node) -> None:
    """Raises if the node changes a tensor in a way that no rule follows."""
    name = function_name(node)
    if name == "setitem":
        raise NoStreamError("assigns to a part of a tensor")
    if name == "setattr":
        raise NoStreamError(f"sets {node.args[1]!r} of a tensor")
    if node.kwargs.get("out") is not None:
        raise NoStreamError("writes into another tensor")
    if not is_in_place(node, None):
        return
    if name in PERMUTED | SQUEEZED:
        raise NoStreamError("changes a tensor's shape in place")
    if isinstance(node.target, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
        raise NoStreamError("changes its arguments in place")


def place(dim: Any, rank: int) -> int:
    """A dimension from the front."""
    if not isinstance(dim, int):
        raise NoStreamError(f"takes a dimension that is not a number, {dim!r}")
    return dim % rank


def together(values: list[Time]) -> Time:
    """The result of an op on values of the same times, which broadcast."""
    first = max(values, key=lambda value: value.rank)
    for value in values:
        if value.rank - value.dim != first.rank - first.dim:
            raise NoStreamError("takes tensors whose time is in other dimensions")
        if value.rank - value.batch != first.rank - first.batch:
            raise NoStreamError("takes tensors whose batch is in other dimensions")
        if not value.is_beside(first):
            raise NoStreamError("takes tensors of other times, of another rate or padding")
    return dataclasses.replace(first, origins=tuple(dict.fromkeys(o for value in values for o in value.origins)))


def check_constants(values: list[Value], like: Time) -> None:
    """Raises if a constant tensor has positions of its own."""
    for value in values:
        if not isinstance(value, Constant) or not isinstance(value.value, torch.Tensor):
            continue
        tensor = value.value
        for behind, what in ((like.rank - like.dim, "positions"), (like.rank - like.batch, "rows of a batch")):
            if tensor.dim() >= behind and tensor.shape[-behind] != 1:
                raise NoStreamError(f"takes a constant of {tensor.shape[-behind]} {what}")
        if tensor.dim() > like.rank:
            raise NoStreamError("takes a constant of more dimensions")


def pointwise(values: list[Value]) -> Time:
    """The result of an op whose positions do not see each other."""
    times = [value for value in values if isinstance(value, Time)]
    if not times:
        raise NoStreamError("takes what has no time axis, but depends on the input's shape")
    result = together(times)
    if result.is_padded:
        raise NoStreamError("has padded values, which only a convolution may take")
    check_constants(values, result)
    if any(isinstance(value, (Length, Shape)) for value in values):
        raise NoStreamError("takes the length, which a stream does not know")
    return result


def reduced(node: torch.fx.Node, x: Time) -> Time | Parts:
    """A reduction over some dimensions."""
    name = function_name(node)
    given = bound(node, "input", *_BEFORE_DIM.get(name, ()), "dim", *_BEHIND_DIM.get(name, ()), "keepdim")
    dims = given.get("dim")
    if isinstance(dims, int) and not isinstance(dims, bool):
        dims = (dims,)
    if not isinstance(dims, (tuple, list)) or len(dims) == 0:
        raise NoStreamError(f"takes the {name} over time")
    places = {place(d, x.rank) for d in dims}
    x.check_apart(places, f"takes the {name} over time", f"takes the {name} over the batch")
    if not given.get("keepdim", False):
        x = x.moved(x.rank - len(places), lambda dim: dim - sum(p < dim for p in places))
    return Parts(x) if name in ("max", "min") else x


def per_channel(node: torch.fx.Node, x: Time, value_of: Callable[[Any], Value]) -> Time:
    """Functions prelu and batch_norm, whose tensors have a value for each channel, in dimension 1."""
    if function_name(node) == "prelu":
        given = bound(node, "input", "weight")
    else:
        given = bound(node, "input", "running_mean", "running_var", "weight", "bias", "training")
        if given.get("training") or given.get("running_mean") is None:
            raise NoStreamError("is in training mode, in which it normalises over time")
    tensors = [value_of(given[name]) for name in given if name in ("running_mean", "running_var", "weight", "bias")]
    known = [value.value for value in tensors if isinstance(value, Constant)]
    if len(known) < len(tensors):
        raise NoStreamError("takes a weight that depends on the input")
    if any(tensor is not None and tensor.numel() != 1 for tensor in known):
        x.check_apart([1], "works along time", "works along the batch")
    return pointwise([x])


def is_of_two(node: torch.fx.Node) -> bool:
    """Whether the node is a maximum or a minimum of two tensors."""
    is_pair = len(node.args) == 2 and isinstance(node.args[1], torch.fx.Node)
    return function_name(node) in ("max", "min") and is_pair


def along(node: torch.fx.Node, x: Time) -> Time | Parts:
    """A function along a dimension, or several."""
    name = function_name(node)
    given = bound(node, "input", *_BEFORE_DIM.get(name, ()), "dim")
    dims = given.get("dims", given.get("dim"))
    if name == "flip" and len(node.args) > 2:
        dims = node.args[1:]
    dims = dims if isinstance(dims, (tuple, list)) else [-1 if dims is None and name == "sort" else dims]
    if len(dims) == 0 or None in dims:
        raise NoStreamError(f"takes {name} along time")
    places = [place(d, x.rank) for d in dims]
    x.check_apart(places, f"takes {name} along time", f"takes {name} along the batch")
    return Parts(x) if name == "sort" else x


def permuted(node: torch.fx.Node, x: Time) -> Time:
    """permute, transpose, swapaxes, movedim and t."""
    name = function_name(node)
    if name == "permute":
        order = node.args[1] if len(node.args) == 2 else node.args[1:]
        order = node.kwargs.get("dims", order)
        if not isinstance(order, (tuple, list)):
            raise NoStreamError("permutes in an order that is not known")
        return x.moved(x.rank, [place(d, x.rank) for d in order].index)
    if name == "t":
        return x.moved(x.rank, lambda dim: 1 - dim if x.rank == 2 else dim)
    given = bound(node, "input", "first", "second")
    first, second = (
        place(next((given[n] for n in known if n in given), None), x.rank)
        for known in (("first", "dim0", "source"), ("second", "dim1", "destination"))
    )
    if name in ("movedim", "moveaxis"):
        order = [d for d in range(x.rank) if d != first]
        order.insert(second, first)
        return x.moved(x.rank, order.index)
    return x.moved(x.rank, lambda dim: second if dim == first else first if dim == second else dim)


def squeezed(node: torch.fx.Node, x: Time) -> Time:
    """Squeeze of a dimension, and unsqueeze."""
    dim = bound(node, "input", "dim").get("dim")
    if function_name(node) == "unsqueeze":
        spot = place(dim, x.rank + 1)
        return x.moved(x.rank + 1, lambda dim: dim + (spot <= dim))
    if dim is None:
        raise NoStreamError("squeezes all dimensions")
    spot = place(dim, x.rank)
    x.check_apart([spot], "squeezes time", "squeezes the batch")
    return x.moved(x.rank - 1, lambda dim: dim - (spot < dim))


def joined(node: torch.fx.Node, parts: list[Value]) -> Time:
    """Cat and stack along another dimension than time."""
    times = [part for part in parts if isinstance(part, Time)]
    if len(times) != len(parts):
        raise NoStreamError("joins tensors with others that have no time")
    x, dim = pointwise(list(times)), bound(node, "tensors", "dim").get("dim", 0)
    if function_name(node) == "stack":
        spot = place(dim, x.rank + 1)
        return x.moved(x.rank + 1, lambda dim: dim + (spot <= dim))
    x.check_apart([place(dim, x.rank)], "joins tensors along time", "joins tensors along the batch")
    return x


def parted(node: torch.fx.Node, x: Time) -> Parts:
    """chunk, split, tensor_split and unbind along another dimension than time."""
    dim = place(bound(node, "input", "sizes", "dim").get("dim", 0), x.rank)
    if function_name(node) == "unbind":
        dim = place(bound(node, "input", "dim").get("dim", 0), x.rank)
    name = function_name(node)
    x.check_apart([dim], f"takes {name} along time", f"takes {name} along the batch")
    return Parts(x.moved(x.rank - 1, lambda own: own - (dim < own)) if name == "unbind" else x)


def glued(node: torch.fx.Node, x: Time) -> Time:
    """Glu along another dimension than time."""
    dim = place(bound(node, "input", "dim").get("dim", -1), x.rank)
    x.check_apart([dim], "takes glu along time", "takes glu along the batch")
    return x


def is_lost(values: list[Value]) -> bool:
    """Whether a value comes from what is refused."""
    return any(isinstance(value, Unknown) for value in values)


def are_constant(values: list[Value]) -> bool:
    """Whether no value depends on the input."""
    return all(isinstance(value, (Constant, Other)) for value in values)
