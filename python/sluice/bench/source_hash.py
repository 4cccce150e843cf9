"""`source_hash`: which sources a measurement was made with.

Standard library only, so that a tool can load this file alone, without torch and without a build.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

# The sources that behaviour on a GPU depends on. Python wrappers, tests and documents are left out on purpose:
# editing them must not make a measurement stale.
_FOLDERS = ("kernels", "ops", "python/sluice/stream")
_FILES = ("CMakeLists.txt",)
_NO_SOURCES = frozenset({".md", ".pyc", ".so"})

# Files whose comments a compiler reads, so that they are hashed byte for byte.
_WITH_COMMENTS: frozenset[str] = frozenset()

# For each language, literals that may look like a comment, and comments.
_C = (
    rb"""\b[0-9][\w.']*|R"(?P<raw>[^\s()\\]*)\(.*?\)(?P=raw)"|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'""",
    rb"""//(?:\\\n|[^\n])*|/\*.*?\*/""",
)
_CMAKE = (
    rb"""\[(?P<argument>=*)\[.*?\](?P=argument)\]|"(?:\\.|[^"\\])*\"""",
    rb"""\#\[(?P<block>=*)\[.*?\](?P=block)\]|\#[^\n]*""",
)
_PYTHON = (
    rb"""\"{3}(?:\\.|[^\\])*?\"{3}|'{3}(?:\\.|[^\\])*?'{3}|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'""",
    rb"""\#[^\n]*""",
)
_LANGUAGES = dict.fromkeys((".cpp", ".cu", ".cuh", ".def", ".h", ".in"), _C) | {".py": _PYTHON, ".txt": _CMAKE}


def without_comments(path: Path) -> bytes:
    """A file's bytes without comments, blank lines and white space at line ends, which literals keep.

    A comment becomes a space. Files of other languages, and files whose comments matter, come as they are.
    """
    text = path.read_bytes()
    if path.name in _WITH_COMMENTS or path.suffix not in _LANGUAGES:
        return text
    literal, comment = _LANGUAGES[path.suffix]

    def replace(removed: bytes, by: bytes, text: bytes) -> bytes:
        pattern = re.compile(rb"(?P<literal>%b)|%b" % (literal, removed), re.DOTALL)
        return pattern.sub(lambda found: by if found["literal"] is None else found["literal"], text)

    return replace(rb"[ \t\r]*\n(?:[ \t\r]*\n)*", b"\n", replace(comment, b" ", text) + b"\n").lstrip(b"\n")


def hashed_sources(root: Path) -> Iterator[Path]:
    """The files that the hash is of."""
    for name in _FILES:
        if (root / name).is_file():
            yield root / name
    for name in _FOLDERS:
        for path in (root / name).rglob("*"):
            if path.is_file() and path.suffix not in _NO_SOURCES and "__pycache__" not in path.parts:
                yield path


def source_hash(root: Path) -> str:
    """SHA-256 over kernels/, ops/, python/sluice/stream/ and CMakeLists.txt, in hex.

    The files are taken in the order of their POSIX paths relative to `root`, each as path (UTF-8), one NUL byte,
    and what `without_comments` leaves of it, so that a better comment makes no measurement stale. A folder that does
    not exist counts as empty; `__pycache__`, `*.pyc` and `*.so` do not count.

    Args:
        root: the checkout.

    Returns:
        64 hexadecimal digits.

    Example:
        >>> import pathlib, tempfile
        >>> from sluice.bench import source_hash
        >>> with tempfile.TemporaryDirectory() as empty:
        ...     source_hash(pathlib.Path(empty))[:8]
        'e3b0c442'
    """
    return hash_of({path.relative_to(root).as_posix(): without_comments(path) for path in hashed_sources(root)})


def hash_of(sources: Mapping[str, bytes]) -> str:
    """SHA-256 over files in the order of their names, in hex: each as its name, one NUL byte, and its bytes."""
    digest = hashlib.sha256()
    for name in sorted(sources):
        digest.update(name.encode() + b"\0" + sources[name])
    return digest.hexdigest()


def _is_checkout(directory: Path) -> bool:
    return (directory / "CMakeLists.txt").is_file() and all(
        (directory / name).is_dir() for name in ("kernels", "ops", "benchmarks")
    )


def checkout_root() -> Path:
    """The checkout that contains this package, else the one around the working directory.

    Raises:
        FileNotFoundError: there is neither: the package was installed, and the working directory is elsewhere.
    """
    here = Path.cwd()
    for directory in (*Path(__file__).resolve().parents, here, *here.parents):
        if _is_checkout(directory):
            return directory
    raise FileNotFoundError(
        "the benchmarks are in sluice's source checkout, not in the installed package; "
        f"run in a checkout (a folder with CMakeLists.txt, kernels/, ops/ and benchmarks/), got {here}"
    )
