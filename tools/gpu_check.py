"""Runs everything that shows that the GPU code works, in parts, and writes tests/gpu/receipt.json.

    gpu_check.py [PART ...]     all by default, but for those that passed on the same sources already

Each part takes less than ten minutes. The receipt has each part's last success with the hash of the sources that the
part runs (part_sources.py), and is written after every part, so that a run that was cut off goes on where it stopped.
"""

import concurrent.futures
import importlib.util
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import threading
import time

from part_sources import part_hash
from source_tree import RECEIPT, ROOT

LOGS = pathlib.Path(os.environ.get("OUT") or ROOT / "build" / "gpu_check")
# A test that hangs says where.
PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "faulthandler_timeout=150"]
# Several workers where pytest-xdist is there; each with few threads, or the CPU tests fight for the cores, and each
# compiles in its own process: inductor would start one more a core, for every worker.
WORKERS = (
    ["-n", str(max(2, (os.cpu_count() or 2) * 3 // 4)), "--dist", "worksteal"]
    if importlib.util.find_spec("xdist")
    else []
)
THREADS = {"OMP_NUM_THREADS": "2", "TORCHINDUCTOR_COMPILE_THREADS": "1"}
PART_SECONDS = 570
# Families of tests/gpu's files, a sanitizer's part each, so that each ends in time; "" has all others.
FAMILIES: dict[str, tuple[str, ...]] = {
    "": (),
    "_causal": ("test_few_taps", "test_sequences", "test_update"),
    "_dense": ("test_dense", "test_transposed"),
}


def without(*schedules: str) -> tuple[str, str]:
    """pytest's option that leaves the tests of these schedules, or with these names, out."""
    return "-k", " and ".join(f"not {schedule}" for schedule in schedules)


# Only sluice's kernels count: torch's and its libraries' are not ours to judge.
OURS = ("--kernel-name", "kernel_substring=sluice")
# Two tools do not follow every way to wait (docs/measurements/schedules.md has the small kernels that show it):
# synccheck 2025.3 calls the second arrival of a thread whose cp.async arrives as well a "Missing wait", and racecheck
# does not see that a stage is handed on through barriers in shared memory alone. What they cannot judge, the tests of
# the rings without their waits do (tests/gpu/test_rings.py). `barrier` is called so too where its pipe stands beside
# those others in an interpreted kernel, and not where it stands alone or beside `sync`.
RACECHECK = without("single_stage", "two_stage", "multi_stage", "producer_consumer", "bulk")
SYNCCHECK = without(
    "single_stage", "two_stage", "multi_stage", "producer_consumer", "primitives", "(interpreted and barrier)"
)


def sanitizer(tool: str, *options: str, family: str) -> list[str]:
    named = tuple(prefix for prefixes in FAMILIES.values() for prefix in prefixes)
    files = [
        f"tests/gpu/{path.name}"
        for path in sorted((ROOT / "tests" / "gpu").glob("test_*.py"))
        if (path.name.startswith(FAMILIES[family]) if family else not path.name.startswith(named))
        and "pytest.mark.sanitize" in path.read_text()
    ]
    command = ["compute-sanitizer", "--tool", tool, "--error-exitcode", "9", "--print-limit", "20"]
    return [*command, *options, *PYTEST, "-m", "sanitize", *files]


# The files of each part that runs tests. What needs no GPU at all, CI runs.
TESTS: dict[str, tuple[str, ...]] = {
    "pointwise": ("test_functions", "test_stages", "test_own_stages", "test_transform", "test_transform_many"),
    "convolutions": (
        "test_conv1d",
        "test_conv1d_dense",
        "test_conv_transpose1d",
        "test_torch_samples",
        "test_conv1d_strides",
        "test_conv1d_groups",
        "test_causal_conv1d",
        "test_causal_conv1d_update",
        "test_causal_conv1d_update_calls",
        *("test_causal_conv1d_sequences", "test_causal_conv1d_paged"),
        *("test_causal_conv1d_sequences_calls", "test_causal_conv1d_sequences_errors"),
        *("gpu/test_sequences_kernel", "gpu/test_sequences_iterations"),
        *("test_compat_causal_conv1d", "test_compat_causal_conv1d_install"),
        *("test_compat_cudnn", "test_compat_fla", "test_compat_sglang", "test_compat_vllm"),
        *("gpu/test_update_kernel", "gpu/test_update_forms", "gpu/test_update_chains"),
        *("gpu/test_few_taps", "gpu/test_few_taps_channels", "gpu/test_sequences_chains"),
        "test_long_filter",
        "gpu/test_transposed_kernels",
        "gpu/test_transposed_dense",
        "gpu/test_dense",
        "gpu/test_dense_strides",
        "gpu/test_dense_groups",
        *("gpu/test_dense_converted", "gpu/test_dense_split_k"),
        "gpu/test_depthwise_windows",
        "gpu/test_depthwise_strides",
        "gpu/test_long_filter_kernel",
        "test_fourier",
        "gpu/test_fourier_kernel",
        "gpu/test_few_outputs",
    ),
    "stencils": ("test_filter2d", "test_filter2d_windows", "gpu/test_filter2d_strips"),
    "streams": (
        *(
            "test_stream_faults",
            "test_stream_iter",
            "test_stream_map",
            "test_stream_out",
            "test_record_streams",
            "test_stream_report",
        ),
        *(
            "test_stream_memory",
            "test_stream_schedule",
            "test_stream_settled",
            "test_streamer",
            "gpu/test_host_work",
            "gpu/test_stream",
            "gpu/test_stream_buffers",
        ),
    ),
    "life": ("test_stream_life",),
    "others": (
        *("test_arguments", "test_autocast", "test_autograd", "test_empty", "test_fakes", "test_flops"),
        *("test_overlap", "test_views", "test_nn", "test_nn_repeated"),
        *("gpu/test_nn_packing", "test_compat_transformers"),
        *("test_compile", "test_demo", "test_docs", "test_errors", "test_examples"),
        *("gpu/test_bench_clock", "gpu/test_cpp_stage", "gpu/test_device", "gpu/test_launch"),
        *("gpu/test_link_cache", "gpu/test_link_faults"),
        *("gpu/test_every_float", "gpu/test_linking", "gpu/test_pipeline_facts", "gpu/test_prelinked_calls"),
        *("gpu/test_rings", "gpu/test_traps", "gpu/test_compat_layers"),
    ),
    "models": (
        "test_models",
        "test_bench_models",
        "test_compile_backend",
        "test_replace_functional",
        "test_replace_wrappers",
    ),
}
WITHOUT_GPU = (
    *(
        "test_bench",
        "test_bench_decode",
        "test_bench_depthwise",
        "test_bench_filter2d",
        "test_bench_random",
        "test_bench_stream",
        "test_bench_timing",
        "test_binary",
        "test_cpp",
    ),
    *(
        "test_command_line",
        "test_cpu",
        "test_cpu_convolutions",
        "test_error_words",
        "test_golden",
        "test_gpu_check",
        "test_layout",
    ),
    *("test_link_libraries", "test_linked_code", "test_plan", "test_plan_calls", "test_fake_refusals"),
    *(
        "test_prelinked",
        "test_program_code",
        "test_random_seed",
        "test_record_layers",
        "test_result_bits",
        "test_results",
        "test_source_hash",
    ),
    *("test_replace", "test_replace_calls", "test_replace_folding", "test_replace_models", "test_replace_random"),
    *("test_compile_backend_models", "test_compile_backend_registration", "test_compile_passes"),
    *("test_compile_passes_graphs", "test_compile_passes_random", "test_vmap", "test_vocoder"),
)


def tests(part: str) -> list[str]:
    files = [f"tests/{name}.py" for name in TESTS[part]]
    return [*PYTEST, *WORKERS, "--durations=8", "-m", "not large and not alone", "-k", "not cpu", *files]


PARTS: dict[str, list[str]] = {
    **{part: tests(part) for part in TESTS},
    "alone": [*PYTEST, "--durations=8", "-m", "alone", "-k", "not cpu", "tests"],
    "large": [*PYTEST, "-m", "large", "tests/gpu"],
}
for _family in FAMILIES:
    PARTS[f"memcheck{_family}"] = sanitizer("memcheck", *OURS, family=_family)
    PARTS[f"racecheck{_family}"] = [*sanitizer("racecheck", *OURS, family=_family), *RACECHECK]
    # All kernels: what one of torch's wrote counts as written only where it is watched.
    PARTS[f"initcheck{_family}"] = sanitizer("initcheck", family=_family)
    PARTS[f"synccheck{_family}"] = [*sanitizer("synccheck", *OURS, family=_family), *SYNCCHECK]


# A part leaves most of the cores idle at its end: these run one after another within a lane, the lanes concurrently.
LANES = (
    ("others", "life"),
    ("streams", "stencils"),
    ("models",),
    ("convolutions", "pointwise"),
    # A sanitizer takes one core and little of the GPU.
    *((name,) for name in PARTS if "check" in name),
)
# What must not share the GPU, or takes all of its memory.
BY_THEMSELVES = ("alone", "large")


def is_sanitized(name: str) -> bool:
    return "compute-sanitizer" in PARTS[name]


def hung_frames(lines: list[str]) -> list[str]:
    """Where tests were that hung: the frames that faulthandler wrote, but for those of pytest and its workers."""
    frames = [line for line in lines if re.match(r'  File "/.*", line \d+ in ', line)]
    return [frame for frame in frames if not re.search(r"/(_pytest|pluggy|execnet|xdist)/", frame)]


def run_part(name: str) -> dict[str, object] | None:
    """The part's counts, or None where it failed."""
    print(f"gpu-check: {name} ...", flush=True)
    log = LOGS / f"{name}.log"
    # Every tensor an allocation of its own, so that a byte read past one is seen.
    uncached = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"} if is_sanitized(name) else {}
    environment = {**os.environ, **THREADS, **uncached}
    start = time.monotonic()
    with log.open("w") as file:
        try:
            status = subprocess.run(
                PARTS[name], cwd=ROOT, stdout=file, stderr=subprocess.STDOUT, env=environment, timeout=PART_SECONDS
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
        asserted = [line for line in lines if line.startswith("E   ")]
        print("\n".join([*asserted[:20], *hung_frames(lines)[:20], *lines[-40:]]))
        print(f"gpu-check: {name} FAILED (exit status {status}, {log})")
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
    """Those that passed on the sources that there are."""
    return [name for name, part in receipt_parts().items() if part.get("sources") == part_hash(name)]


def machine() -> dict[str, str]:
    import torch

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
    import torch

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

    def run_lane(names: tuple[str, ...]) -> None:
        for name in names:
            if name not in wanted or name in passed or (result := run_part(name)) is None:
                continue
            with lock:
                add_to_receipt(name, {**result, **here, "sources": part_hash(name)})

    with concurrent.futures.ThreadPoolExecutor() as pool:
        list(pool.map(run_lane, LANES))
    run_lane(BY_THEMSELVES)
    missing = [name for name in PARTS if name not in passed_parts()]
    print(f"gpu-check: {'still to pass: ' + ' '.join(missing) if missing else 'all parts have passed'}")
    return 1 if set(missing) & set(wanted) else 0


if __name__ == "__main__":
    sys.exit(main())
