"""The import graph of the package, read from the sources; includes imports in functions and for types."""

from __future__ import annotations

import ast
import pathlib

Graph = dict[str, set[str]]


def modules(root: pathlib.Path) -> dict[str, pathlib.Path]:
    """The files of a package by the names of their modules."""
    found = {}
    for path in sorted(root.rglob("*.py")):
        parts = [root.name, *path.relative_to(root).with_suffix("").parts]
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(name: str, path: pathlib.Path, known: dict[str, pathlib.Path]) -> set[str]:
    """The modules of `known` that the module `name` imports, anywhere in its source."""
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            found |= {f"{base}.{alias.name}" if f"{base}.{alias.name}" in known else base for alias in node.names}
    return (found & known.keys()) - {name}


def graph(root: pathlib.Path) -> Graph:
    """The imports of each module of a package."""
    known = modules(root)
    return {name: imported(name, path, known) for name, path in known.items()}


def between_folders(modules: Graph, package: str) -> Graph:
    """The same for the folders of a package; other modules are left out."""
    prefix = package + "."
    found: Graph = {}

    def folder(name: str) -> str:
        here, _, inside = name.removeprefix(prefix).partition(".")
        return here if name.startswith(prefix) and inside else ""

    for name, others in modules.items():
        if here := folder(name):
            found.setdefault(here, set()).update({folder(other) for other in others} - {here, ""})
    return found


def circle(edges: Graph) -> list[str]:
    """A path from a module back to itself; empty if there is none."""
    done: set[str] = set()

    def walk(name: str, way: list[str]) -> list[str]:
        if name in way:
            return [*way[way.index(name) :], name]
        if name in done:
            return []
        for other in sorted(edges.get(name, ())):
            if found := walk(other, [*way, name]):
                return found
        done.add(name)
        return []

    return next((found for name in edges if (found := walk(name, []))), [])
