"""The imports between folders: the table of layers in ARCHITECTURE.md, and circles."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import Final

from twisted.trial.unittest import SynchronousTestCase

from tests.former_places import FORMER_PLACES
from tests.test_packaging import (
    FOLDERS,
    ROOT,
    components,
    imports,
    is_mapped_alone,
    module_of,
    sources,
)

#: Folders that may import one another for their types alone.
TYPE_CIRCLE_MAX: Final = 3


@cache
def layers() -> dict[str, tuple[str, ...]]:
    """Return for each folder those that it may import, by the table."""
    page = (ROOT / "ARCHITECTURE.md").read_text().partition("## Layers")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `([^`]+)` \|[^|]+\| ([^|]+) \|$", page, re.M)
    return {folder: tuple(re.findall(r"`([^`]+)`", allowed)) for folder, allowed in rows}


def files() -> list[Path]:
    """Return the modules of the product."""
    return [path for path in sources(*FOLDERS) if not is_mapped_alone(path)]


@cache
def known() -> dict[str, str]:
    """The folder of each module, by the name of the module."""
    return {module_of(path): str(path.parent.relative_to(ROOT)) for path in files()}


def row_of(folder: str) -> str:
    """Return the row of a folder: its own row, or the row of all plugins."""
    return "plugins" if folder.startswith("plugins/") and folder not in layers() else folder


def folders_of(names: set[str]) -> set[str]:
    """Return the folders of imported names."""
    found = set()
    for name in names:
        while name and name not in known():
            name = name.rpartition(".")[0]
        if name:
            found.add(known()[name])
    return found


def load_imports(path: Path) -> set[str]:
    """Return the imports of a module when it is loaded, except those in functions and for types."""
    found: set[str] = set()
    tree = ast.parse(path.read_text())
    later = {id(inner) for node in ast.walk(tree)
             if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
             or (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
             for inner in ast.walk(node)}
    for node in ast.walk(tree):
        if id(node) in later:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def type_imports(path: Path) -> set[str]:
    """Return the imports of a module when it is loaded, including those for types."""
    found: set[str] = set()
    tree = ast.parse(path.read_text())
    later = {id(inner) for node in ast.walk(tree)
             if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
             for inner in ast.walk(node)}
    for node in ast.walk(tree):
        if id(node) not in later and isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


class LayerTests(SynchronousTestCase):
    """The table, and the imports of every module."""

    def test_every_folder_has_a_row(self) -> None:
        """Most folders of plugins have the row ``plugins``; each row has a folder."""
        here = {row_of(folder) for folder in known().values()}
        self.assertEqual(sorted(here - layers().keys()), [])
        self.assertEqual(sorted(layers().keys() - here), [])

    def test_no_module_imports_what_its_row_does_not_have(self) -> None:
        """Imports in functions and for types count as well."""
        wrong = []
        for path in files():
            folder = str(path.parent.relative_to(ROOT))
            row = row_of(folder)
            for used in folders_of(imports(path)):
                if used != folder and not any(
                        used == name or used.startswith(f"{name}/") for name in layers()[row]):
                    wrong.append((str(path.relative_to(ROOT)), used))
        self.assertEqual(wrong, [])

    def circles(self, *, of_types: bool) -> list[list[str]]:
        """Return the folders that import each other."""
        graph: dict[str, set[str]] = {}
        for path in files():
            folder = str(path.parent.relative_to(ROOT))
            found = type_imports(path) if of_types else load_imports(path)
            graph.setdefault(folder, set()).update(folders_of(found) - {folder})
        return [sorted(circle) for circle in components(graph) if len(circle) > 1]

    def test_no_folders_import_each_other_when_they_are_loaded(self) -> None:
        """A reader can begin with the protocol and go up."""
        self.assertEqual(self.circles(of_types=False), [])

    def test_no_circle_of_types_has_more_than_three_folders(self) -> None:
        """Hooks are specified with types of their callers."""
        self.assertEqual([circle for circle in self.circles(of_types=True)
                          if len(circle) > TYPE_CIRCLE_MAX], [])


class FormerPlaceTests(SynchronousTestCase):
    """Paths that a program may still import."""

    def test_an_old_path_names_the_new_one(self) -> None:
        """Modules in an old package do so too."""
        for path, place in FORMER_PLACES.items():
            name = f"twistmq.{path.removesuffix('.py').replace('/', '.')}"
            for old in (name, f"{name}.record"):
                error = self.assertRaises(ImportError, __import__, old)
                self.assertEqual(str(error), f"{name} has moved to {place}")
