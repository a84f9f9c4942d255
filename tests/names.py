"""The names that a reader has to look up twice: identifiers, classes and modules.

``python -m tests.names`` prints each use of such a name. CONTRIBUTING.md has the rule.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

__all__ = ["ALLOWED", "GERUNDS", "ONE_WORD", "VAGUE", "Use", "gerunds",
           "unknown_words", "vague_names"]

ROOT: Final = Path(__file__).resolve().parents[1]
TOPS: Final = ("protocol", "client", "broker", "tools", "plugins", "acl", "trace", "transaction",
               "spark_bridge", "integrations", "raft", "console")
#: Participles and adverbs that do not tell what a value is. A name says what the value holds:
#: ``max_count``, ``existing``, ``log_offset``, ``remaining``.
VAGUE: Final = frozenset({"found", "place", "left", "wanted", "taken", "there", "told", "most"})
#: The uses that stay, by file, with the reason.
ALLOWED: Final[dict[str, tuple[frozenset[str], str]]] = {
    "broker/config/settings.py": (frozenset({"most"}), "a name of twistmq.broker.api"),
    "broker/store/inspect/dump.py": (frozenset({"place"}), "a name of twistmq.broker.api"),
    "plugins/filter_sql92/expression.py": (frozenset({"left"}), "the left operand"),
    "plugins/filter_sql92/grammar.py": (frozenset({"left"}), "the left operand"),
    "plugins/filter_sql92/values.py": (frozenset({"left"}), "the left operand"),
}
#: Words with the ending "ing" that are nouns of the field.
GERUNDS: Final = frozenset({
    "finding", "listing", "mapping", "missing", "remoting", "scheduling", "setting", "testing"})


#: The names of one word that public functions and methods may have: words of the field, and words
#: that are clear where they stand. A new word is added here on purpose, or the name gets a second
#: word.
ONE_WORD: Final = frozenset((ROOT / "tests" / "one_word_names.txt").read_text().split())


class Use(NamedTuple):
    """A name, and its place."""

    path: str
    line: int
    name: str


def _files() -> Iterator[tuple[str, ast.Module]]:
    for top in TOPS:
        for path in sorted((ROOT / top).rglob("*.py")):
            yield str(path.relative_to(ROOT)), ast.parse(path.read_text())


def _names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """The names that a module defines: variables, attributes, parameters, functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id if isinstance(node, ast.Name) else node.attr
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.lineno, node.name


def vague_names() -> Iterator[Use]:
    """Return each definition of a vague name, except the permitted ones."""
    for path, tree in _files():
        allowed = ALLOWED.get(path, (frozenset(), ""))[0]
        for line, name in _names(tree):
            if name.lstrip("_") in VAGUE and name not in allowed:
                yield Use(path, line, name)


def _public_functions(node: ast.AST) -> Iterator[tuple[int, str]]:
    """The public functions of a module and of its classes, without the ones inside functions."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            if not child.name.startswith("_"):
                yield child.lineno, child.name
        else:
            yield from _public_functions(child)


def unknown_words() -> Iterator[Use]:
    """Return each public function with a name of one word that is not in the list."""
    for path, tree in _files():
        for line, name in _public_functions(tree):
            # Names with capitals are Twisted's and Spark's.
            if "_" not in name and name.islower() and name not in ONE_WORD:
                yield Use(path, line, name)


def gerunds() -> Iterator[Use]:
    """Return each class and module whose last word ends with "ing" and is not a noun."""
    for path, tree in _files():
        words = [(1, Path(path).stem)]
        words += [(node.lineno, node.name) for node in ast.walk(tree)
                  if isinstance(node, ast.ClassDef)]
        for line, name in words:
            last = re.findall(r"[A-Z]?[a-z0-9]+", name)[-1:]
            if last and last[0].endswith("ing") and last[0].lower() not in GERUNDS:
                yield Use(path, line, name)


if __name__ == "__main__":
    for use in (*vague_names(), *gerunds(), *unknown_words()):
        sys.stdout.write(f"{use.path}:{use.line}: {use.name}\n")
