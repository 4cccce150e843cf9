"""Records every kernel's code, to compare a refactoring with: registers, shared memory, spills, instructions, a hash.

    golden.py write FILE [--only REGEX]   of the built tree: interpreted kernels from the objects, linked kernels from
                                          the modules; `--only` reads the objects and modules with such names
    golden.py compare OLD NEW             prints what differs; exit status 1 where more than --percent (default 0:
                                          hashes too); a NEW of `--only` some has the others gone

Addresses, encodings and names are stripped before a kernel's SASS is hashed, so a renamed kernel keeps its hash.
`compare` pairs kernels by name, and renamed kernels by hash. Two differences do not come from the kernels: nvcc's
choices depend on a file's path, so a moved source may compile to other code (a few instructions more or fewer, or in
another order; `--frandom-seed` on both sides removes most of that), and `shared` of a linked kernel depends on the
kernels linked beside it.
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

from offline_linker import OfflineLinker, architectures, cuobjdump, entries, functions, modules, objects, source_of

ARCHS = ("80", "90a")
# It has operands, constants, a stage with a branch and one with a polynomial.
CHAIN = "scale(1.5)|add($0)|silu|clamp($1,2)|gelu"


def instructions(body: str) -> list[str]:
    """A function's instructions as text, without addresses and encodings; targets of jumps relative, names blank."""
    lines = re.findall(r"^\s+/\*([0-9a-f]+)\*/\s+(.*?);", body, re.MULTILINE)
    code = []
    for address, text in lines:
        if re.search(r"\b(BRA|BSSY|CALL|BREAK|RET|WARPSYNC|BRX|JMP|BSYNC|YIELD|LEPC)\b", text):
            here = int(address, 16)
            text = re.sub(r"\b0x[0-9a-f]+\b", lambda m, here=here: f"{int(m[0], 16) - here:+d}", text)
        code.append(re.sub(r"`\(.*?\)", "`()", " ".join(text.split())))
    while code and code[-1] in ("NOP", "BRA +0"):  # padding up to the section's alignment
        code.pop()
    return code


def kernels_of(path: pathlib.Path, dump: str, arch: str) -> dict[str, dict[str, object]]:
    """Function -> its figures."""
    at = ["--gpu-architecture", f"sm_{arch}"] if path.suffix == ".o" else []

    def run(option: str) -> str:
        return subprocess.run([dump, option, *at, str(path)], capture_output=True, text=True).stdout

    usage = dict(re.findall(r"Function (\S+):\n\s*(REG:.*)", run("--dump-resource-usage")))
    found: dict[str, dict[str, object]] = {}
    for name, body in functions(run("--dump-sass")):
        code = instructions(body)
        figures = dict(re.findall(r"(REG|STACK|SHARED):(\d+)", usage[name]))
        found[name] = {
            "registers": int(figures["REG"]),
            "stack": int(figures["STACK"]),
            "shared": int(figures["SHARED"]),
            "spills": sum(bool(re.search(r"\b(LDL|STL)\b", line)) for line in code),
            "instructions": len(code),
            "sass": hashlib.sha256("\n".join(code).encode()).hexdigest()[:16],
        }
    return found


def linked_kernels(module: pathlib.Path, dump: str, linker: OfflineLinker) -> dict[str, dict[str, object]]:
    found: dict[str, dict[str, object]] = {}
    kernels = {name: entry for name, entry in entries().items() if entry.module == module.stem}
    with tempfile.TemporaryDirectory() as folder:
        cubin = pathlib.Path(folder) / "kernels.cubin"
        # Kernels of one shape are linked together; most modules have one.
        for entry in set(kernels.values()):
            chain = linker.compile(source_of(CHAIN, entry.dtype, entry.width, entry.slices))
            cubin.write_bytes(linker.link([], module.read_bytes(), chain))
            linked = kernels_of(cubin, dump, linker.arch)
            found |= {name: figures for name, figures in linked.items() if kernels.get(name) == entry}
    return found


