"""`plan` takes a call's arguments: it answers for that call, or refuses it in the same words."""

from __future__ import annotations

import random

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import sluice
from common import DTYPES, SCHEDULES
from planned_calls import DEVICES, Call, check, meta
from sluice import _call, stages
from sluice.__main__ import main
from sluice._modes import call_mode
from sluice.plan import H200, Device, Plan, current_device

pytestmark = pytest.mark.no_gpu
EXTENTS = [0, 0, 1, 1, 2, 3, 4, 6, 8, 64, 300]
NUMBERS = [
    *EXTENTS,
    -1,
    2**31,
    2**40,
    2**62,
    2**70,
    -(2**63),
    True,
    1.5,
    None,
    "same",
    "valid",
    "full",
    (1,),
    (2, 0),
    [],
    {},
]


def random_tensor(pick: random.Random) -> object:
    if pick.random() < 0.03:
        return pick.choice([None, 3, "x", [1.0], torch.zeros(3).to_sparse()])
    x = meta(*(pick.choice(EXTENTS) for _ in range(pick.randint(0, 5))), dtype=pick.choice([*DTYPES, torch.int32]))
    return x.transpose(-1, -2) if x.dim() > 1 and pick.random() < 0.3 else x


def random_device(pick: random.Random) -> object:
    if pick.random() < 0.9:
        return pick.choice([*DEVICES.values(), None])
    numbers = [pick.choice([0, -1, 1, 90, 1 << 20, 2**40, 1.5, None]) for _ in range(5)]
    return pick.choice([Device(*numbers), "cuda", 0])


def random_call(pick: random.Random) -> Call:
    convolutions = ["conv1d", "conv1d", "conv_transpose1d", "conv_transpose1d", "causal_conv1d"]
    dense = ["causal_conv_transpose1d", "dense causal_conv1d"]
    op = pick.choice(["transform", *convolutions, *dense, "filter2d", "filter2d", "fft"])
    chains = [None, stages.silu(), stages.add(meta(3)), stages.Chain(), "silu", [stages.relu()], 1]
    numbers = [n for n in NUMBERS if pick.random() < 0.3] or [1]
    x = random_tensor(pick)
    dtype = x.dtype if isinstance(x, torch.Tensor) and pick.random() < 0.95 else torch.bfloat16
    options: dict[str, object] = {}
    for name, values in {
        "schedule": ["auto", *SCHEDULES, "fastest", None, 1],
        "depth": [None, 1, 2, 8, 9, 0, -1, "x", 1.5],
        "post": chains,
        "pre": chains,
        "dtype": [None, torch.float16, torch.int64, "x"],
        "outt": [None],
    }.items():
        unknown = {"transform": ["post", "pre"], "causal_conv1d": ["pre", "dtype"]}.get(op, []) + ["outt"]
        if pick.random() < (0.01 if name in unknown else 0.2):
            options[name] = pick.choice(values)
    if op == "transform":
        return op, (x, pick.choice(chains)), options
    if op == "causal_conv1d":
        options["activation"] = pick.choice([None, "silu", "gelu", True])
        w = (
            meta(x.shape[1], pick.choice(EXTENTS), dtype=dtype)
            if isinstance(x, torch.Tensor) and x.dim() == 3
            else None
        )
        return op, (x, pick.choice([w, random_tensor(pick)])), options
    if op == "filter2d":
        vectors = (meta(pick.choice(EXTENTS), dtype=dtype), meta(pick.choice(EXTENTS), dtype=dtype))
        kernel = pick.choice(
            [
                random_tensor(pick),
                meta(3, 3, dtype=dtype),
                meta(pick.choice(EXTENTS), 5, dtype=dtype),
                vectors,
                vectors[:1],
            ]
        )
        padding = pick.choice(["same", "valid", "full", None, (pick.choice(numbers), pick.choice(numbers)), [1]])
        return op, (x, kernel, None, padding), options
    groups = pick.choice([1, 1, 2, 4, 0, *numbers])
    if isinstance(x, torch.Tensor) and x.dim() in (2, 3) and pick.random() < 0.7:
        groups = pick.choice([groups, x.shape[-2]])
        fit = x.shape[-2] // groups if isinstance(groups, int) and groups > 0 else 1
        sizes = (x.shape[-2], pick.choice(EXTENTS)) if "transpose" in op else (pick.choice(EXTENTS), fit)
        w: object = meta(*sizes, pick.choice(EXTENTS), dtype=dtype)
    else:
        w = random_tensor(pick)
    if "causal" in op:
        names = {"stride": [1, 2, *numbers], "dilation": [1, 1, *numbers], "groups": [groups], "state": [None]}
        names |= {"padding_mode": ["zeros", "replicate", "same"]} if op == "dense causal_conv1d" else {}
        options |= {name: pick.choice(kind) for name, kind in names.items() if pick.random() < 0.9 and name != "state"}
        return op.removeprefix("dense "), (x, w), options
    if op == "conv_transpose1d":
        spread = [pick.choice([0, 0, 1, *numbers]) for _ in range(2)]
        return op, (x, w, None, pick.choice([1, 2, *numbers]), *spread, groups, pick.choice([1, 1, *numbers])), options
    return op, (x, w, None, *(pick.choice([1, 1, *numbers]) for _ in range(3)), groups), options


