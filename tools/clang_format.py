"""Formats the C++ and CUDA sources in place, or with --check says which are not formatted."""

import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOURCES = sorted(
    str(path)
    for folder in ("kernels", "ops", "benchmarks", "tests", "examples")
    for path in (ROOT / folder).rglob("*")
    if path.suffix in (".cpp", ".cu", ".cuh", ".h")
)


def main() -> int:
    beside = pathlib.Path(sys.executable).parent / "clang-format"
    tool = str(beside) if beside.exists() else shutil.which("clang-format")
    if tool is None:
        print("clang-format: not installed here", file=sys.stderr)
        return 1
    action = ["--dry-run", "--Werror"] if "--check" in sys.argv else ["-i"]
    return subprocess.run([tool, "--style=file", *action, *SOURCES]).returncode


if __name__ == "__main__":
    sys.exit(main())
