"""The choice of NVRTC and nvJitLink in a process that has loaded other versions of them."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest
import torch

import sluice
from common import ROOT
from pretended_libraries import COMPILER, pretender

pytestmark = [pytest.mark.no_gpu, pytest.mark.skipif(COMPILER is None, reason="needs a C++ compiler")]


SEARCH = """
#include <iostream>
#include "kernels/linking/libraries.h"
int main() {
  const auto& found = sluice::link_libraries();
  std::cout << found.versions << "\\n" << found.identity << "\\n" << found.unavailable << "\\n";
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The search, for kernels built with a CUDA 77.3 that no machine has."""
    path = tmp_path_factory.mktemp("search") / "search"
    sources = [f"kernels/linking/{name}.cpp" for name in ("libraries", "shared_object")]
    flags = ["-std=c++20", "-DSLUICE_CUDA_MAJOR=77", "-DSLUICE_CUDA_MINOR=3", "-I.", "-Wl,--build-id"]
    command = [str(COMPILER), *flags, *sources, "-x", "c++", "-", "-o", str(path), "-ldl"]
    subprocess.run(command, cwd=ROOT, input=SEARCH, text=True, check=True)
    return path


def search(program: pathlib.Path, *preloaded: str, path: str = "") -> tuple[str, str, str]:
    """Versions, builds, and why there is none."""
    environment = {**os.environ, "LD_PRELOAD": ":".join(preloaded), "LD_LIBRARY_PATH": path}
    result = subprocess.run([str(program)], env=environment, capture_output=True, text=True, check=True)
    versions, builds, unavailable = result.stdout.splitlines()
    return versions, builds, unavailable


def test_loaded_libraries_of_another_version_are_passed_over(program: pathlib.Path, tmp_path: pathlib.Path) -> None:
    others = [pretender(tmp_path, "libnvrtc.so.12", (12, 8)), pretender(tmp_path, "libnvJitLink.so.78", (78, 0))]
    partial = pretender(tmp_path / "partial", "libnvrtc.so.77", (77, 90), lacks="GetLTOIR")
    old = pretender(tmp_path / "old", "libnvJitLink.so.77", (77, 2))
    loaded = [pretender(tmp_path, "libnvrtc.so.77", (77, 3)), pretender(tmp_path, "libnvJitLink.so.77", (77, 4))]
    versions, _, unavailable = search(program, *others, partial, old, *loaded)
    assert (versions, unavailable) == ("NVRTC 77.3, nvJitLink 77.4", "")


def test_torchs_packages_are_searched(program: pathlib.Path, tmp_path: pathlib.Path) -> None:
    hiding = [pretender(tmp_path, "libnvrtc.so.12", (12, 8)), pretender(tmp_path, "libnvJitLink.so.12", (12, 8))]
    torch_library = tmp_path / "packages" / "torch" / "lib" / "libtorch.so"
    torch_library.parent.mkdir(parents=True)
    shutil.copy(pretender(tmp_path, "libnvrtc.so.1", (1, 0)), torch_library)
    for compilers, linkers in (("cu77", "cu77"), ("cuda_nvrtc", "nvjitlink")):
        nvidia = tmp_path / "packages" / "nvidia"
        pretender(nvidia / compilers / "lib", "libnvrtc.so.77", (77, 5))
        pretender(nvidia / linkers / "lib", "libnvJitLink.so.77", (77, 6))
        versions, _, unavailable = search(program, *hiding, str(torch_library))
        assert (versions, unavailable) == ("NVRTC 77.5, nvJitLink 77.6", "")
        shutil.rmtree(nvidia)
    pretender(tmp_path / "system", "libnvrtc.so.77", (77, 7))
    pretender(tmp_path / "system", "libnvJitLink.so.77", (77, 8))
    assert search(program, *hiding, path=str(tmp_path / "system"))[0] == "NVRTC 77.7, nvJitLink 77.8"


def test_what_was_found_is_said_where_nothing_will_do(program: pathlib.Path, tmp_path: pathlib.Path) -> None:
    assert search(program)[2] == (
        "kernels built with CUDA 77.3 need NVRTC of that or a later minor version; found: none"
    )
    others = [pretender(tmp_path, "libnvrtc.so.12", (12, 8)), pretender(tmp_path, "libnvrtc.so.77", (77, 2))]
    assert search(program, *others)[2].endswith(f"found: {others[0]} (12.8), {others[1]} (77.2)")
    right = pretender(tmp_path / "right", "libnvrtc.so.77", (77, 3))
    linker = pretender(tmp_path, "libnvJitLink.so.12", (12, 4))
    wanted = f"need nvJitLink of that or a later minor version; found: {linker} (12.4)"
    assert wanted in search(program, right, linker)[2]


def test_a_build_is_told_by_its_id_or_else_by_its_file(program: pathlib.Path, tmp_path: pathlib.Path) -> None:
    nvrtc = pretender(tmp_path, "libnvrtc.so.77", (77, 3), "-Wl,--build-id=0x0123456789abcdef")
    linker = pretender(tmp_path, "libnvJitLink.so.77", (77, 3), "-Wl,--build-id=none")
    build, file = search(program, nvrtc, linker)[1].split()
    assert build == "0123456789abcdef"
    status = pathlib.Path(linker).stat()
    seconds, nanoseconds = divmod(status.st_mtime_ns, 10**9)
    assert file == f"{status.st_size}@{seconds}.{nanoseconds}"


LINKING = """
import json, sluice
found = sluice.info()["linking"]
builtins = "libnvrtc-builtins" in open("/proc/self/maps").read()  # which NVRTC needs when it compiles
print(json.dumps({**found, "builtins": builtins}))
"""


@pytest.mark.skipif(not hasattr(torch.ops.sluice, "_link_info"), reason="built without CUDA")
def test_the_real_libraries_are_found_behind_others(tmp_path: pathlib.Path) -> None:
    wanted = sluice.info()["linking"]
    if wanted["unavailable"]:
        pytest.skip(f"nothing can be linked here: {wanted['unavailable']}")
    hiding = [pretender(tmp_path, "libnvrtc.so.12", (12, 8)), pretender(tmp_path, "libnvJitLink.so.12", (12, 8))]
    paths = {"LD_PRELOAD": ":".join(hiding), "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", LINKING]
    result = subprocess.run(command, env={**os.environ, **paths}, capture_output=True, text=True, check=True)
    found = json.loads(result.stdout)
    for name in ("unavailable", "libraries", "library_builds"):
        assert found[name] == wanted[name]
    assert found["builtins"]
