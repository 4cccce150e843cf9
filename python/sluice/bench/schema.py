"""The format of the result files `benchmarks/results/<gpu>/<suite>.json`.

A suite that has parts has a file for each part, `<suite>.<part>.json`: together its files of a GPU hold its cases.
Other tools read these files. A key that is added, renamed or left out here is a change of the contract.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import TypedDict

Parameters = Mapping[str, int | str]


class Row(TypedDict):
    """One case. Times are medians in microseconds; `efficiency` is floor_us / time_us."""

    name: str
    params: dict[str, int | str]
    time_us: float
    floor_us: float
    floor_kind: str
    efficiency: float
    peers: dict[str, float | None]
    schedule: str
    depth: int
    auto: bool
    linked: bool
    rel_err: float


class Document(TypedDict):
    """One run of a suite or of a part of it. `gpu` is torch's device name, `date` the day (UTC) as YYYY-MM-DD."""

    suite: str
    gpu: str
    torch: str
    cuda: str
    date: str
    source_hash: str
    copy_tbps: float
    matmul_tflops: float
    cases: list[Row]


SUITES = frozenset(
    {
        "transform",
        "conv1d_depthwise",
        "decode",
        "conv1d_dense",
        "conv_transpose1d",
        "filter2d",
        "schedules",
        "depth",
        "stream",
        "stream_devices",
        "models",
        "codecs",
        "overhead",
        "cpu",
        "random",
    }
)
_SIZES = frozenset({"B", "C", "Cin", "Cout", "L", "H", "W", "n", "offset", "devices", "threads"})
PARAMETERS = _SIZES | {"K", "stride", "padding", "dilation", "groups", "dtype", "layout", "op", "source", "order", "fn"}
PEERS = frozenset(
    {
        "sluice_eager",
        "torch",
        "torch_graph",
        "torch_compile",
        "torch_compile_reduce_overhead",
        "torch_compile_max_autotune",
        "conv2d_channels_last",
        "causal_conv1d",
        "flash_fft_conv",
        "jiterator",
        "cub",
        "torchvision",
        "clone",
        "copy",
        "copy_",
        "copy_out",
        "copy_async",
        "sequential",
        "hand_written",
        "prefetch",
        "sample_depth_first",
        "sample_breadth_first",
        "cupy",
    }
)
FLOOR_KINDS = frozenset({"bytes", "flops", "link"})
_CHOICES = {"dtype": frozenset({"bf16", "fp16", "fp32", "tf32"}), "layout": frozenset({"cf", "cl"})}


def _require(condition: bool, where: str, rule: str, value: object) -> None:
    if not condition:
        raise ValueError(f"{where} must {rule}, got {value!r}")


def _check_keys(where: str, value: object, expected: frozenset[str]) -> dict[str, object]:
    if not isinstance(value, dict):
        raise ValueError(f"{where} must be an object, got {value!r}")
    _require(not expected - value.keys(), where, f"have the keys {sorted(expected)}", sorted(value))
    _require(not value.keys() - expected, where, f"have only the keys {sorted(expected)}", sorted(value))
    return value


def _is_one_of(value: object, choices: frozenset[str]) -> bool:
    return isinstance(value, str) and value in choices


def _is_positive(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) and value > 0


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value != ""


def _check_params(where: str, params: object) -> None:
    _require(isinstance(params, dict) and len(params) > 0, where, "be a non-empty object", params)
    assert isinstance(params, dict)
    for name, value in params.items():
        _require(name in PARAMETERS, where, f"have only keys from {sorted(PARAMETERS)}", name)
        if name in _CHOICES:
            allowed = _CHOICES[name]
            _require(_is_one_of(value, allowed), f"{where}.{name}", f"be one of {sorted(allowed)}", value)
        elif name in _SIZES:
            _require(_is_count(value), f"{where}.{name}", "be an integer of at least 0", value)
        else:
            _require(_is_count(value) or _is_text(value), f"{where}.{name}", "be a number or a string", value)


def _check_peers(where: str, peers: object) -> None:
    if not isinstance(peers, dict):
        raise ValueError(f"{where} must be an object, got {peers!r}")
    for name, time_us in peers.items():
        _require(name in PEERS, where, f"have only keys from {sorted(PEERS)}", name)
        _require(time_us is None or _is_positive(time_us), f"{where}.{name}", "be positive or null", time_us)


def _check_row(where: str, value: object) -> None:
    row = _check_keys(where, value, frozenset(Row.__annotations__))
    _require(_is_text(row["name"]), f"{where}.name", "be a string", row["name"])
    _check_params(f"{where}.params", row["params"])
    _check_peers(f"{where}.peers", row["peers"])
    for name in ("time_us", "floor_us", "efficiency"):
        _require(_is_positive(row[name]), f"{where}.{name}", "be a positive number", row[name])
    time_us, floor_us, efficiency = (float(str(row[name])) for name in ("time_us", "floor_us", "efficiency"))
    # Each of the three is rounded by itself, which moves the quotient of a small time by up to 0.1 %.
    close = math.isclose(efficiency, floor_us / time_us, rel_tol=2e-3, abs_tol=1e-4)
    _require(close, f"{where}.efficiency", f"be floor_us / time_us = {floor_us / time_us:.4f}", efficiency)
    kind = row["floor_kind"]
    _require(_is_one_of(kind, FLOOR_KINDS), f"{where}.floor_kind", f"be one of {sorted(FLOOR_KINDS)}", kind)
    ran = _is_text(row["schedule"]) and row["schedule"] != "auto"
    _require(ran, f"{where}.schedule", "name the schedule that ran", row["schedule"])
    _require(_is_count(row["depth"]) and row["depth"] != 0, f"{where}.depth", "be at least 1", row["depth"])
    for name in ("auto", "linked"):
        _require(isinstance(row[name], bool), f"{where}.{name}", "be true or false", row[name])
    error = row["rel_err"]
    _require(_is_positive(error) or error == 0, f"{where}.rel_err", "be a number of at least 0", error)


def validate(document: object) -> None:
    """Checks that `document` has exactly the shape that readers of the result files rely on.

    Args:
        document: what was read from a file, or is about to be written.

    Raises:
        ValueError: it has not; the text names the place, the rule and the value.
    """
    head = _check_keys("document", document, frozenset(Document.__annotations__))
    _require(_is_one_of(head["suite"], SUITES), "suite", f"be one of {sorted(SUITES)}", head["suite"])
    for name in ("gpu", "torch", "cuda"):
        _require(_is_text(head[name]), name, "be a string", head[name])
    for name, pattern in (("date", r"\d{4}-\d{2}-\d{2}"), ("source_hash", r"[0-9a-f]{64}")):
        _require(re.fullmatch(pattern, str(head[name])) is not None, name, f"match {pattern}", head[name])
    for name in ("copy_tbps", "matmul_tflops"):
        _require(_is_positive(head[name]), name, "be a positive number", head[name])
    cases = head["cases"]
    if not isinstance(cases, list) or not cases:
        raise ValueError(f"cases must be a non-empty list, got {cases!r}")
    for index, row in enumerate(cases):
        _check_row(f"cases[{index}]", row)
    names = [row["name"] for row in cases]
    _require(len(set(names)) == len(names), "cases", "have different names", names)