@pytest.mark.parametrize("seed", range(8))
def test_whatever_it_is_asked_a_plan_is_made_or_refused(seed: int) -> None:
    pick = random.Random(seed)
    made = refused = 0
    for _ in range(3000):
        op, arguments, options = random_call(pick)
        device = random_device(pick)
        try:
            plan = sluice.plan(op, *arguments, device=device, **options)
        except (TypeError, ValueError):
            refused += 1
            continue
        made += 1
        if plan.schedule != "aten":
            assert isinstance(device, Device | None)
            check(plan, device or current_device(), str(options.get("schedule", "auto")))
    assert made > 50
    assert refused > 50


def test_a_plan_refuses_what_the_call_refuses_in_its_words() -> None:
    x, w, image = meta(2, 6, 20), meta(6, 1, 3), meta(6, 9, 20)
    calls: dict[str, Call] = {
        r"conv1d\(\) got an unexpected keyword argument 'strides'": ("conv1d", (x, w), {"strides": 2}),
        r"causal_conv1d\(\) got an unexpected keyword argument 'strides'": (
            "causal_conv1d",
            (x, w[:, 0]),
            {"strides": 2},
        ),
        r"transform\(\) got an unexpected keyword argument 'post'": ("transform", (x, stages.relu()), {"post": None}),
        "conv1d: padding must be a number, 'same' or 'valid', got 'full'": ("conv1d", (x, w, None, 1, "full"), {}),
        "conv1d: input must have at least 39 positions with padding, the kernel's reach, got 20": (
            "conv1d",
            (x, w, None, 1, 0, 19, 6),
            {},
        ),
        "conv1d: bias must have shape": ("conv1d", (x, w, meta(5)), {"groups": 6}),
        "conv1d: weight must have dtype bfloat16": ("conv1d", (x, w.half()), {"groups": 6}),
        r"conv1d: stride must be less than 2\^63, got 1267": ("conv1d", (x, w, None, 2**100), {"groups": 6}),
        "conv1d: post must be a chain or the text of one, got int": ("conv1d", (x, w), {"groups": 6, "post": 3}),
        r"conv1d: out must have shape \(2, 6, 18\)": ("conv1d", (x, w), {"groups": 6, "out": x}),
        "causal_conv1d: x must have a multiple of stride = 3 positions, got 20": (
            "causal_conv1d",
            (x, w),
            {"groups": 6, "stride": 3},
        ),
        r"causal_conv1d: out must have shape \(2, 6, 10\)": (
            "causal_conv1d",
            (x, w),
            {"groups": 6, "stride": 2, "out": x},
        ),
        "causal_conv_transpose1d: groups must divide the input's 6 channels, got 4": (
            "causal_conv_transpose1d",
            (x, w),
            {"groups": 4, "stride": 2},
        ),
        "plan: causal_conv_transpose1d must have no cache": (
            "causal_conv_transpose1d",
            (x, w),
            {"groups": 6, "stride": 2, "overlap_cache": meta(2, 6, 1, dtype=torch.float32)},
        ),
        "plan: causal_conv1d must have no cache, because": (
            "causal_conv1d",
            (x, w),
            {"groups": 6, "state_cache": meta(2, 6, 2)},
        ),
        "causal_conv1d: initial_states must have shape": ("causal_conv1d", (x, w[:, 0]), {"initial_states": x}),
        "filter2d: image must be at least 11 x 3 with padding, the kernel's size": (
            "filter2d",
            (image, meta(11, 3), None, "valid"),
            {},
        ),
        "transform: chain must be a chain": ("transform", (x, 3), {}),
        "transform: schedule must be a string, got int": ("transform", (x,), {"schedule": 1}),
        "transform: chain operand 0 must broadcast": ("transform", (x, stages.add(meta(7))), {}),
        "plan: the call must have a result": ("transform", (x, []), {}),
    }
    for words, (op, arguments, options) in calls.items():
        with pytest.raises((TypeError, ValueError), match=words):
            sluice.plan(op, *arguments, device=H200, **options)


