"""Suite `random`: a hundred problems of each family of random_cases.py, with seeds from 0."""

from __future__ import annotations

from random_cases import FAMILIES, cases
from sluice.bench import Suite

_EACH = 100

SUITE = Suite("random", [case for family in FAMILIES for case in cases(family, 0, _EACH)])
