"""Runs all checks of the GPU code, in parts, and writes tests/gpu/receipt.json.

    gpu_check.py [PART ...]     all by default, except the parts that passed on the same sources

Each part takes less than ten minutes. The receipt has each part's last success with the hash of the sources that the
part runs (part_sources.py). It is written after every part, so an interrupted run continues where it stopped.
"""

import concurrent.futures
import fnmatch
import importlib.util
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import threading
import time

import torch

from part_sources import part_hash
from source_tree import RECEIPT, ROOT

LOGS = pathlib.Path(os.environ.get("OUT") or ROOT / "build" / "gpu_check")
# A hanging test prints its stack.
PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "faulthandler_timeout=400"]
DEVICES = max(1, torch.cuda.device_count())
# Several workers if pytest-xdist is installed. Each has few threads, because the CPU tests compete for the cores, and
# compiles in its own process: inductor would start one more per core for every worker. With several GPUs more lanes
# are at work at a time.
WORKERS = (
    ["-n", str(max(2, (os.cpu_count() or 2) * 3 // 4 // DEVICES)), "--dist", "worksteal"]
    if importlib.util.find_spec("xdist")
    else []
)
THREADS = {"OMP_NUM_THREADS": "2", "TORCHINDUCTOR_COMPILE_THREADS": "1"}
PART_SECONDS = 570


def without(*schedules: str) -> tuple[str, str]:
    """pytest's option that deselects the tests of these schedules, or with these names."""
    return "-k", " and ".join(f"not {schedule}" for schedule in schedules)


# Only sluice's kernels are checked, not the kernels of torch and its libraries.
OURS = ("--kernel-name", "kernel_substring=sluice")
# Two tools do not understand every way to wait (docs/measurements/schedules.md has the small kernels that show it):
# synccheck 2025.3 reports a "Missing wait" for the second arrival of a thread whose cp.async arrives as well, and
# racecheck does not see that barriers in shared memory alone hand a stage on. The tests of rings without their waits
# cover those cases (tests/gpu/test_rings.py). `barrier` is reported too if its pipe is in an interpreted kernel with
# those pipes, but not alone or with `sync`.
RACECHECK = without("single_stage", "two_stage", "multi_stage", "producer_consumer", "bulk")
SYNCCHECK = without(
    "single_stage", "two_stage", "multi_stage", "producer_consumer", "primitives", "(interpreted and barrier)"
)


# What a part runs of tests/: folders, and patterns of files, which come before every folder. What is marked no_gpu is
# left out, as are the folders WITHOUT_GPU: CI runs them.
TESTS: dict[str, tuple[str, ...]] = {
    "pointwise": ("transform", "stages"),
    "convolutions": (
        *("conv1d", "conv_transpose1d", "causal_conv1d", "causal_conv1d_update", "causal_conv_transpose1d"),
        "compat",
    ),
    "stencils": ("filter2d",),
    "streams": ("streams",),
    "life": ("streams/test_life.py",),
    "others": (
        *("bench", "contracts", "demo", "distributed", "docs", "gpu", "linking", "nn"),
        *("compat/test_transformers.py", "compat/test_gpu_layers.py"),  # minutes
        "stages/test_*own_stages.py",  # in chains of convolutions
    ),
    "models": ("compile", "models", "replace", "streaming"),
}
WITHOUT_GPU = ("cpu", "tools")
# What runs once more with the portable dense kernel.
PORTABLE = {
    "portable": (
        *("conv1d/test_*dense*.py", "conv1d/test_gpu_float32.py", "conv1d/test_gpu_portable.py"),
        *("conv1d/test_groups.py", "conv1d/test_strides.py"),
    )
}
# Families of the sanitized tests, a sanitizer's part each, so that each ends in time; "" has all others.
FAMILIES: dict[str, tuple[str, ...]] = {
    "": (),
    "_causal": ("causal_conv1d", "causal_conv1d_update", "causal_conv_transpose1d", "conv1d/test_gpu_few_taps*.py"),
    "_dense": ("conv_transpose1d", "conv1d/test_gpu_dense*.py"),
    "_portable": ("conv1d/test_gpu_portable.py",),
}


def row_of(path: pathlib.Path, table: dict[str, tuple[str, ...]]) -> str:
    """The row with a pattern of the test file, or else with its folder; "" if there is none."""
    name = path.relative_to(ROOT / "tests").as_posix()
    for wanted in (name, name.partition("/")[0]):
        for row, patterns in table.items():
            if any(fnmatch.fnmatchcase(wanted, pattern) for pattern in patterns):
                return row
    return ""


def files_of(row: str, table: dict[str, tuple[str, ...]]) -> list[pathlib.Path]:
    return [path for path in sorted((ROOT / "tests").rglob("test_*.py")) if row_of(path, table) == row]


def has_line(path: pathlib.Path, start: str) -> bool:
    return re.search("^" + start, path.read_text(), re.MULTILINE) is not None


def needs_no_gpu(path: pathlib.Path) -> bool:
    return has_line(path, r"pytestmark = .*\bpytest\.mark\.no_gpu\b")


def has_sanitized_tests(path: pathlib.Path) -> bool:
    return has_line(path, r"@pytest\.mark\.sanitize\b")


def arguments(paths: list[pathlib.Path]) -> list[str]:
    return [path.relative_to(ROOT).as_posix() for path in paths]


def sanitizer(tool: str, *options: str, family: str) -> list[str]:
    files = [path for path in files_of(family, FAMILIES) if has_sanitized_tests(path)]
    command = ["compute-sanitizer", "--tool", tool, "--error-exitcode", "9", "--print-limit", "20"]
    return [*command, *options, *PYTEST, "-m", "sanitize", *arguments(files)]


def tests(part: str, table: dict[str, tuple[str, ...]]) -> list[str]:
    files = [path for path in files_of(part, table) if not needs_no_gpu(path)]
    chosen = ["-m", "not large and not alone and not no_gpu", "-k", "not cpu"]
    return [*PYTEST, *WORKERS, "--durations=8", *chosen, *arguments(files)]


PARTS: dict[str, list[str]] = {
    **{part: tests(part, TESTS) for part in TESTS},
    "portable": tests("portable", PORTABLE),
    "alone": [*PYTEST, "--durations=8", "-m", "alone", "-k", "not cpu", "tests"],
    "large": [*PYTEST, "-m", "large", "tests"],
}
for _family in FAMILIES:
    PARTS[f"memcheck{_family}"] = sanitizer("memcheck", *OURS, family=_family)
    PARTS[f"racecheck{_family}"] = [*sanitizer("racecheck", *OURS, family=_family), *RACECHECK]
    # All kernels: a write by a torch kernel counts only if that kernel is checked.
    PARTS[f"initcheck{_family}"] = sanitizer("initcheck", family=_family)
    PARTS[f"synccheck{_family}"] = [*sanitizer("synccheck", *OURS, family=_family), *SYNCCHECK]


# Its one pipe hands stages on by barriers in shared memory, as `producer_consumer` does, which neither tool follows
# (above; docs/measurements/portable.md).
del PARTS["racecheck_portable"], PARTS["synccheck_portable"]


# A part leaves most cores idle at its end, so lanes run concurrently; the parts of a lane run one after another. The
# tests of a lane see all GPUs, in an order that begins with its own; a sanitizer's memory is for each GPU that it sees.
LANES = (
    ("others", "life"),
    ("streams", "stencils"),
    ("models", "portable"),
    ("convolutions", "pointwise"),
    # A sanitizer takes one core and little of the GPU.
    *((name,) for name in PARTS if "check" in name),
)
# Parts that must not share the GPU, or that take all of its memory.
BY_THEMSELVES = ("alone", "large")


def is_sanitized(name: str) -> bool:
    return "compute-sanitizer" in PARTS[name]


def hung_frames(lines: list[str]) -> list[str]:
    """The frames of hanging tests from faulthandler, without the frames of pytest and its workers."""
    frames = [line for line in lines if re.match(r'  File "/.*", line \d+ in ', line)]
    return [frame for frame in frames if not re.search(r"/(_pytest|pluggy|execnet|xdist)/", frame)]


def visible_devices(part: str, lane: int) -> str:
    """CUDA_VISIBLE_DEVICES of a part in that lane."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = given.split(",") if given else [str(device) for device in range(DEVICES)]
    first = lane % len(names)
    return names[first] if is_sanitized(part) else ",".join(names[first:] + names[:first])


def causes(lines: list[str]) -> list[str]:
    """What says why a part failed: the tests' errors, a sanitizer's first findings, a crash, hanging frames."""
    asserted = [line for line in lines if line.startswith("E   ")]
    findings = [line[:300] for line in lines if re.match(r"=========\s+\S", line)]
    crash = [line for line in lines if line.startswith("Fatal Python error")]
    return [*asserted[:20], *findings[:20], *crash, *hung_frames(lines)[:20]]


def run_part(name: str, devices: str) -> dict[str, object] | None:
    """The part's counts, or None if it failed. The tests see the devices."""
    print(f"gpu-check: {name} ...", flush=True)
    log = LOGS / f"{name}.log"
    # Every tensor has its own allocation, so a read past its end is detected.
    uncached = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"} if is_sanitized(name) else {}
    kernels = {"SLUICE_DENSE": "portable"} if "portable" in name else {}
    environment = {**os.environ, **THREADS, **uncached, **kernels, "CUDA_VISIBLE_DEVICES": devices}
    seed = f"--seed={random.randrange(1 << 31)}"  # a test that crashes cannot say its own
    start = time.monotonic()
    with log.open("w") as file:
        try:
            status = subprocess.run(
                [*PARTS[name], seed],
                cwd=ROOT,
                stdout=file,
                stderr=subprocess.STDOUT,
                env=environment,
                timeout=PART_SECONDS,
            ).returncode
        except subprocess.TimeoutExpired:
            status = 124
    text = log.read_text(errors="replace")
    closing = [line for line in text.splitlines() if re.search(r"\d+ passed", line)][-1:] or [""]
    counts = {word: int(n) for n, word in re.findall(r"(\d+) (passed|failed|skipped|error)", closing[0])}
    seconds = round(time.monotonic() - start, 1)
    clean = not is_sanitized(name) or "ERROR SUMMARY: 0 errors" in text or "RACECHECK SUMMARY: 0 hazards" in text
    if status != 0 or counts.get("passed", 0) == 0 or not clean:
        lines = text.splitlines()
        print("\n".join([*causes(lines), *lines[-40:]]))
        print(f"gpu-check: {name} FAILED (exit status {status}, {seed}, {log})")
        return None
    print(
        f"gpu-check: {name} passed {counts.get('passed', 0)}, skipped {counts.get('skipped', 0)}, {seconds} s",
        flush=True,
    )
    return {"passed": counts.get("passed", 0), "skipped": counts.get("skipped", 0), "seconds": seconds}


def receipt_parts() -> dict[str, dict[str, object]]:
    found = json.loads(RECEIPT.read_text())["parts"] if RECEIPT.exists() else {}
    return {name: found[name] for name in PARTS if name in found}


def passed_parts() -> list[str]:
    """The parts that passed on the current sources."""
    return [name for name, part in receipt_parts().items() if part.get("sources") == part_hash(name)]


def machine() -> dict[str, str]:
    import sluice

    driver = subprocess.run(
        ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"], capture_output=True, text=True
    ).stdout.split("\n")[0]
    return {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "gpu": torch.cuda.get_device_name(0),
        "driver": driver,
        "torch": torch.__version__,
        "cuda": str(torch.version.cuda),
        "build": sluice.info()["build"],
    }


def add_to_receipt(name: str, part: dict[str, object]) -> None:
    parts = receipt_parts() | {name: part}
    RECEIPT.write_text(json.dumps({"parts": {name: parts[name] for name in PARTS if name in parts}}, indent=2) + "\n")


def main() -> int:
    if not torch.cuda.is_available():
        print("gpu-check: no CUDA device here", file=sys.stderr)
        return 2
    if shutil.which("compute-sanitizer") is None:
        print("gpu-check: compute-sanitizer is not on PATH", file=sys.stderr)
        return 2
    wanted = sys.argv[1:] or list(PARTS)
    if unknown := set(wanted) - set(PARTS):
        print(f"gpu-check: unknown part {sorted(unknown)}; there are {', '.join(PARTS)}", file=sys.stderr)
        return 2
    LOGS.mkdir(parents=True, exist_ok=True)
    here = machine()
    passed = passed_parts()
    for name in [name for name in wanted if name in passed]:
        print(f"gpu-check: {name} passed on these sources already")

    lock = threading.Lock()

    def run_lane(lane: int, names: tuple[str, ...]) -> None:
        for name in names:
            if name not in wanted or name in passed or (result := run_part(name, visible_devices(name, lane))) is None:
                continue
            with lock:
                add_to_receipt(name, {**result, **here, "sources": part_hash(name)})

    with concurrent.futures.ThreadPoolExecutor() as pool:
        list(pool.map(run_lane, range(len(LANES)), LANES))
    run_lane(0, BY_THEMSELVES)
    missing = [name for name in PARTS if name not in passed_parts()]
    print(f"gpu-check: {'still to pass: ' + ' '.join(missing) if missing else 'all parts have passed'}")
    return 1 if set(missing) & set(wanted) else 0


if __name__ == "__main__":
    sys.exit(main())
