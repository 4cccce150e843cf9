"""Fixtures of all tests: each runs on the CPU, and on a GPU where there is one."""

from __future__ import annotations

import gc
import itertools
import math
import warnings
from collections.abc import Iterator

import pytest
import torch

from linked_forms import link_mode, linking
from tf32 import tf32_allowed

pytest_plugins = ["random_seed"]
_ended, _TESTS_PER_FREEZE = itertools.count(1), 100
_threads = torch.get_num_threads()
DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


def pytest_configure(config: pytest.Config) -> None:
    # Dense float32 convolutions are compared at full precision; tests of TF32 switch it on.
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_tf32 = False
    if torch.cuda.is_available():
        from sluice.compile import gain

        gain.GUARDS = -math.inf  # so that small models are folded too


def pytest_collection_finish(session: pytest.Session) -> None:
    gc.freeze()  # each gc.collect() of a test would walk over torch and thousands of tests


def pytest_runtest_teardown() -> None:
    """The same for what earlier tests have left alive, such as what Dynamo keeps. The number of threads is reset."""
    if torch.get_num_threads() != _threads:  # more than cores wait for each other
        torch.set_num_threads(_threads)
    if next(_ended) % _TESTS_PER_FREEZE == 0:
        gc.collect()
        gc.freeze()


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def cuda() -> str:
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    return "cuda"


@pytest.fixture
def tf32_of_float32(dtype: torch.dtype) -> Iterator[None]:
    """TF32 is allowed where the test's dtype is float32."""
    with tf32_allowed(dtype == torch.float32):
        yield


@pytest.fixture
def fresh_compiler() -> None:
    torch._dynamo.reset()


@pytest.fixture(params=["never", "always"], ids=["interpreted", "linked"])
def form(request: pytest.FixtureRequest) -> Iterator[str]:
    """Chains are interpreted in one run of the test, linked in the other."""
    with link_mode(request.param):
        yield request.param


@pytest.fixture
def linked_always(cuda: str) -> Iterator[None]:
    """Every chain is linked at its first call, and an unexpected fallback is an error."""
    if linking()["unavailable"]:
        pytest.fail(f"nothing can be linked here: {linking()['unavailable']}")
    failed = linking()["failed"] + linking()["postponed"]
    with link_mode("always"), warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*could not be linked.*")
        yield
    assert linking()["failed"] + linking()["postponed"] == failed, linking()["last_error"]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    # The CPU only checks a schedule's name, so two of them represent all.
    def is_needed(item: pytest.Item) -> bool:
        parameters = getattr(getattr(item, "callspec", None), "params", {})
        return parameters.get("device") != "cpu" or parameters.get("schedule", "direct") in ("direct", "multi_stage")

    config.hook.pytest_deselected(items=[item for item in items if not is_needed(item)])
    items[:] = [item for item in items if is_needed(item)]
