"""sluice.replace: what hooks do to a folded call, hooks of torch's tools, and times of registration."""

from __future__ import annotations

import copy
import functools
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrize, prune

from constructed_faults import marked
from constructed_models import LOG, Base, Step, assert_same_steps, depthwise, of_forward, some, undo, x_of
from constructed_steps import Doubled, backward, change, do, doubled, folded, given, hook, hooked, note, unhook

pytestmark = [pytest.mark.no_gpu, pytest.mark.filterwarnings("ignore:.*weight_norm.*")]


# --- what hooks are and do --------------------------------------------------------------------------------------------
class Scaling:
    """A hook with a state."""

    def __init__(self) -> None:
        self.factor = 2.0

    def __call__(self, module: Any, args: Any, result: Any) -> Any:
        self.factor += 1
        return result * self.factor


def once(module: Any, args: Any, result: Any) -> Any:
    """A hook that removes itself."""
    module._forward_hooks.clear()
    return result * 2


def chained(module: Any, args: Any, result: Any) -> Any:
    """A hook that adds another hook."""
    if len(module._forward_hooks) < 3:
        module.register_forward_hook(doubled)
    return result + 1


def swapping(model: Any, args: Any) -> None:
    model.act = nn.ELU() if isinstance(model.act, nn.LeakyReLU) else nn.LeakyReLU(0.3)


def standardized(conv: Any, args: Any) -> None:
    conv.weight.sub_(conv.weight.mean()).div_(conv.weight.std() + 1)


def noisy(module: Any, args: Any) -> Any:
    return (args[0] + torch.randn_like(args[0]),)


def keeping(features: list[torch.Tensor]) -> Callable[..., None]:
    return lambda module, args, result: features.append(result)


def second_raises(module: Any, args: Any, result: Any) -> None:
    module.count = getattr(module, "count", 0) + 1
    if module.count == 2:
        raise KeyError("the second call")


def again_inside(model: Any, args: Any, result: Any) -> Any:
    """A hook that calls the model."""
    return model(args[0][..., 1:]) if args[0].shape[-1] > 9 else result


SCALING, FACTORS = Scaling(), {"factor": 2.0}
# The part, the kind, the hook, and its options.
FUNCTIONS: dict[str, tuple[str, str, Any, dict[str, Any]]] = {
    "an object": ("conv", "register_forward_hook", SCALING, {}),
    "a bound method": ("act", "register_forward_hook", SCALING.__call__, {}),
    "a partial": ("conv", "register_forward_hook", functools.partial(lambda n, m, a, y: y * n, 3.0), {}),
    "one that reads a global": ("act", "register_forward_hook", lambda m, a, y: y * FACTORS["factor"], {}),
    "one that removes itself": ("conv", "register_forward_hook", once, {}),
    "one that adds another": ("act", "register_forward_hook", chained, {}),
    "one that swaps modules": ("", "register_forward_pre_hook", swapping, {}),
    "one that changes the weight": ("conv", "register_forward_pre_hook", standardized, {}),
    "noise": ("conv", "register_forward_pre_hook", noisy, {}),
    "one that raises later": ("act", "register_forward_hook", second_raises, {}),
    "one that calls the model": ("", "register_forward_hook", again_inside, {}),
    "another type": ("", "register_forward_hook", lambda m, a, y: {"y": y, "n": len(a)}, {}),
    "a float64": ("conv", "register_forward_hook", lambda m, a, y: y.double(), {}),
    "a view": ("conv", "register_forward_hook", lambda m, a, y: y[..., 1:], {}),
    "a wrong argument": ("conv", "register_forward_pre_hook", lambda m, a: (a[0], 3), {}),
    "no grad": ("conv", "register_forward_hook", torch.no_grad()(doubled), {}),
    "a printing one": ("conv", "register_forward_hook", lambda m, a, y: print(round(y.mean().item(), 4)), {}),
    "kwargs of a part": ("conv", "register_forward_pre_hook", lambda m, a, k: (a, {**k, "wrong": 1}), {
        "with_kwargs": True}),
    "always, of the model": ("", "register_forward_hook", note, {"always_call": True}),
    "always, of the convolution": ("conv", "register_forward_hook", note, {"always_call": True}),
}  # fmt: skip


