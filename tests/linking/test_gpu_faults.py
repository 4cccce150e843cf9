"""Links that fail for a while, and links beyond the limit."""

from __future__ import annotations

import pathlib
import random

import pytest
import torch

import sluice
from link_processes import result_of, start_process
from linked_forms import interpreted, linking
from sluice import stages

pytestmark = pytest.mark.gpu

# Takes all memory of the device, links until another kernel does not fit, and gives the memory back.
SHORT_OF_MEMORY = """
import ctypes, itertools, json, time, torch, sluice
from sluice import stages

driver = ctypes.CDLL("libcuda.so.1")

def take_all():
    held, size = [], 1 << 30
    while size >= 1 << 21:  # the driver keeps the rest of the pages that it has for launches
        pointer = ctypes.c_uint64()
        if driver.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(size)) == 0:
            held.append(pointer)
        else:
            size //= 2
    return held

def counts():
    return sluice.info()["linking"]

x = torch.rand(40_000, device="cuda", dtype=torch.float64)
out = torch.empty_like(x)
makers = [stages.gelu, stages.tanh, stages.softplus, stages.silu, stages.exp]
chains = []
for chosen in itertools.islice(itertools.permutations(makers, 4), 48):
    chain = sluice.Chain()
    for maker in [*chosen, *chosen, *chosen]:
        chain = chain | maker() | stages.sigmoid()
    chains.append(chain)
own = [stages.cpp("erfcx(x) + normcdf(x) + erfinv(x / 2) + asinh(x) + cbrt(x + %d) + log1p(x)" % n) for n in range(48)]

# Before memory is short: the interpreter is loaded, and a linked kernel has had a larger stack than those below have.
torch.ops.sluice._set_link_mode("never")
wanted = [sluice.transform(x, chain).cpu() for chain in chains]
torch.ops.sluice._set_link_mode("always")
sluice.transform(x, stages.cpp("tgamma(x + 1) + lgamma(x + 2) + j0(x) + y1(x + 1)"), out=out)
torch.cuda.synchronize()
torch.cuda.empty_cache()

held = take_all()
results = []
for index, chain in enumerate(chains):
    sluice.transform(x, chain, out=out)
    torch.cuda.synchronize()
    results.append(out.cpu())
    if counts()["postponed"] > 0:
        break
while_short = counts()
started = time.monotonic()
sluice.transform(x, chain, out=out)  # soon after: not tried again yet
resting = counts()["postponed"] if time.monotonic() - started < 0.5 else 1
refused = ""
for stage in own:
    try:
        sluice.transform(x, stage, out=out)
    except torch.OutOfMemoryError as error:
        refused = str(error)
        break
for pointer in held:
    assert driver.cuMemFree_v2(pointer) == 0

try:
    sluice.transform(x, stage, out=out)  # what has no interpreter is tried at every call
except RuntimeError as error:
    raise SystemExit(f"{error}, {counts()}, refused: {refused}, {own.index(stage)} of {len(own)}")
before = counts()["linked_launches"]
time.sleep(1.1)
sluice.transform(x, chain, out=out)
after = counts()
torch.cuda.synchronize()
print(json.dumps({
    "right": all(map(torch.equal, results, wanted)) and torch.equal(out.cpu(), wanted[index]),
    "postponed": while_short["postponed"], "resting": resting, "failed": after["failed"],
    "error": while_short["last_error"], "refused": refused, "linked": after["linked_launches"] - before,
    "compiled": after["compiled"], "kernels": after["linked_kernels"],
}))
"""


@pytest.mark.alone
@pytest.mark.usefixtures("cuda")
def test_memory_that_is_short_disables_no_chain(tmp_path: pathlib.Path) -> None:
    result = result_of(start_process(tmp_path, SHORT_OF_MEMORY))
    assert result["right"]
    assert result["postponed"] == 1, "memory was never short"
    assert result["resting"] == result["postponed"]
    assert "out of memory" in result["error"]
    assert result["refused"].startswith("transform: out of memory: a cpp stage could not be linked")
    assert (result["failed"], result["linked"]) == (0, 1)
    assert result["compiled"] == result["kernels"]  # kernels compiled while memory was short are not compiled again


@pytest.mark.usefixtures("linked_always")
def test_past_their_bound_chains_run_interpreted() -> None:
    x = torch.randn(40_000, device="cuda")
    known, salt = stages.scale(2.0) | stages.tanh(), random.random()
    known(x)
    new = stages.cpp(f"x + {salt}")
    plain = stages.neg() | stages.exp() | stages.neg() | stages.gelu() | stages.square() | stages.abs() | stages.neg()
    reason = "the process has reached its limit of linked kernels"
    limit = torch.ops.sluice._set_link_limit(linking()["linked_kernels"])
    try:
        before = linking()
        assert torch.equal(plain(x), interpreted(lambda: plain(x)))
        assert sluice.prepare(plain, x) == reason
        with pytest.raises(ValueError, match=f"a cpp stage must be linked.*{reason}"):
            new(x)
        assert linking()["linked_launches"] == before["linked_launches"]
        known(x)
        after = linking()
        assert after["linked_launches"] == before["linked_launches"] + 1
        for name in ("compiled", "read_from_disk", "failed", "postponed", "linked_kernels"):
            assert after[name] == before[name]
    finally:
        torch.ops.sluice._set_link_limit(limit)
    torch.testing.assert_close(new(x), x + salt)
    assert sluice.prepare(plain, x) == ""
    after = linking()
    assert after["linked_kernels"] == before["linked_kernels"] + 2
    assert after["linked_bytes"] > before["linked_bytes"] + 2000
