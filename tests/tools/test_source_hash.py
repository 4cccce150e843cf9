"""`source_hash`: what makes a measurement stale, and what does not."""

from __future__ import annotations

import ast
import hashlib
import pathlib
import subprocess

import pytest

from common import ROOT
from sluice import bench
from sluice.bench.source_hash import hashed_sources, without_comments


@pytest.fixture
def tree(tmp_path):
    files = {"kernels/a/b.cu": b"1", "kernels/a.cu": b"2", "ops/x.cpp": b"", "CMakeLists.txt": b"project(x)"}
    files["python/sluice/stream/s.py"] = b"\xff\x00"
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    return tmp_path


def test_matches_a_hand_computed_tree(tree):
    # '.' sorts before '/', and capitals before small letters
    expected = b"CMakeLists.txt\0project(x)\nkernels/a.cu\x002\nkernels/a/b.cu\x001\nops/x.cpp\0"
    expected += b"python/sluice/stream/s.py\0\xff\x00\n"
    assert bench.source_hash(tree) == hashlib.sha256(expected).hexdigest()


def test_code_or_a_path_changes_it(tree):
    hashes = {bench.source_hash(tree)}
    (tree / "ops/x.cpp").rename(tree / "ops/y.cpp")
    hashes.add(bench.source_hash(tree))
    (tree / "ops/y.cpp").write_bytes(b";")
    assert len(hashes | {bench.source_hash(tree)}) == 3


@pytest.mark.parametrize(
    ("name", "same", "other"),
    [
        ("kernels/a.cu", b"// why\n\n2  /* here\n   too */\t\n \n", b"2 2"),
        ("kernels/a.cu", b"2// it's \\\n the next line as well\n", b"2\nthe"),
        ("ops/x.cpp", b"\n\n  // nothing\n", b'"//"'),
        ("CMakeLists.txt", b"# a build\nproject(x) # of x\n#[[ two\nlines ]]\n", b"project(y)"),
        ("python/sluice/stream/s.py", b"# bytes\n\xff\x00  # here\n", b"'''\n\xff\x00'''"),
    ],
)
def test_comments_and_blank_lines_do_not(tree, name, same, other):
    before = bench.source_hash(tree)
    (tree / name).write_bytes(same)
    assert bench.source_hash(tree) == before
    (tree / name).write_bytes(other)
    assert bench.source_hash(tree) != before


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.h", b"int x = 1'000; char c = '\"', d = '\\''; const char* s = \"// \\\" /* kept */\";\n"),
        ("a.cuh", b'auto s = R"x(// raw "\n\n  )" )x"; \'\\\'\'\n'),
        ("a.py", b"s = \"# 'kept'\"; t = '''\n\n# kept  \n'''\n"),
        ("a.txt", b'set(x "# kept  \n\n") set(y [=[# kept ]] ]=])\n'),
        ("a.xml", b"// kept  \n\n# kept"),
    ],
)
def test_literals_and_other_languages_are_kept(tmp_path, name, text):
    (tmp_path / name).write_bytes(text)
    assert without_comments(tmp_path / name) == text


def test_this_tree_without_comments_is_the_same_code():
    sources = list(hashed_sources(ROOT))
    assert len(sources) > 300
    for path in sources:
        if path.suffix == ".py":
            assert ast.dump(ast.parse(without_comments(path))) == ast.dump(ast.parse(path.read_bytes()))
    compiled = [path for path in sources if path.suffix not in (".py", ".txt")]
    texts = [b"\n".join(read(path) for path in compiled) for read in (without_comments, pathlib.Path.read_bytes)]
    assert len(texts[0]) < 0.9 * len(texts[1])
    command = ["g++", "-fpreprocessed", "-E", "-P", "-w", "-xc++", "-"]
    tokens = [subprocess.run(command, input=text, check=True, capture_output=True).stdout.split() for text in texts]
    assert tokens[0] == tokens[1]


@pytest.mark.parametrize(
    "name",
    [
        "README.md",
        "tests/t.py",
        "python/sluice/plan.py",
        "kernels/a/README.md",
        "kernels/__pycache__/a.txt",
        "ops/a.pyc",
    ],
)
def test_other_files_do_not(tree, name):
    before = bench.source_hash(tree)
    (tree / name).parent.mkdir(parents=True, exist_ok=True)
    (tree / name).write_bytes(b"x")
    assert bench.source_hash(tree) == before


def test_missing_folders_are_empty(tmp_path):
    assert bench.source_hash(tmp_path) == hashlib.sha256(b"").hexdigest()
