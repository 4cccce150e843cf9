"""The checkout and its source hash, for tools that run without torch and without a build."""

import importlib.util
import pathlib

ROOT = pathlib.Path(__file__).resolve().parent.parent
RECEIPT = ROOT / "tests" / "gpu" / "receipt.json"


def source_hash() -> str:
    path = ROOT / "python" / "sluice" / "bench" / "source_hash.py"
    spec = importlib.util.spec_from_file_location("source_hash", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return str(module.source_hash(ROOT))
