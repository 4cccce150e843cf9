"""Times the first call of a chain: compiled, read from disk by a second process, and torch.compile's beside them.

    time_linking.py        on a GPU; prints milliseconds (docs/measurements/linking.md)

Every chain is new: the text of its C++ stage has a unique number. The processes share a cache directory, empty at
first. Prelinked chains are timed beside them, in a dense convolution.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile

PROGRAM = """
import json, sys, time
import torch
import torch.nn.functional as F
import sluice
from sluice import stages

x = torch.randn(1 << 20, device="cuda", dtype=torch.bfloat16)
w = torch.randn(1024, 1, 4, device="cuda", dtype=torch.bfloat16)
rows = x.view(1, 1024, 1024)
dense = torch.randn(128, 128, 3, device="cuda", dtype=torch.bfloat16) / 20
signal, alpha = x.view(1, 128, 8192), torch.rand(128, 1, device="cuda", dtype=torch.bfloat16)

def milliseconds(call):
    torch.cuda.synchronize()
    start = time.perf_counter()
    call()
    torch.cuda.synchronize()
    return round((time.perf_counter() - start) * 1e3, 1)

def chain(i):
    return stages.scale(1.5) | stages.add(x) | stages.cpp(f"x * tanhf(x) + {i}.0f") | stages.silu()

def convolution(i):
    post = stages.cpp(f"x * tanhf(x) + {i}.0f") | stages.silu()
    return lambda: sluice.conv1d(rows, w, padding=3, groups=1024, post=post)

def activated(post):
    return lambda: sluice.conv1d(signal, dense, padding=1, post=post)

(stages.scale(2.0))(x[:100])  # CUDA's own start, and the library's: interpreted, because it is small
sluice.conv1d(signal, dense, padding=1)
activations = [stages.relu(), stages.leaky_relu(0.1), stages.gelu(), stages.silu(), stages.snake(alpha)]
result = {"transform": [milliseconds(lambda: chain(i)(x)) for i in range(8)],
          "conv1d": [milliseconds(convolution(i)) for i in range(4)],
          "dense": [milliseconds(activated(stages.cpp(f"x * tanhf(x) + {i}.0f"))) for i in range(4)],
          "come linked": [milliseconds(activated(post)) for post in activations]}
if sys.argv[1:] == ["compile"]:
    f = torch.compile(lambda x, y: F.silu((1.5 * x + y) * torch.tanh(1.5 * x + y) + 1.0), dynamic=False)
    result["torch.compile, a process's first"] = [milliseconds(lambda: f(x, x))]
    g = torch.compile(lambda x, y: F.silu((1.5 * x + y) * torch.tanh(1.5 * x + y) + 2.0), dynamic=False)
    result["torch.compile, the next"] = [milliseconds(lambda: g(x, x))]
print(json.dumps(result))
"""


def run(directory: str, *arguments: str) -> dict[str, list[float]]:
    environment = {**os.environ, "SLUICE_CACHE_DIR": directory, "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1"}
    command = [sys.executable, "-c", PROGRAM, *arguments]
    output = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
    result: dict[str, list[float]] = json.loads(output.splitlines()[-1])
    return result


def main() -> int:
    with tempfile.TemporaryDirectory() as directory:
        first, second = run(directory, "compile"), run(directory)
    for label, times in (("compiled", first), ("read from disk", second)):
        for op in ("transform", "conv1d", "dense", "come linked"):
            print(f"{op}, {label}: first {times[op][0]} ms, then median {statistics.median(times[op][1:])} ms")
    for label in ("torch.compile, a process's first", "torch.compile, the next"):
        print(f"{label}: {first[label][0]} ms")
    return 0


if __name__ == "__main__":
    sys.exit(main())
