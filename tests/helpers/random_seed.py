"""A pytest plugin: fresh random numbers for each test, and the seed of one that fails."""

from __future__ import annotations

import secrets
from collections.abc import Generator
from typing import Any

import pytest
import torch

_SEED = pytest.StashKey[int]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seed", type=int, help="where every test's random numbers begin (default: each draws a seed)")


@pytest.fixture(autouse=True)
def _random_numbers(request: pytest.FixtureRequest) -> None:
    given = request.config.getoption("--seed")
    seed = secrets.randbelow(2**31) if given is None else given
    # Like torch.manual_seed, which takes 8 ms for the devices that are not there: it keeps a stack for each.
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_available():
        torch.cuda.manual_seed_all(seed)
    request.node.stash[_SEED] = seed


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, None]:
    report = (yield).get_result()
    if report.failed and _SEED in item.stash:
        report.sections.append(("Random seed", f"--seed={item.stash[_SEED]} draws the same numbers"))
