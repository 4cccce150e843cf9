"""Linked kernels without a GPU: NVRTC and nvJitLink make a cubin of the library's embedded modules and of the source
that it writes for a chain. Needs a built tree with tests/cpp in it (SLUICE_TESTS=ON)."""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import os
import pathlib
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator

from source_tree import ROOT

BUILD = ROOT / "build" / "cmake"
BINARY = BUILD / "sluice_test_kernels"
EMBEDDED = BUILD / "embedded.inc"  # the list of files embedded in the library
PRELINKED = BUILD / "prelinked.inc"  # and of embedded kernels that are linked already
FATBIN, LTOIR = 4, 3  # nvJitLinkInputType


def headers() -> list[str]:
    """Exactly the headers that the library has for NVRTC."""
    return re.findall(r'SLUICE_HEADER\(\w+, "(.*)"\)', EMBEDDED.read_text())


def modules() -> dict[str, pathlib.Path]:
    """The library's modules of linked kernels, by name, without those left by an older build."""
    if not EMBEDDED.exists():
        return {}
    names = re.findall(r"SLUICE_MODULE\((\w+),", EMBEDDED.read_text())
    files = {name: BUILD / "modules" / f"{name}.fatbin" for name in names}
    return {name: path for name, path in files.items() if path.exists()}


def architectures() -> dict[str, list[str]]:
    """The architectures that each module has LTO-IR for, by the module's name."""
    listed = re.findall(r'SLUICE_MODULE\((\w+), "([^"]*)"', EMBEDDED.read_text())
    return {name: code.split(",") for name, code in listed}


def objects() -> dict[str, pathlib.Path]:
    """The library's objects of CUDA sources, by source name (transform/launch_direct_float16.cu)."""
    commands = BUILD / "compile_commands.json"
    if not commands.exists():
        return {}
    outputs = re.findall(r" -o (\S+[.]cu[.]o)\b", commands.read_text())
    files = {re.sub(r"^.*?[.]dir/(__/instances/)?|[.]o$", "", output): BUILD / output for output in outputs}
    return {name: path for name, path in files.items() if path.exists()}


def cuobjdump() -> str | None:
    beside = [pathlib.Path(p) / "nvidia" / "cu13" / "bin" / "cuobjdump" for p in sys.path]
    return next((str(p) for p in beside if p.exists()), None) or shutil.which("cuobjdump")


def functions(sass: str) -> Iterator[tuple[str, str]]:
    """Name and body of each function that cuobjdump printed."""
    for part in sass.split("Function : ")[1:]:
        name, _, body = part.partition("\n")
        yield name.strip(), body


def _library(name: str) -> ctypes.CDLL | None:
    """NVRTC or nvJitLink from the environment's packages: torch with CUDA brings them, and so does our own set-up."""
    for folder in sys.path:
        libraries = pathlib.Path(folder) / "nvidia" / "cu13" / "lib"
        for found in libraries.glob(f"{name}.so.13"):
            for part in libraries.glob(f"{name}-builtins.so.13*"):  # NVRTC opens these by bare name
                ctypes.CDLL(str(part))
            return ctypes.CDLL(str(found))
    return None


def _strings(texts: list[str]) -> ctypes.Array[ctypes.c_char_p]:
    return (ctypes.c_char_p * len(texts))(*(text.encode() for text in texts))


def _read(size_of, get, handle: ctypes.c_void_p) -> bytes:
    size = ctypes.c_size_t()
    assert size_of(handle, ctypes.byref(size)) == 0
    data = ctypes.create_string_buffer(size.value)
    assert get(handle, data) == 0
    return data.raw


