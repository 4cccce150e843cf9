"""`replace`: one line swaps a model's convolutions for sluice's, and a table says what changed."""

from .api import Replacement, replace
from .table import Row

__all__ = ["Replacement", "Row", "replace"]
