"""The checkout and its source hash, for tools that run without torch and without a build."""

import importlib.util
import pathlib
import types

ROOT = pathlib.Path(__file__).resolve().parent.parent
RECEIPT = ROOT / "tests" / "gpu" / "receipt.json"


def load_source_hash() -> types.ModuleType:
    """python/sluice/bench/source_hash.py, loaded as a separate module."""
    path = ROOT / "python" / "sluice" / "bench" / "source_hash.py"
    spec = importlib.util.spec_from_file_location("source_hash", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def source_hash() -> str:
    return str(load_source_hash().source_hash(ROOT))