@pytest.mark.parametrize("name", marked(some(FUNCTIONS), "functions as hooks"))
def test_functions_as_hooks(name: str) -> None:
    path, kind, function, options = FUNCTIONS[name]

    def reset(model: Any) -> None:
        SCALING.factor, FACTORS["factor"] = 2.0, 2.0

    add, remove = hook(path, kind, function, **options)
    late = lambda m: FACTORS.update(factor=5.0) or setattr(SCALING, "factor", 9.0)  # noqa: E731
    wrong = given(lambda: x_of(12)[:, :3])
    assert_same_steps(Base().eval(), (reset, 12, add, 12, late, 12, wrong, remove, 12, add, 9))


# --- hooks of torch's tools, and the times of registration ------------------------------------------------------------
def features(model: Any) -> Any:
    """What hooks keep of the parts' results, of which the activation writes into one."""
    found: list[torch.Tensor] = []
    handles = [part.register_forward_hook(keeping(found)) for part in (model.conv, model.act, model)]
    try:
        model(x_of(12)), model(x_of(9))
    finally:
        for handle in handles:
            handle.remove()
    return found


def with_global(kind: str, function: Any, **options: Any) -> Step:
    def step(model: Any) -> Any:
        handle = getattr(nn.modules.module, kind)(function, **options)
        try:
            return model(x_of(12)), model(x_of(9))
        finally:
            handle.remove()

    return step


def as_context(model: Any) -> Any:
    with model.conv.register_forward_hook(doubled):
        one = model(x_of(12))
    return one, model(x_of(12))


def copied(model: Any) -> Any:
    """Hooks of a copy, and of what it was copied from."""
    other = copy.deepcopy(model)
    other.conv.register_forward_hook(doubled)
    results = [other(x_of(12)), model(x_of(12))]
    third = pickle.loads(pickle.dumps(other))
    third.conv._forward_hooks.clear()
    return [*results, third(x_of(12)), other(x_of(12))]


def tensor_hooks(model: Any) -> Any:
    with torch.enable_grad():
        x = x_of(12).requires_grad_()
        y = model(x)
        y.register_hook(lambda g: g * 2)
        y.sum().backward()
    return x.grad


def checkpointed(model: Any) -> Any:
    with torch.enable_grad():
        x = x_of(12).requires_grad_()
        torch.utils.checkpoint.checkpoint(model, x, use_reentrant=False).sum().backward()
    return x.grad


def hooked_conv() -> nn.Module:
    torch.manual_seed(11)
    conv = depthwise()
    conv.register_forward_hook(doubled)
    return conv


def prepend(model: Any) -> None:
    hooked(model, model.conv, "register_forward_hook", lambda m, a, y: y + 1, prepend=True)


