"""BatchNorm1d in eval mode, `x * scale + shift` for each channel: in a convolution's weight, or two stages.

    convolution(x, weight, bias) -> norm        where torch's kernel sums: convolution(x, weight * scale, ...)
    x -> norm                                   else: x -> mul(scale) -> add(shift), for the pass

Scale and shift are computed of parameters alone, so they are kept until one changes.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.fx import Graph, Node
from torch.nn.modules.batchnorm import _BatchNorm

from .constants import constants_of
from .convolution import call, is_convolution, read
from .effects import erase_unused
from .nodes import aten, fake_value, readers
from .policy import Policy

# The norm's arguments by op: weight, bias, mean, variance, training, epsilon.
_ARGUMENTS: dict[Any, tuple[int, int, int, int, int | None, int]] = {
    aten._native_batch_norm_legit_no_training.default: (1, 2, 3, 4, None, 6),
    aten.native_batch_norm.default: (1, 2, 3, 4, 5, 7),
    aten.cudnn_batch_norm.default: (1, 2, 3, 4, 5, 7),
    aten.batch_norm.default: (1, 2, 3, 4, 5, 7),
}


def is_counted(module: torch.nn.Module) -> bool:
    """Whether a module is a norm of torch's that counts the batches that change its statistics."""
    if not isinstance(module, _BatchNorm) or type(module).forward is not _BatchNorm.forward:
        return False
    return all(module._buffers.get(name) is not None for name in ("running_mean", "num_batches_tracked"))


def unfold_batch_norms(
    graph: Graph, parameters: set[Node], counted: set[Node], policy: Policy
) -> tuple[list[Node], int]:
    """Writes norms as products and sums.

    Args:
        graph: in aten ops, with fake values.
        parameters: its inputs that are parameters or buffers.
        counted: running means of norms that count their batches.
        policy: which convolutions stay torch's.

    Returns:
        the running means of the norms, and the number of norms that went into a convolution's weight.
    """
    decided, means, count = {*constants_of(graph, parameters), *parameters}, list[Node](), 0
    for node in list(graph.nodes):
        result = _result(node)
        if result is None or not _is_affine(node, decided) or (mean := _mean(node)) not in counted:
            continue
        means.append(mean)
        x = node.args[0]
        assert isinstance(x, Node)
        with graph.inserting_before(node):
            scale, shift = _scale_and_shift(graph, node)
            if _takes_norm(x, decided, policy):
                new = _in_weight(graph, x, scale, shift)
                count += 1
            else:
                new = _as_stages(graph, x, scale, shift)
        result.replace_all_uses_with(new)
        erase_unused([*node.users] or [node])  # readers of x decide what is folded
    return means, count


def _result(node: Node) -> Node | None:
    """The normalised values of a norm."""
    if node.op != "call_function" or node.target not in _ARGUMENTS:
        return None
    if node.target is aten.batch_norm.default:
        return node
    found = [user for user in node.users if user.target is operator.getitem and user.args[1] == 0]
    return found[0] if len(found) == 1 else None


def _mean(node: Node) -> Any:
    return node.args[_ARGUMENTS[node.target][2]]


def _is_affine(node: Node, decided: set[Node]) -> bool:
    """Whether parameters decide the factors of a norm of sequences, which it does not change."""
    *factors, training, _ = _ARGUMENTS[node.target]
    x, result = fake_value(node.args[0]), _result(node)
    tensors = [node.args[place] for place in factors]
    assert result is not None
    expected = fake_value(result)
    if x is None or x.dim() != 3 or expected is None or x.dtype != expected.dtype or not x.dtype.is_floating_point:
        return False
    if training is not None and node.args[training] is not False:
        return False
    mean, variance = tensors[2:]
    return mean is not None and variance is not None and all(one is None or one in decided for one in tensors)


def _scale_and_shift(graph: Graph, node: Node) -> tuple[Node, Node]:
    """The factors of each channel in at least float32."""
    x = fake_value(node.args[0])
    assert x is not None
    dtype = torch.promote_types(x.dtype, torch.float32)
    *places, _, epsilon = _ARGUMENTS[node.target]
    weight, bias, mean, variance = (
        None if node.args[place] is None else call(graph, aten._to_copy.default, node.args[place], dtype=dtype)
        for place in places
    )
    scale = call(graph, aten.rsqrt.default, call(graph, aten.add.Tensor, variance, node.args[epsilon]))
    if weight is not None:
        scale = call(graph, aten.mul.Tensor, scale, weight)
    shift = call(graph, aten.neg.default, call(graph, aten.mul.Tensor, mean, scale))
    return scale, shift if bias is None else call(graph, aten.add.Tensor, shift, bias)


def _takes_norm(x: Node, decided: set[Node], policy: Policy) -> bool:
    """Whether x is a convolution that torch's kernel sums, which the norm alone reads, and whose weight stays exact."""
    value = fake_value(x)
    if not is_convolution(x) or x.target is not aten.convolution.default or len(readers(x)) != 1 or value is None:
        return False
    if value.dtype not in (torch.float32, torch.float64) or x.args[1] not in decided:
        return False
    bias, is_transposed, groups = x.args[2], x.args[6], x.args[8]
    if (bias is not None and bias not in decided) or (is_transposed and groups != 1):
        return False
    convolution = read(x, policy.has_guard)
    return convolution.refusal is None and policy.why_left(convolution, []) is not None


def _in_weight(graph: Graph, x: Node, scale: Node, shift: Node) -> Node:
    """The convolution with the norm in its weight and bias."""
    source, weight, bias, *others = x.args
    is_transposed = x.args[6]
    factor = call(graph, aten.unsqueeze.default, scale, -1)
    if not is_transposed:
        factor = call(graph, aten.unsqueeze.default, factor, -1)
    scaled = call(graph, aten.mul.Tensor, weight, factor)
    if bias is not None:
        shift = call(graph, aten.add.Tensor, call(graph, aten.mul.Tensor, bias, scale), shift)
    node = graph.call_function(x.target, (source, scaled, shift, *others))  # type: ignore[arg-type]
    node.meta.update(x.meta)
    return node


def _as_stages(graph: Graph, x: Node, scale: Node, shift: Node) -> Node:
    """The norm as a product and a sum, which round once."""
    value = fake_value(x)
    assert value is not None
    product = call(graph, aten.mul.Tensor, x, call(graph, aten.unsqueeze.default, scale, -1))
    result = call(graph, aten.add.Tensor, product, call(graph, aten.unsqueeze.default, shift, -1))
    result_dtype = fake_value(result)
    assert result_dtype is not None
    return (
        result if result_dtype.dtype == value.dtype else call(graph, aten._to_copy.default, result, dtype=value.dtype)
    )