class OfflineLinker:
    """Compiles and links as kernels/linking/compile.cpp does: LTO-IR of one architecture, "90a" or "80", for a device.

    Attributes:
        arch: the LTO-IR's architecture.
        device: the architecture of the code that is linked, by default the same.
    """

    def __init__(self, arch: str = "90a", device: str = "") -> None:
        self.arch, self.device = arch, device or arch
        self.nvrtc, self.nvjitlink = _library("libnvrtc"), _library("libnvJitLink")

    @property
    def missing(self) -> str:
        """The missing part; empty if linking can work."""
        if not (BINARY.exists() and modules()):
            return "not built here"
        return "" if self.nvrtc and self.nvjitlink else "NVRTC or nvJitLink is not installed"

    def compile_options(self) -> list[str]:
        return [f"--gpu-architecture=compute_{self.arch}", "-std=c++17", "-dlto", "--fmad=false", "-default-device"]

    def link_options(self, *kernels: str) -> list[str]:
        return [f"-arch=sm_{self.device}", "-lto", "-O3", "-fma=0", *(f"-kernels-used={kernel}" for kernel in kernels)]

    def compile(self, source: str) -> bytes:
        """LTO-IR of a source that `source_of` gave."""
        program, names = ctypes.c_void_p(), headers()
        texts = [(ROOT / name).read_text() for name in names]
        assert self.nvrtc.nvrtcCreateProgram(
            ctypes.byref(program), source.encode(), b"chain", len(names), _strings(texts), _strings(names)
        ) == 0  # fmt: skip
        options = self.compile_options()
        status = self.nvrtc.nvrtcCompileProgram(program, len(options), _strings(options))
        log = _read(self.nvrtc.nvrtcGetProgramLogSize, self.nvrtc.nvrtcGetProgramLog, program).decode()
        assert status == 0, log
        return _read(self.nvrtc.nvrtcGetLTOIRSize, self.nvrtc.nvrtcGetLTOIR, program)

    def link(self, kernels: list[str], module: bytes, chain: bytes) -> bytes:
        """The cubin of these kernels of the module, or of all if none is named."""
        handle = ctypes.c_void_p()
        options = self.link_options(*kernels)
        assert self.nvjitlink.nvJitLinkCreate(ctypes.byref(handle), len(options), _strings(options)) == 0
        for kind, data in ((FATBIN, module), (LTOIR, chain)):
            size = ctypes.c_size_t(len(data))
            assert self.nvjitlink.nvJitLinkAddData(handle, kind, data, size, b"input") == 0
        assert self.nvjitlink.nvJitLinkComplete(handle) == 0
        return _read(self.nvjitlink.nvJitLinkGetLinkedCubinSize, self.nvjitlink.nvJitLinkGetLinkedCubin, handle)

    def _kernels(self, module: bytes) -> list[str]:
        handle = ctypes.c_void_p()
        options = _strings([f"-arch=sm_{self.arch}", "-lto", "-ptx", "-O0"])
        size = ctypes.c_size_t(len(module))
        assert self.nvjitlink.nvJitLinkCreate(ctypes.byref(handle), len(options), options) == 0
        assert self.nvjitlink.nvJitLinkAddData(handle, FATBIN, module, size, b"input") == 0
        assert self.nvjitlink.nvJitLinkComplete(handle) == 0
        ptx = _read(self.nvjitlink.nvJitLinkGetLinkedPtxSize, self.nvjitlink.nvJitLinkGetLinkedPtx, handle)
        return re.findall(r"\.entry (\w+)", ptx.decode())


@dataclasses.dataclass(frozen=True)
class Entry:
    """A linked kernel: its module, and the vectors that its last chain is called on."""

    module: str
    dtype: str
    width: int
    slices: int


@functools.cache
def entries() -> dict[str, Entry]:
    """Every linked kernel that a plan can name, as link_request does (tests/cpp/linked_entries.cpp)."""
    found = {}
    for dense in ("", "portable"):
        environment = {**os.environ, "SLUICE_DENSE": dense}
        command = [str(BINARY), "entries"]
        listed = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout
        for line in listed.splitlines():
            kernel, module, dtype, width, slices = line.split()
            found[kernel] = Entry(module, dtype, int(width), int(slices))
    return found


def source_of(chain: str, dtype: str, width: int, slices: int) -> str:
    """The source that the library gives NVRTC for the chain on `slices` of `width` values each."""
    arguments = [str(BINARY), "source", chain, dtype, str(width), str(slices)]
    return subprocess.run(arguments, capture_output=True, text=True, check=True).stdout


def dense_sources(post: str) -> dict[str, str]:
    """The same for every dense kernel of conv1d that a plan names, by the kernel, with `post` after it."""
    listed = subprocess.run([str(BINARY), "dense_sources", post], capture_output=True, check=True).stdout.decode()
    parts = listed.split("\0")
    return dict(zip(parts[0:-1:2], parts[1::2], strict=True))


def prelinked() -> dict[str, bytes]:
    """The fatbins of kernels that the library has linked, by the names of kernels/linking/prelinked.h."""
    lists = re.findall(r'incbin \\"(.*?)\\"', PRELINKED.read_text())
    return {name: code for path in lists for name, code in kernels_of_list(pathlib.Path(path)).items()}


def kernels_of_list(path: pathlib.Path) -> dict[str, bytes]:
    found, rest = {}, path.read_bytes()
    while rest:
        name, size = rest[:32].decode(), int.from_bytes(rest[32:40], "little")
        found[name], rest = rest[40 : 40 + size], rest[40 + size :]
    return found


def digest_text(text: str) -> str:
    """The digest of kernels/linking/digest.h."""

    def half(state: int) -> str:
        for byte in text.encode():
            state = (state ^ byte) * 0x100000001B3 % 2**64
        return f"{state ^ state >> 32:016x}"

    return half(0xCBF29CE484222325) + half(0x9E3779B97F4A7C15)


def kernels_in(modules: list[pathlib.Path]) -> dict[pathlib.Path, list[str]]:
    """The names of the kernels of each module, found in a separate process by quick links with -O0: after a
    quick link, nvJitLink makes other code in every later link of the process, even with -O3."""
    command = [sys.executable, __file__, *map(str, modules)]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    return {path: line.split() for path, line in zip(modules, listed, strict=True)}


if __name__ == "__main__":
    linker = OfflineLinker()
    for path in sys.argv[1:]:
        print(*linker._kernels(pathlib.Path(path).read_bytes()))
