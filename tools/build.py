"""Builds the libraries in place, installs the package into the environment, and reports progress.

The report has the target, the progress and the time taken: the compiler's own progress on a terminal, otherwise a line
now and then. `SLUICE_WITH_CUDA` and `SLUICE_TESTS` are read by setup.py, which calls CMake.
"""

import os
import re
import shutil
import subprocess
import sys
import time

EVERY_SECONDS = 15.0  # between two lines of progress without a terminal
PROGRESS = re.compile(r"\[\d+/\d+\] ")


def what() -> str:
    wanted = os.environ.get("SLUICE_WITH_CUDA", "auto")
    if wanted == "0":
        return "the CPU libraries (SLUICE_WITH_CUDA=1 builds the CUDA kernels too)"
    if wanted == "1" or shutil.which(os.environ.get("CUDACXX", "nvcc")):
        return "the CPU libraries and the CUDA kernels"
    return "the CPU libraries, and the CUDA kernels if CMake finds an nvcc, which PATH does not have"


def run(command: list[str]) -> int:
    """Runs a compiler and returns its exit status; shows all lines that are not progress."""
    if sys.stdout.isatty():
        return subprocess.run(command).returncode
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    assert process.stdout is not None
    said = time.monotonic()
    for line in process.stdout:
        if PROGRESS.match(line):
            if time.monotonic() - said < EVERY_SECONDS:
                continue
            said = time.monotonic()
        print(line, end="", flush=True)
    return process.wait()


def main() -> int:
    start = time.monotonic()
    print(f"build: {what()}, on {os.environ.get('MAX_JOBS') or os.cpu_count()} cores", flush=True)
    os.environ.setdefault("NINJA_STATUS", "[%f/%t] ")
    status = run([sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"])
    if status == 0:
        # Everything is compiled: this only registers the package, and prints only errors.
        pip = [sys.executable, "-m", "pip", "install", "-qq", "--no-build-isolation", "--no-deps", "--no-index"]
        status = subprocess.run([*pip, "--editable", "."]).returncode
    print(f"build: {'done' if status == 0 else 'FAILED'} in {time.monotonic() - start:.0f} s", flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
