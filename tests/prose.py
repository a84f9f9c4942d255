"""Counts patterns that make sentences hard to read, in docstrings, comments and pages.

``python -m tests.prose [FOLDER]...`` prints the sentences it counts.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["PATTERNS", "Sentence", "bad_sentences", "page_sentences", "share", "source_sentences"]

ROOT: Final = Path(__file__).resolve().parents[1]
#: Each pattern with what to write instead.
PATTERNS: Final = {
    "a free relative at the beginning: name the thing": re.compile(
        r"^(What|Who|Whose|Whoever|Whom)\b(?!.*\?$)"),
    "is none: write is not a, or there is no": re.compile(r"\b(is|are|was|has|have) none\b"),
    "people for programs: name them": re.compile(
        r"\b([Nn]obody|[Ss]omebody|[Ee]verybody|[Aa]nybody|[Ww]hoever)\b"),
    "a preposition before who or what: name the thing": re.compile(
        r"\b(for|to|of|by|from|than) (who|whom|whoever)\b"),
    "anew, in vain, thereof: use a plain word": re.compile(r"\b(anew|in vain|thereof)\b"),
}


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence, and the place where its text begins."""

    path: Path
    line: int
    text: str

    def faults(self) -> list[str]:
        return [name for name, pattern in PATTERNS.items() if pattern.search(self.text)]


def _split(path: Path, line: int, text: str) -> Iterator[Sentence]:
    for part in re.split(r"(?<=[.:;])\s+(?=[A-Z`:])", " ".join(text.split())):
        if len(part.strip()) > 3:
            yield Sentence(path, line, part.strip())


def _comments(path: Path, source: str) -> Iterator[Sentence]:
    """Comments; lines that follow each other are one text."""
    texts: list[str] = []
    begin = last = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        if token.start[0] != last + 1:
            yield from _split(path, begin, " ".join(texts))
            texts, begin = [], token.start[0]
        texts.append(token.string.lstrip("#:").strip())
        last = token.start[0]
    yield from _split(path, begin, " ".join(texts))


def source_sentences(path: Path) -> Iterator[Sentence]:
    """The sentences of a module's docstrings and comments."""
    source = path.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield from _split(path, node.body[0].lineno, text)
    yield from _comments(path, source)


def page_sentences(path: Path) -> Iterator[Sentence]:
    """The sentences of a page, without its code; each cell of a table is a text."""
    in_code = False
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if line.startswith("```"):
            in_code = not in_code
        elif not in_code:
            for cell in line.strip("|#- ").split(" | "):
                yield from _split(path, number, cell)


def bad_sentences(sentences: list[Sentence]) -> list[Sentence]:
    """Return the sentences that contain a pattern."""
    return [sentence for sentence in sentences if sentence.faults()]


def share(sentences: list[Sentence]) -> float:
    """Return the percentage of sentences with a pattern."""
    return 100 * len(bad_sentences(sentences)) / max(len(sentences), 1)


def main(folders: list[str]) -> None:
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            for sentence in bad_sentences(list(source_sentences(path))):
                print(f"{path.relative_to(ROOT)}:{sentence.line}: {sentence.text}")
                print(f"    {'; '.join(sentence.faults())}")


if __name__ == "__main__":
    main(sys.argv[1:] or [
        "broker", "client", "plugins", "acl", "trace", "transaction", "spark_bridge",
        "integrations", "raft", "console"])
