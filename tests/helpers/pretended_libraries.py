"""Shared objects that say they are NVRTC or nvJitLink of some version."""

from __future__ import annotations

import pathlib
import shutil
import subprocess

COMPILER = shutil.which("g++")
NVRTC = [
    "CreateProgram",
    "CompileProgram",
    "DestroyProgram",
    "GetLTOIRSize",
    "GetLTOIR",
    "GetProgramLogSize",
    "GetProgramLog",
]
LINKER = [
    "Create",
    "Destroy",
    "AddData",
    "Complete",
    "GetLinkedCubinSize",
    "GetLinkedCubin",
    "GetErrorLogSize",
    "GetErrorLog",
]


def pretender(folder: pathlib.Path, name: str, version: tuple[int, int], *flags: str, lacks: str = "") -> str:
    """A shared object that says it is `name` (libnvrtc.so.12) in that version, and does nothing."""
    prefix, functions = ("nvrtc", NVRTC) if "nvrtc" in name else ("nvJitLink", LINKER)
    source = "".join(f"int {prefix}{function}() {{ return 1; }}\n" for function in functions if function != lacks)
    source += f"int {prefix}Version(int* a, int* b) {{ *a = {version[0]}; *b = {version[1]}; return 0; }}\n"
    folder.mkdir(exist_ok=True, parents=True)
    path = folder / name
    command = [str(COMPILER), "-shared", "-fPIC", "-x", "c", "-", "-o", str(path), f"-Wl,-soname,{name}", *flags]
    subprocess.run(command, input=source, text=True, check=True)
    return str(path)