def test_what_a_tensor_is_beside_its_layout_changes_no_plan() -> None:
    x, w = torch.randn(2, 64, 4096), torch.randn(64, 1, 4)
    chain = stages.add(torch.randn(64, 1))

    def plan(x: torch.Tensor, w: torch.Tensor) -> Plan:
        return sluice.plan("conv1d", x, w, None, 1, "same", groups=64, post=chain, device=H200)

    wanted = plan(x, w)
    assert plan(x.to("meta"), w) == wanted
    assert plan(x, torch.nn.Parameter(w)) == wanted
    with FakeTensorMode() as mode:
        assert plan(mode.from_tensor(x), mode.from_tensor(w)) == wanted
    torch.set_autocast_enabled("cuda", True)  # torch.autocast does so where there is a GPU
    try:
        half = torch.get_autocast_dtype("cuda")
        assert plan(x, w) == plan(x.to(half), w.to(half)) != wanted
    finally:
        torch.set_autocast_enabled("cuda", False)


def test_where_a_tensor_begins_decides() -> None:
    x = meta(8, 96, 520)
    w = meta(96, 1, 4)

    def kernel(x: torch.Tensor, **options: object) -> str:
        return sluice.plan("conv1d", x, w, groups=96, padding="same", device=H200, **options).kernel

    # Short rows of half types with another alignment than their results have their own kernel.
    assert kernel(x[..., :120]) == kernel(x[..., 8:128]) == "few_taps_rows"
    assert kernel(x[..., 1:121]) == "window_rows"
    assert kernel(x[..., 1:121], out=meta(8, 96, 520)[..., 1:121]) == "few_taps_rows"


def test_a_list_of_chains_is_planned_as_the_pass_that_runs() -> None:
    x = meta(64, 1 << 16)
    chains = [stages.relu(), stages.scale(2.0), stages.cast(torch.float32)]
    made = sluice.plan("transform", x, chains, device=H200)
    assert made.kernel == "direct_flat"
    assert made == sluice.plan("transform", x, chains[0], device=H200)
    out = [torch.empty_like(x), torch.empty_like(x), x.float().mT.contiguous().mT]
    assert sluice.plan("transform", x, chains, out=out, device=H200).kernel == (
        "direct_strided" if made.form == "linked" else "direct_flat"
    )


