"""The page of each folder with more than five modules, made of their docstrings.

    python -m tests.folder_pages

writes them. The page of a folder in ``BY_HAND`` has its own text, because it says more: only its
last part, from the line ``## Modules`` on, is made.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

__all__ = ["BY_HAND", "folders", "page"]

ROOT: Final = Path(__file__).resolve().parents[1]
_TOPS: Final = ("protocol", "broker", "client", "tools", "plugins", "acl", "trace", "transaction",
                "spark_bridge", "integrations", "raft", "console")
#: Folders whose pages have their own text; only the tables of these pages are generated.
BY_HAND: Final = frozenset((
    "acl", "console", "plugins/dledger", "plugins/flow_control", "plugins/ha",
    "plugins/static_topic",
    "integrations/celery", "integrations/taskiq", "spark_bridge"))
_MODULES_LINE: Final = "## Modules\n"
#: A folder with more modules has a page.
_MODULES_MAX: Final = 5


def _modules(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*.py") if path.name != "__init__.py")


def folders() -> Iterator[str]:
    """Return the folders that need a page."""
    for top in _TOPS:
        for folder in sorted({path.parent for path in (ROOT / top).rglob("*.py")}):
            if len(_modules(folder)) > _MODULES_MAX:
                yield str(folder.relative_to(ROOT))


def _docstring(path: Path) -> str:
    return ast.get_docstring(ast.parse(path.read_text())) or ""


def _summary(path: Path) -> str:
    """The first paragraph of a module's docstring, as Markdown in a table."""
    return " ".join(_docstring(path).split("\n\n")[0].split()).replace("``", "`").replace(
        "|", "\\|")


def page(folder: str) -> str:
    """Return the page of a folder: a text from its package or its own text, and its modules."""
    here = ROOT / folder
    if folder in BY_HAND:
        by_hand = (here / "README.md").read_text().partition(_MODULES_LINE)[0].rstrip()
        return "\n".join([by_hand, "", _MODULES_LINE, *_table(here), _closing("table")])
    lines = [f"# twistmq.{folder.replace('/', '.')}", ""]
    introduction = _docstring(here / "__init__.py") if (here / "__init__.py").exists() else ""
    if introduction:
        lines += [introduction.split("\n\n")[0].replace("``", "`"), ""]
    return "\n".join([*lines, *_table(here), _closing("page")])


def _table(here: Path) -> list[str]:
    """Return the table of a folder's modules and subfolders."""
    lines = ["| module | |", "| --- | --- |"]
    lines += [f"| [{path.name}]({path.name}) | {_summary(path)} |" for path in _modules(here)]
    inner = sorted(path for path in here.iterdir() if (path / "__init__.py").exists())
    lines += [f"| [{path.name}/]({path.name}) | {_summary(path / '__init__.py')} |"
              for path in inner]
    return lines


def _closing(what: str) -> str:
    return f"\nThis {what} is written by `python -m tests.folder_pages` from the docstrings.\n"


if __name__ == "__main__":
    for name in folders():
        (ROOT / name / "README.md").write_text(page(name))
