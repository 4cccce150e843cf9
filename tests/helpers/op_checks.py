"""The tests of `torch.library.opcheck`; tracing an op takes ten times as long as the others."""

from __future__ import annotations

FAST_CHECKS = ["test_schema", "test_faketensor"]
ALL_CHECKS = [*FAST_CHECKS, "test_autograd_registration", "test_aot_dispatch_dynamic"]