@pytest.mark.parametrize(
    ("words", "said"),
    {
        "transform --shape abc": "must be a number of at least 0, got 'abc'",
        "transform --shape=-3": "must be a number of at least 0, got '-3'",
        "conv1d --shape 8": "conv1d: input must have shape",
        "filter2d --shape 8": "filter2d: image must have shape",
        "transform --shape 0,3": "the result must have 1 to 2^48 - 1 elements, got (0, 3)",
        "transform --shape 99999999999999999999": "error: ",
        "transform --shape 4 --chain frob": "must be a chain of stages",
        "transform --shape 4 --chain add($0)": "must be a chain without tensors",
        "transform --shape 4 --stride 2": "unexpected keyword argument 'stride'",
        "conv1d --shape 2,8,99 --padding full": "padding must be a number, 'same' or 'valid', got 'full'",
        "conv1d --shape 2,8,99 --taps 200": "at least 200 positions with padding, the kernel's reach",
    }.items(),
)
def test_the_command_refuses_in_a_line(words: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        status: object = main(["plan", *words.split()])
    except SystemExit as refused:  # argparse's way to end
        status = refused.code
    assert status == 2
    assert said in capsys.readouterr().err.splitlines()[-1]


def test_the_command_takes_what_the_call_takes(capsys: pytest.CaptureFixture[str]) -> None:
    def printed(words: str) -> dict[str, str]:
        assert main(["plan", *words.split()]) == 0
        return dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines() if len(line.split()) > 1)

    made = printed(
        "conv1d --shape 8,512,2048 --stride 2 --padding 3 --chain scale(1.5)|clamp(0,1) --pre relu --dtype fp32"
    )
    x, w = meta(8, 512, 2048, dtype=torch.float32), meta(512, 1, 4, dtype=torch.float32)
    chains = {"pre": stages.relu(), "post": stages.scale(1.5) | stages.clamp(0, 1)}
    plan = sluice.plan("conv1d", x, w, None, 2, 3, groups=512, **chains)
    assert made == {name: str(value) for name, value in vars(plan).items() if value != ""}
    assert printed("transform --shape 7,9 --layout cf --chain gelu(tanh)|cast(float16)")["kernel"] == "direct_flat"
    assert printed("filter2d --shape 3,100,240 --padding 1,1 --taps 3 --result-dtype fp32")["kernel"] == "aligned3"
    assert printed("conv1d --shape 2,64,512 --layout cl --padding same")["kernel"] == "few_taps_channels"
    transposed = printed("causal_conv_transpose1d --shape 2,64,512 --stride 2 --taps 5 --dtype fp32")
    assert (transposed["method"], transposed["detail"]) == ("depthwise", "2 polyphase components, one launch each")


class Sharded(torch.Tensor):
    """A tensor with a mesh, as a DTensor has."""

    device_mesh = "a mesh"


def test_a_plan_stays_a_plan_while_sharding_rules_are_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first call of a DTensor finds no rules, loads them and is made again, in the thread's mode."""
    asked: list[str] = []

    def ask(name: str, arguments: tuple[torch.Tensor, ...], options: dict[str, object]) -> torch.Tensor:
        asked.append(name)
        if len(asked) == 1:
            raise NotImplementedError("no sharding rule")
        return arguments[0]

    def compute(*arguments: object, **options: object) -> torch.Tensor:
        raise AssertionError("a call that plans has computed")

    loaded: list[bool] = []
    monkeypatch.setattr(_call, "ask", ask)
    monkeypatch.setitem(_call._functions, "transform", compute)
    monkeypatch.setattr(_call, "sharding_rules", [lambda: loaded.append(True)])
    x = torch.ones(4).as_subclass(Sharded)
    with call_mode("plan"):
        assert _call.run("transform", (x, "silu"), {}) is x
    assert asked == ["transform", "transform"]
    assert loaded == [True]
