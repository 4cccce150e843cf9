"""torch.vmap of every op: the results of a loop over the mapped dimension, without torch's own loop and its warning."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import sluice
from common import DTYPES, TOLERANCE
from sluice import stages

pytestmark = pytest.mark.no_gpu
SIZE = 3


@pytest.fixture(autouse=True)
def _no_fallback() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def check(function: Callable[..., Any], in_dims: Any, *inputs: Any) -> None:
    """torch.vmap against a loop."""
    dims = in_dims if isinstance(in_dims, tuple) else (in_dims,) * len(inputs)

    def element(n: int) -> list[Any]:
        return [value if dim is None else value.select(dim, n) for value, dim in zip(inputs, dims, strict=True)]

    results = torch.vmap(function, in_dims)(*inputs)
    expected = [function(*element(n)) for n in range(SIZE)]
    if isinstance(results, torch.Tensor):
        results, expected = (results,), [(one,) for one in expected]
    for place, result in enumerate(results):
        stacked = torch.stack([one[place] for one in expected])
        tolerance = 4 * TOLERANCE[result.dtype]
        assert result.dtype == stacked.dtype
        torch.testing.assert_close(result, stacked, rtol=tolerance, atol=tolerance)


def random(*shape: int, dtype: torch.dtype = torch.float32, device: str = "cpu") -> torch.Tensor:
    return (torch.randn(shape, device=device) / 2).to(dtype)


# --- transform --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_transform(device: str, dtype: torch.dtype) -> None:
    x, y = random(SIZE, 4, 5, dtype=dtype, device=device), random(4, 1, dtype=dtype, device=device)

    def call(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return sluice.transform(x, stages.mul(y) | stages.silu() | stages.add(y, 0.5))

    check(call, (0, None), x, y)
    check(call, (2, None), random(4, 5, SIZE, dtype=dtype, device=device), y)
    check(call, (0, 0), x, random(SIZE, 4, 1, dtype=dtype, device=device))
    check(call, (0, 1), x, random(5, SIZE, dtype=dtype, device=device))
    check(call, (0, 0), x, random(SIZE, dtype=dtype, device=device))
    check(lambda x, y: tuple(sluice.transform(x, [stages.add(y), stages.relu()])), (1, None), x.movedim(0, 1), y)
    check(lambda x: sluice.transform(x, "tanh", dtype=torch.float64), 0, x)


# --- convolutions -----------------------------------------------------------------------------------------------------
OPS: dict[str, tuple[Callable[..., torch.Tensor], tuple[int, ...], int, dict[str, Any]]] = {
    "dense": (sluice.conv1d, (6, 4, 3), 6, {"padding": 1}),
    "groups": (sluice.conv1d, (6, 2, 3), 6, {"groups": 2, "stride": 2}),
    "depthwise": (sluice.conv1d, (4, 1, 3), 4, {"groups": 4, "padding": "same", "dilation": 2}),
    "uneven": (sluice.conv1d, (4, 1, 4), 4, {"groups": 4, "padding": "same"}),
    "transposed": (sluice.conv_transpose1d, (4, 5, 4), 5, {"stride": 2, "output_padding": 1}),
    "transposed_groups": (sluice.conv_transpose1d, (4, 3, 4), 6, {"groups": 2, "padding": 1}),
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", OPS)
def test_convolutions(device: str, name: str, dtype: torch.dtype) -> None:
    op, shape, outputs, options = OPS[name]

    def tensor(*sizes: int) -> torch.Tensor:
        return random(*sizes, dtype=dtype, device=device)

    def call(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor | None = None) -> torch.Tensor:
        return op(x, w, b, **options, pre="leaky_relu(0.1)", post="scale(2)|gelu")

    w, b = tensor(*shape), tensor(outputs)
    ws, bs = tensor(SIZE, *shape), tensor(SIZE, outputs)
    for batch in ((2,), ()):
        x = tensor(*batch, 4, 9)
        xs = tensor(SIZE, *batch, 4, 9)
        check(call, (0, None), xs, w)
        check(call, (0, None, None), xs, w, b)
        check(call, (len(batch) + 2, None, None), xs.movedim(0, -1), w, b)
        check(call, (None, 0), x, ws)
        check(call, (None, 3, None), x, ws.movedim(0, 3), b)
        check(call, (0, 0, 0), xs, ws, bs)
        check(call, (0, None, 1), xs, w, bs.T)


@pytest.mark.parametrize("batch", [(2,), ()])
def test_convolutions_with_tensors_in_their_chains(device: str, batch: tuple[int, ...]) -> None:
    def call(x: torch.Tensor, w: torch.Tensor, gain: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        return sluice.conv1d(x, w, padding=1, pre=stages.mul(gain), post=stages.add(residual) | stages.tanh())

    xs, w, gain = random(SIZE, *batch, 4, 9, device=device), random(5, 4, 3, device=device), random(4, 1, device=device)
    ws, gains = random(SIZE, 5, 4, 3, device=device), random(SIZE, 4, 1, device=device)
    for shape in ((*batch, 5, 9), (5, 1), (9,), (1,) * len(batch) + (5, 9)):
        own, residual = random(SIZE, *shape, device=device), random(*shape, device=device)
        check(call, (0, None, None, None), xs, w, gain, residual)
        check(call, (0, None, 0, 0), xs, w, gains, own)
        check(call, (0, None, None, len(shape)), xs, w, gain, own.movedim(0, -1))
        check(call, (0, 0, 0, 0), xs, ws, gains, own)
        check(call, (0, 0, None, None), xs, ws, gain, residual)


def test_filter2d(device: str) -> None:
    xs, column, row = random(SIZE, 2, 4, 7, 8, device=device), random(3, device=device), random(5, device=device)
    gain, kernel = random(4, 1, 1, device=device), random(4, 3, 3, device=device)

    def separable(x: torch.Tensor, column: torch.Tensor, row: torch.Tensor, gain: torch.Tensor) -> torch.Tensor:
        return sluice.filter2d(x, (column, row), post=stages.mul(gain))

    def depthwise(x: torch.Tensor, kernel: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        return sluice.filter2d(x, kernel, bias, pre="relu", stride=2, padding=(1, 1))

    check(separable, (0, None, None, None), xs, column, row, gain)
    check(separable, (4, None, None, 0), xs.movedim(0, 4), column, row, random(SIZE, 4, 1, 1, device=device))
    check(separable, (0, 0, 1, None), xs, random(SIZE, 3, device=device), random(5, SIZE, device=device), gain)
    check(separable, (None, 0, None, None), xs[0], random(SIZE, 3, device=device), row, gain)
    check(depthwise, (0, None), xs, kernel)
    check(depthwise, (0, 0), xs, random(SIZE, 4, 3, 3, device=device))
    check(depthwise, (0, None, 0), xs, kernel, random(SIZE, 4, device=device))


# --- causal convolutions ----------------------------------------------------------------------------------------------
def test_causal_conv1d(device: str) -> None:
    xs, w, b = random(SIZE, 2, 4, 9, device=device), random(4, 3, device=device), random(4, device=device)
    states = random(SIZE, 2, 4, 2, device=device)

    def call(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, states: torch.Tensor | None = None) -> Any:
        return sluice.causal_conv1d(
            x, w, b, activation="silu", initial_states=states, return_final_states=True, post=stages.scale(2.0)
        )

    check(call, (0, None, None), xs, w, b)
    check(call, (3, None, None, 0), xs.movedim(0, 3), w, b, states)
    check(call, (0, None, None, None), xs, w, b, states[0])
    check(call, (None, None, None, 0), xs[0], w, b, states)
    check(call, (0, 0, 1, 0), xs, random(SIZE, 4, 3, device=device), random(4, SIZE, device=device), states)
    gains = random(SIZE, 4, 1, device=device)
    check(lambda x, gain: sluice.causal_conv1d(x, w, post=stages.mul(gain)), (0, 0), xs, gains)


def test_sequences_and_caches(device: str) -> None:
    xs, w = random(SIZE, 1, 4, 9, device=device), random(4, 3, device=device)
    starts = torch.tensor([0, 2, 9], dtype=torch.int32, device=device)
    check(lambda x: sluice.causal_conv1d(x, w, cu_seqlens=starts), 0, xs)
    ids = torch.tensor([[0, 0, 0, 1, 1, 1, 1, 2, 2]], dtype=torch.int32, device=device)
    check(lambda x, ids: sluice.causal_conv1d(x, w, seq_idx=ids), (0, None), xs, ids)


def test_a_mapped_state_is_written(device: str) -> None:
    xs, w = random(SIZE, 2, 4, device=device), random(4, 3, device=device)
    states = random(SIZE, 2, 4, 2, device=device)
    mine, theirs = states.clone(), states.clone()
    result = torch.vmap(lambda x, state: sluice.causal_conv1d_update(x, state, w, None, "silu"))(xs, mine)
    expected = [sluice.causal_conv1d_update(xs[n], theirs[n], w, None, "silu") for n in range(SIZE)]
    assert torch.equal(result, torch.stack(expected))
    assert torch.equal(mine, theirs)
    with pytest.raises(ValueError, match="causal_conv1d_update: conv_state must be mapped by torch.vmap"):
        torch.vmap(lambda x: sluice.causal_conv1d_update(x, mine[0], w))(xs)


CHUNKS = {
    "causal_conv1d": ("state_cache", (6, 4, 3), 6, (2, 4, 1), {"stride": 2, "padding_mode": "replicate"}),
    "causal_conv_transpose1d": ("overlap_cache", (4, 5, 4), 5, (2, 5, 2), {"stride": 2}),
}


@pytest.mark.parametrize("op", CHUNKS)
def test_dense_causal_rows(device: str, op: str) -> None:
    """Rows without a cache; of causal_conv1d also with states, which are the caller's or the op's own memory."""
    _, shape, outputs, state, numbers = CHUNKS[op]
    x, w, b = random(2, 4, 10, device=device), random(*shape, device=device), random(outputs, device=device)
    xs, ws, bs = (random(SIZE, *one.shape, device=device) for one in (x, w, b))
    states = random(SIZE, *state, device=device)
    function = getattr(sluice, op)

    def call(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return function(x, w, b, pre="elu", post="scale(2)|gelu", **numbers)

    def with_states(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, states: torch.Tensor | None = None) -> Any:
        return function(x, w, b, initial_states=states, return_final_states=True, pre="elu", **numbers)

    for dims, tensors in (
        ((0, None, None), (xs, w, b)),
        ((3, None, None), (xs.movedim(0, 3), w, b)),
        ((None, 0, None), (x, ws, b)),
        ((None, None, 1), (x, w, bs.T)),
        ((0, 0, 0), (xs, ws, bs)),
    ):
        check(call, dims, *tensors)
        if op == "causal_conv1d":
            check(with_states, dims, *tensors)
            check(with_states, (*dims, 0), *tensors, states)
            check(with_states, (*dims, None), *tensors, states[0])
    if op == "causal_conv1d":
        final = torch.full_like(states, float("nan"))
        torch.vmap(lambda x, final: function(x, w, final_states_out=final, **numbers))(xs, final)
        assert torch.equal(final, xs[..., -1:])


@pytest.mark.parametrize("op", CHUNKS)
def test_a_mapped_cache_is_written(device: str, op: str) -> None:
    name, shape, outputs, state, numbers = CHUNKS[op]
    xs, w, b = random(SIZE, 2, 4, 10, device=device), random(*shape, device=device), random(outputs, device=device)
    cache, flags = random(SIZE, *state, device=device), torch.tensor([[True, False]] * SIZE, device=device)
    slots, function = torch.tensor([1, -1], device=device), getattr(sluice, op)

    def call(x: torch.Tensor, w: torch.Tensor, cache: torch.Tensor, flags: torch.Tensor, out: Any = None) -> Any:
        given = {name: cache, "has_initial_state": flags, "cache_indices": slots, "out": out}
        return function(x, w, b, pre="elu", post="silu", **numbers, **given)

    for ws, dim in ((w, None), (random(SIZE, *shape, device=device), 0)):
        mine, theirs = cache.clone(), cache.clone()
        result = torch.vmap(call, (0, dim, 0, 0))(xs, ws, mine, flags)
        each = [ws if dim is None else ws[n] for n in range(SIZE)]
        expected = torch.stack([call(xs[n], each[n], theirs[n], flags[n]) for n in range(SIZE)])
        assert torch.equal(result, expected)
        assert torch.equal(mine, theirs)
        mine, out = cache.clone().movedim(0, 2), torch.full_like(expected, float("nan"))
        torch.vmap(call, (0, dim, 2, 0, 0))(xs, ws, mine, flags, out)
        assert torch.equal(out, expected)
        assert torch.equal(mine.movedim(2, 0), theirs)
    before = mine.clone()
    with pytest.raises(ValueError, match=f"{op}_chunk: {name} must be mapped by torch.vmap, because mapped values"):
        torch.vmap(lambda x: call(x, w, mine[:, :, 0], flags[0]))(xs)
    with pytest.raises(ValueError, match=f"{op}_chunk: out must be mapped by torch.vmap, because mapped values"):
        torch.vmap(lambda x, cache: call(x, w, cache, flags[0], out[0]))(xs, mine.movedim(2, 0))
    assert torch.equal(mine, before)


# --- around -----------------------------------------------------------------------------------------------------------
def test_out(device: str) -> None:
    xs, w = random(SIZE, 2, 4, 9, device=device), random(5, 4, 3, device=device)
    out, expected = torch.full((SIZE, 2, 5, 7), float("nan"), device=device), sluice.conv1d(xs.flatten(0, 1), w)
    torch.vmap(lambda x, out: sluice.conv1d(x, w, out=out))(xs, out)
    torch.testing.assert_close(out, expected.view(out.shape))
    with pytest.raises(ValueError, match="conv1d: out must be mapped by torch.vmap"):
        torch.vmap(lambda x: sluice.conv1d(x, w, out=out[0]))(xs)


def test_shapes_that_an_op_refuses_are_refused(device: str) -> None:
    x, w = random(SIZE, 2, 2, 4, 9, device=device), random(5, 4, 3, device=device)
    for call, words in (
        (lambda x: sluice.conv1d(x, w), r"conv1d: input must have shape .* got \(2, 2, 4, 9\)"),
        (lambda x: sluice.conv1d(x[0, 0, 0], w), r"conv1d: input must have shape .* got \(9,\)"),
        (lambda x: sluice.causal_conv1d(x[0, 0], w[:4, 0]), r"causal_conv1d: x must have shape .* got \(4, 9\)"),
        (lambda x: sluice.filter2d(x[0, 0, 0], w[0]), "filter2d: image must have"),
    ):
        with pytest.raises(ValueError, match=words):
            torch.vmap(call)(x)
    with pytest.raises(ValueError, match="conv1d: an operand of a chain must not be batched by torch.vmap unless"):
        torch.vmap(lambda gain: sluice.conv1d(x[0, 0], w, post=stages.mul(gain)))(random(SIZE, 5, 1, device=device))


def test_levels(device: str) -> None:
    xs, ws = random(2, SIZE, 2, 4, 9, device=device), random(SIZE, 5, 4, 3, device=device)
    gains = random(2, 5, 1, device=device)

    def call(x: torch.Tensor, w: torch.Tensor, gain: torch.Tensor) -> torch.Tensor:
        return sluice.conv1d(x, w, post=stages.mul(gain))

    result = torch.vmap(torch.vmap(call, (0, 0, None)), (0, None, 0))(xs, ws, gains)
    for i in range(2):
        for j in range(SIZE):
            torch.testing.assert_close(result[i, j], call(xs[i, j], ws[j], gains[i]))
    result = torch.vmap(torch.vmap(call, (None, None, 0)), (0, None, None))(xs[:, 0], ws[0], gains)
    for i in range(2):
        for j in range(2):
            torch.testing.assert_close(result[i, j], call(xs[i, 0], ws[0], gains[j]))


def test_a_module_with_parameters_for_each_element(device: str) -> None:
    models = [sluice.nn.Conv1d(4, 4, 3, padding=1, groups=4, post=torch.nn.SiLU()).to(device) for _ in range(SIZE)]
    parameters, buffers = torch.func.stack_module_state(models)  # type: ignore[arg-type]
    xs = random(SIZE, 2, 4, 9, device=device)
    with torch.no_grad():
        result = torch.vmap(lambda p, b, x: torch.func.functional_call(models[0], (p, b), (x,)))(
            parameters, buffers, xs
        )
        torch.testing.assert_close(result, torch.stack([model(x) for model, x in zip(models, xs, strict=True)]))


def test_autocast(device: str) -> None:
    xs, w = random(SIZE, 2, 4, 9, device=device), random(5, 4, 3, device=device)
    with torch.autocast(device, torch.bfloat16):
        check(lambda x: sluice.conv1d(x, w, post="silu"), 0, xs)


def test_in_a_compiled_graph(device: str) -> None:
    xs, ws = random(SIZE, 2, 4, 9, device=device), random(SIZE, 5, 4, 3, device=device)

    def call(xs: torch.Tensor, ws: torch.Tensor) -> torch.Tensor:
        return torch.vmap(lambda x, w: sluice.conv1d(x, w, post="silu"))(xs, ws)

    torch._dynamo.reset()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled = torch.compile(call, backend="aot_eager", fullgraph=True)(xs, ws)
    torch.testing.assert_close(compiled, call(xs, ws))