def read_file(arch: str, path: pathlib.Path) -> dict[str, dict[str, object]]:
    """The kernels of an object, or the linked kernels of a module."""
    dump = cuobjdump()
    assert dump is not None
    if path.suffix == ".o":
        return {f"{name} sm_{arch}": figures for name, figures in kernels_of(path, dump, arch).items()}
    linked = linked_kernels(path, dump, OfflineLinker(arch))
    return {f"{name} sm_{arch} linked": figures for name, figures in linked.items()}


def read_tree(only: str) -> dict[str, dict[str, object]]:
    missing = OfflineLinker().missing or ("" if cuobjdump() else "cuobjdump is not installed")
    if missing:
        sys.exit(f"golden: {missing}")
    # The modules of rings take longest, so they come first.
    linked = sorted(modules().items(), key=lambda module: "staged" not in module[0])
    files = [path for name, path in (*linked, *objects().items()) if re.search(only, name)]
    compiled_for = architectures()  # the modules'; an object has no kernels for others
    jobs = [(arch, path) for path in files for arch in ARCHS if arch in compiled_for.get(path.stem, ARCHS)]
    if not jobs:
        sys.exit(f"golden: --only must match the name of an object or a module, got {only}")
    found: dict[str, dict[str, object]] = {}
    # Processes, because the linker works on one module per process at a time.
    with concurrent.futures.ProcessPoolExecutor(os.cpu_count()) as pool:
        for part in pool.map(read_file, *zip(*jobs, strict=True)):
            found |= part
    return dict(sorted(found.items()))


def paired(old: dict, new: dict) -> tuple[list[tuple[str, str]], list[str], list[str]]:
    """Pairs kernels by name, or else by hash; then the removed and the new kernels."""
    pairs = [(name, name) for name in old if name in new]
    gone = [name for name in old if name not in new]
    by_hash = collections.defaultdict(list)
    for name in new:
        if name not in old:
            by_hash[new[name]["sass"], name.split(" ", 1)[1]].append(name)
    lost = []
    for name in gone:
        candidates = by_hash[old[name]["sass"], name.split(" ", 1)[1]]
        if candidates:
            pairs.append((name, candidates.pop()))
        else:
            lost.append(name)
    return pairs, lost, [name for names in by_hash.values() for name in names]


def compare(old: dict, new: dict, percent: float) -> int:
    pairs, gone, added = paired(old, new)
    changed = [(a, b) for a, b in pairs if old[a] != new[b]]
    failures = [f"gone: {name} {old[name]}" for name in gone] + [f"new: {name} {new[name]}" for name in added]
    for a, b in changed:
        far = [
            f"{key} {old[a][key]} -> {new[b][key]}"
            for key in ("registers", "stack", "shared", "spills", "instructions")
            if abs(new[b][key] - old[a][key]) > percent / 100 * old[a][key]
        ]
        if far or percent == 0:
            failures.append(f"{a}: {', '.join(far) or 'another hash'}")
    print("\n".join(failures))
    renamed = sum(a != b for a, b in pairs)
    print(
        f"golden: {len(old)} kernels before, {len(new)} after; {len(pairs) - len(changed)} the same code, "
        f"{renamed} renamed, {len(changed)} changed, {len(gone)} gone, {len(added)} new, "
        f"{len(failures)} beyond {percent:g} %"
    )
    return bool(failures)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    writing = commands.add_parser("write")
    writing.add_argument("file", type=pathlib.Path)
    writing.add_argument("--only", default="", metavar="REGEX")
    comparison = commands.add_parser("compare")
    comparison.add_argument("old", type=pathlib.Path)
    comparison.add_argument("new", type=pathlib.Path)
    comparison.add_argument("--percent", type=float, default=0.0)
    arguments = parser.parse_args()
    if arguments.command == "write":
        found = read_tree(arguments.only)
        arguments.file.write_text(json.dumps(found, indent=1) + "\n")
        print(f"golden: {len(found)} kernels, {sum(k['instructions'] for k in found.values())} instructions")
        return 0
    old, new = (json.loads(path.read_text()) for path in (arguments.old, arguments.new))
    return compare(old, new, arguments.percent)


if __name__ == "__main__":
    sys.exit(main())
