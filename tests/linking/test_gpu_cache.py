"""The disk cache of linked kernels, shared by many processes."""

from __future__ import annotations

import functools
import pathlib
import shutil
import stat
import subprocess

import link_processes
from link_processes import finish, result_of
from marks import LINKED_ON_GPU

pytestmark = LINKED_ON_GPU


PROGRAM = """
import json, torch, sluice
from sluice import stages
x = torch.arange(40_000, device="cuda", dtype=torch.float32) / 1e4
y = (stages.scale(1.5) | stages.tanh() | stages.cpp("x * x + 0.5"))(x)
print(json.dumps({**sluice.info()["linking"], "sum": y.double().sum().item()}))
"""

start_process = functools.partial(link_processes.start_process, program=PROGRAM)


def test_a_second_process_reads_what_the_first_compiled(tmp_path: pathlib.Path) -> None:
    first, second = result_of(start_process(tmp_path)), result_of(start_process(tmp_path))
    assert (first["compiled"], first["read_from_disk"]) == (1, 0)
    assert (second["compiled"], second["read_from_disk"]) == (0, 1)
    assert first["sum"] == second["sum"]
    for damage in (lambda data: data[: len(data) // 2], lambda data: data[:-100] + b"x" * 100, lambda _: b""):
        for entry in tmp_path.iterdir():
            entry.write_bytes(damage(entry.read_bytes()))
        third = result_of(start_process(tmp_path))
        assert (third["compiled"], third["read_from_disk"], third["sum"]) == (1, 0, first["sum"])


def test_another_build_of_the_linker_does_not_share_entries(tmp_path: pathlib.Path) -> None:
    """The other build has the same version: a copy in which a byte of the build id differs."""
    maps = pathlib.Path("/proc/self/maps").read_text().splitlines()
    loaded = next(line.split(maxsplit=5)[5] for line in maps if "/libnvJitLink.so." in line)
    library = bytearray(pathlib.Path(loaded).read_bytes())
    note = library.index(b"\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0")  # its name has 4 bytes, the id 20
    library[note + 16] ^= 0xFF
    other = tmp_path / "other" / pathlib.Path(loaded).name
    other.parent.mkdir()
    other.write_bytes(library)
    cache = tmp_path / "cache"
    first, changed = result_of(start_process(cache)), result_of(start_process(cache, LD_PRELOAD=str(other)))
    assert first["libraries"] == changed["libraries"]
    assert first["library_builds"] != changed["library_builds"]
    assert (changed["compiled"], changed["read_from_disk"], changed["sum"]) == (1, 0, first["sum"])
    for environment in ({}, {"LD_PRELOAD": str(other)}):
        assert result_of(start_process(cache, **environment))["read_from_disk"] == 1


def test_a_folder_of_the_users_keeps_what_is_in_it(tmp_path: pathlib.Path) -> None:
    for name in ("thesis.tex", "model.cubin"):
        (tmp_path / name).write_text("x" * 1000)
    tmp_path.chmod(0o755)
    result = result_of(start_process(tmp_path))
    assert (result["compiled"], result["cache_problem"]) == (1, "")
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755
    (entry,) = [path for path in tmp_path.iterdir() if path.name.startswith("sluice-")]
    assert stat.S_IMODE(entry.stat().st_mode) == 0o600
    assert {path.name for path in tmp_path.iterdir()} == {"thesis.tex", "model.cubin", entry.name}
    tmp_path.chmod(0o777)  # anyone who can write there could choose the code that runs
    result = result_of(start_process(tmp_path))
    assert (result["compiled"], result["read_from_disk"]) == (1, 0)
    assert "users other than its owner may write to it" in result["cache_problem"]
    tmp_path.chmod(0o755)
    assert result_of(start_process(tmp_path))["read_from_disk"] == 1


def test_processes_share_a_cache(tmp_path: pathlib.Path) -> None:
    results = [result_of(p) for p in [start_process(tmp_path) for _ in range(4)]]
    assert len({r["sum"] for r in results}) == 1
    assert result_of(start_process(tmp_path))["read_from_disk"] == 1
    assert [path.suffix for path in tmp_path.iterdir()] == [".cubin"]  # no partly written file remains


def test_a_cache_that_cannot_be_used_costs_nothing_else(tmp_path: pathlib.Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("no directory")
    for directory, problem in ((blocked, "Not a directory"), ("/proc/nowhere", "cannot be opened"), ("", "")):
        result = result_of(start_process(directory))
        assert result["compiled"] == 1
        assert problem in result["cache_problem"]
    wanted = result_of(start_process(tmp_path / "new"))["sum"]
    locked = tmp_path / "locked"
    locked.mkdir()
    locked.chmod(0o500)
    assert result_of(start_process(locked))["sum"] == wanted


def test_a_disk_that_is_full_leaves_nothing_behind(tmp_path: pathlib.Path) -> None:
    wanted = result_of(start_process(tmp_path / "roomy"))["sum"]
    (tmp_path / "full").mkdir()
    # A file may have 1000 bytes: the write of a kernel ends in the middle, as it does where the disk is full.
    result = result_of(start_process(tmp_path / "full", limit=1000))
    assert (result["compiled"], result["sum"]) == (1, wanted)
    assert list((tmp_path / "full").iterdir()) == []


# A linker that takes everything and links nothing.
BROKEN_LINKER = """
#include <string.h>
int nvJitLinkVersion(unsigned* major, unsigned* minor) { *major = 13; *minor = 99; return 0; }
int nvJitLinkCreate(void** handle, unsigned count, const char** options) { *handle = handle; return 0; }
int nvJitLinkDestroy(void** handle) { return 0; }
int nvJitLinkAddData(void* handle, int kind, const void* data, size_t size, const char* name) { return 0; }
int nvJitLinkComplete(void* handle) { return 1; }
int nvJitLinkGetLinkedCubinSize(void* handle, size_t* size) { return 1; }
int nvJitLinkGetLinkedCubin(void* handle, void* cubin) { return 1; }
int nvJitLinkGetErrorLogSize(void* handle, size_t* size) { *size = 13; return 0; }
int nvJitLinkGetErrorLog(void* handle, char* log) { memcpy(log, "made to fail", 13); return 0; }
"""

FAILING = """
import json, torch, sluice
from sluice import stages
x = torch.randn(40_000, device="cuda")
results = [chain(x) for chain in (stages.relu(), stages.neg(), stages.relu(), stages.scale(2.0) | stages.neg())]
right = all(torch.equal(a, b) for a, b in zip(results, (x.relu(), -x, x.relu(), -2 * x)))
try:
    stages.cpp("x + 1")(x)
    refused = ""
except ValueError as error:
    refused = str(error)
print(json.dumps({**sluice.info()["linking"], "right": right, "refused": refused}))
"""


def test_a_link_that_fails_is_said_once_and_interpreted(tmp_path: pathlib.Path) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc")
    assert compiler is not None
    linker = tmp_path / "libnvJitLink.so.broken"
    source = tmp_path / "broken.c"
    source.write_text(BROKEN_LINKER)
    subprocess.run([compiler, "-shared", "-fPIC", "-w", str(source), "-o", str(linker)], check=True)
    result, printed = finish(start_process(tmp_path / "cache", program=FAILING, LD_PRELOAD=str(linker)))
    assert result["right"]
    assert (result["failed"], result["linked_launches"], result["compiled"]) == (4, 0, 0)
    assert "made to fail" in result["last_error"]
    (warning,) = [line for line in printed.splitlines() if "could not be linked" in line]
    assert "made to fail" in warning
    assert "cpp stage must be linked" in result["refused"]
    assert "made to fail" in result["refused"]