ADD, REMOVE = hook("conv", "register_forward_hook", doubled)
TIMES: dict[str, tuple[Step, ...]] = {
    "features": (12, features, 12),
    "features first": (features, 12, features),
    "features of an activation in place": (change("act", lambda: nn.LeakyReLU(0.2, inplace=True)), features, 12,
        features),
    "a global one before the first call": (with_global("register_module_forward_hook", doubled), 12),
    "a global one that changes results": (12, with_global("register_module_forward_hook", doubled), 12),
    "a global pre one": (12, with_global("register_module_forward_pre_hook", lambda m, a: (a[0] + 1, *a[1:])), 12),
    "a global one of registered modules": (12, with_global("register_module_module_registration_hook",
        lambda m, n, part: LOG.append(n)), 12),
    "a global one of registered buffers": (12, with_global("register_module_buffer_registration_hook",
        lambda m, n, part: LOG.append(n)), 12),
    "a global backward one": (12, with_global("register_module_full_backward_hook", note), backward, 12),
    "a context": (12, as_context, 12),
    "a context first": (as_context, 12, as_context),
    "copies": (12, copied, 12, ADD, copied),
    "tensor hooks": (12, tensor_hooks, 12),
    "a checkpoint": (12, ADD, checkpointed, 12),
    "prepended later": (ADD, 12, prepend, 12, unhook, unhook, 12),
    "one in training, none in inference": (ADD, backward, REMOVE, 12, ADD, backward, 12),
    "on a module that comes": (12, change("conv", hooked_conv), 12, lambda m: m.conv._forward_hooks.clear(), 12),
    "on a module that goes and comes": (12, ADD, lambda m: setattr(m, "spare", m.conv), change("conv", depthwise), 12,
        lambda m: setattr(m, "conv", m.spare), 12),
    "before an undo": (12, ADD, undo, 12, REMOVE, 12),
    "behind an undo": (ADD, 12, REMOVE, undo, 12, ADD, 12),
    "pruning": (12, do(lambda m: prune.l1_unstructured(m.conv, "weight", 0.5)), 12, do(lambda m: m.conv.weight_orig.
        mul_(2)), 12, do(lambda m: prune.remove(m.conv, "weight")), 12),
    "pruning first": (do(lambda m: prune.ln_structured(m.conv, "weight", 0.5, n=2, dim=0)), 12, do(
        lambda m: m.conv.weight_mask.fill_(1)), 12, do(lambda m: prune.remove(m.conv, "weight")), 12),
    "global pruning": (12, do(lambda m: prune.global_unstructured([(m.conv, "weight"), (m.other, "weight")],
        prune.L1Unstructured, amount=3)), 12, 9),
    "state_dict hooks": (12, lambda m: m.register_load_state_dict_post_hook(lambda s, keys: s.conv.weight.mul_(2)
        and None) and None, do(lambda m: m.load_state_dict(m.state_dict())), 12),
    "a hook of a hook's module": (lambda m: hooked(m, m.conv, "register_forward_hook", lambda c, a, y: m.act(y)), 12,
        hook("act", "register_forward_hook", doubled)[0], 12, unhook, 12),
    "grad of an input's hook": (12, lambda m: hooked(m, m.conv, "register_full_backward_hook", lambda c, i, o: (
        i[0] * 2,)), backward, unhook, backward, 12),
    "a backward hook before the first call": (lambda m: hooked(m, m.conv, "register_full_backward_hook", note),
        backward, 12, unhook, 12, backward),
}  # fmt: skip


@pytest.mark.parametrize("name", marked(some(TIMES), "times of hooks"))
def test_times_of_hooks(name: str) -> None:
    assert_same_steps(Base().eval(), TIMES[name])


@pytest.mark.parametrize("kind", ["scale", "buffer", "second", "other"])
def test_parametrizations_that_change(kind: str) -> None:
    """Attributes and buffers of a parametrization, a second parametrization, and another in the first's place."""

    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = 2.0
            self.register_buffer("offset", torch.ones(1))

        def forward(self, weight: torch.Tensor) -> torch.Tensor:
            return weight * self.scale + self.offset

    def make() -> nn.Module:
        model = of_forward(lambda s, x: F.relu(folded(s, x)))
        parametrize.register_parametrization(model.conv, "weight", Scaled())
        return model.eval()

    changes: dict[str, Step] = {
        "scale": change("conv.parametrizations.weight.0.scale", lambda: 5.0),
        "buffer": do(lambda m: m.conv.parametrizations.weight[0].offset.add_(3)),
        "second": do(lambda m: parametrize.register_parametrization(m.conv, "weight", Doubled())),
        "other": do(lambda m: m.conv.parametrizations.weight.__setitem__(0, Doubled())),
    }
    assert_same_steps(make(), (12, changes[kind], 12, undo, 9), make())
