"""Checks a wheel's requirements of the machine that installs it.

It checks the tag, the size, that the demo is not in it, the libraries and symbols that the two .so files need, and that
these are not newer than the stable ABI of torch 2.11: `audit_wheel.py dist/*.whl`.
"""

import pathlib
import re
import subprocess
import sys
import tempfile
import zipfile

MAX_MEGABYTES = 60
NEEDED = {"libtorch.so", "libstdc++.so.6", "libm.so.6", "libgcc_s.so.1", "libc.so.6", "ld-linux-x86-64.so.2"}
# Beside libc and libstdc++, only torch's C shims are allowed. Those newer than 2.11 are listed here, so that a header
# that starts to use one is noticed.
TORCH_SYMBOL = re.compile(r"(aoti_torch|torch)_\w+$")
SYSTEM_SYMBOL = re.compile(r".*@(GLIBC|GLIBCXX|CXXABI|GCC)_[\d.]+$|_ITM_\w+$|__gmon_start__$")
AFTER_2_11 = {
    "torch_library_def_with_tags",
    "torch_stream_native_handle",
    "torch_library_set_python_module",
    "torch_new_stable_ivalue",
    "torch_delete_stable_ivalue",
    "torch_exception_get_what",
}
WEAK = {"aoti_torch_get_current_cuda_stream"}
CUDA_ONLY = re.compile(r"cuda")


def run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def audit_library(path: pathlib.Path) -> list[str]:
    problems = []
    dynamic = run("readelf", "-d", str(path))
    needed = set(re.findall(r"NEEDED.*\[(.*)\]", dynamic))
    problems += [f"needs {name}" for name in needed - NEEDED]
    if "libtorch.so" not in needed:
        problems.append("does not need libtorch.so: torch's symbols will not be found")
    if "RPATH" in dynamic or "RUNPATH" in dynamic:
        problems.append("has a run path")
    for line in run("nm", "-D", "--undefined-only", str(path)).splitlines():
        kind, symbol = line.split()[-2:]
        if symbol in AFTER_2_11 or not (TORCH_SYMBOL.match(symbol) or SYSTEM_SYMBOL.match(symbol)):
            problems.append(f"asks for {symbol}")
        elif CUDA_ONLY.search(symbol.split("device_type")[0]) and (symbol not in WEAK or kind != "w"):
            problems.append(f"asks for {symbol} strongly: it would not load under a CPU-only torch")
    exported = [line.split()[-1] for line in run("nm", "-D", "--defined-only", str(path)).splitlines()]
    problems += [f"exports {symbol}" for symbol in exported if "sluice" in symbol]
    return problems


def main() -> int:
    (wheel,) = map(pathlib.Path, sys.argv[1:])
    problems = []
    if not wheel.name.endswith("-py3-none-linux_x86_64.whl"):
        problems.append(f"{wheel.name}: the tag must be py3-none-linux_x86_64")
    megabytes = wheel.stat().st_size / 1e6
    if megabytes > MAX_MEGABYTES:
        problems.append(f"{wheel.name}: {megabytes:.1f} MB is over {MAX_MEGABYTES}")
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
        problems += [f"has {name}" for name in archive.namelist() if name.startswith("sluice/demo/")]
        libraries = sorted(pathlib.Path(folder).rglob("*.so"))
        for library in libraries:
            problems += [f"{library.name}: {problem}" for problem in audit_library(library)]
        names = [library.name for library in libraries]
        if "_C.so" not in names:
            problems.append("_C.so is missing")
    for problem in problems:
        print(f"audit: {problem}", file=sys.stderr)
    print(f"wheel: {wheel.name}, {megabytes:.1f} MB, {', '.join(names)}: {'ok' if not problems else 'NOT ok'}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
