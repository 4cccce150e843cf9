"""Finds words that stand for a noun where a reader has to look for it: in comments, docstrings and pages.

    lint_sentences.py [FILE ...]     all sources and pages by default

"those", "such" and "one" may stand before a noun, not for it; a comment does not begin with "of".
"""

import io
import pathlib
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).resolve().parent.parent
SUFFIXES = (".py", ".cpp", ".cu", ".cuh", ".h", ".def", ".md", ".txt", ".sh")
# What follows a word that stands for a noun: no noun, but a preposition, a verb, a conjunction or the sentence's end.
_NO_NOUN = (
    r"(?=\s*(?:[.,;:)?!]|$)|\s+(?:of|that|which|whose|who|with|without|for|in|into|from|by|to|at|on|before|after|behind|"
    r"beside|inside|than|is|are|was|were|has|have|had|may|can|must|will|would|do|does|and|or|but|if|where|while|when|as|"
    r"it|they|we|you|the|a|an|not|only|alone|there|here|too|instead|per|takes?|runs?|gives?|gets?|reads?|writes?)\b)"
)
_BEFORE = (
    r"(?:the|this|that|another|each|every|any|which|whichever|last|first|second|next|other|old|older|new|newer|same|own|a|"
    r"an|no|single|smaller|larger|longest|shortest|right|wrong|whole|former|plain|such|long|short|large|small)"
)
PATTERNS = {
    "those": re.compile(r"\bthose\b" + _NO_NOUN, re.IGNORECASE),
    "such": re.compile(r"\bsuch\b(?!\s+(?:as|a|an)\b)" + _NO_NOUN, re.IGNORECASE),
    "one": re.compile(r"\b" + _BEFORE + r"\s+one\b" + _NO_NOUN, re.IGNORECASE),
    "ones": re.compile(r"\bones\b(?!\s*\()", re.IGNORECASE),
}
_OF = re.compile(r"of\b", re.IGNORECASE)
_CODE = re.compile(r"`[^`]*`")


def python_comments(text: str) -> Iterator[tuple[int, str]]:
    """Comments, and strings that are statements, with the numbers of their lines."""
    statement = True
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string.lstrip("#! ")
        elif token.type == tokenize.STRING and statement and token.string.lstrip("rR").startswith('"""'):
            for i, line in enumerate(token.string.lstrip("rR").strip('"').splitlines()):
                yield token.start[0] + i, line.strip()
        if token.type in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT):
            statement = True
        elif token.type not in (tokenize.COMMENT, tokenize.NL, tokenize.ENCODING):
            statement = False


def cpp_comments(text: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(text.splitlines(), 1):
        if (found := re.search(r"(?:^|[^:\"])//(.*)", line)) is not None:
            yield number, found[1].strip()


def script_comments(text: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(text.splitlines(), 1):
        if (found := re.search(r"(?:^|\s)#(.*)", line)) is not None:
            yield number, found[1].strip()


def prose(text: str) -> Iterator[tuple[int, str]]:
    """A page without its code and tables of results."""
    is_code = is_result = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            is_code = not is_code
        is_result = (is_result or "results:begin" in line) and "results:end" not in line
        if not is_code and not is_result:
            yield number, line.strip()


def comments(path: pathlib.Path) -> Iterator[tuple[int, str]]:
    text = path.read_text()
    if path.suffix == ".py":
        return python_comments(text)
    if path.suffix == ".md":
        return prose(text)
    return script_comments(text) if path.suffix in (".txt", ".sh") else cpp_comments(text)


def findings(path: pathlib.Path) -> Iterator[str]:
    """The lines with a word of `PATTERNS`, and comments that begin with "of"; a sentence may go on in the next line."""
    lines = [(number, _CODE.sub("`x`", line)) for number, line in comments(path)]
    for i, (number, line) in enumerate(lines):
        follows = i + 1 < len(lines) and lines[i + 1][0] == number + 1 and lines[i + 1][1]
        whole = f"{line} {lines[i + 1][1].split(' ')[0]}" if follows else line
        words = [
            word for word, pattern in PATTERNS.items() if any(m.start() < len(line) for m in pattern.finditer(whole))
        ]
        before = lines[i - 1][0] if i > 0 else -1
        if path.suffix != ".md" and _OF.match(line) and before != number - 1:
            words.append("of")
        for word in words:
            yield f"{path.relative_to(ROOT)}:{number}: {word!r}: {line}"


def tracked() -> list[pathlib.Path]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [ROOT / name for name in listed.splitlines() if name.endswith(SUFFIXES)]


def main() -> int:
    paths = [pathlib.Path(name).resolve() for name in sys.argv[1:]] or tracked()
    found = [line for path in paths if path.is_file() for line in findings(path)]
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
