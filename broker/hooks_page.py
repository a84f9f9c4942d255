"""Writes HOOKS.md, the page of every hook, from the specifications.

``python -m twistmq.broker.hooks_page > plugins/HOOKS.md`` makes it anew; a test holds the two
together.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

from twistmq.broker import hookspecs

__all__ = ["hooks_by_section", "hooks_page", "signature"]

_SECTION = re.compile(r"# --- \d+\. (.+?) -+")
_FIELD = re.compile(r"^:(?:param )?(\w+): ", re.MULTILINE)

_INTRODUCTION = """\
# Hooks

A plugin is a module, or any object, named by an entry point of the group `twistmq`; its functions
marked with `@hookimpl` implement hooks of the same name:

```python
from twistmq.broker import hookimpl


@hookimpl
def add_runtime_info(kernel):
    return {"channels": str(len(kernel.channels))}
```

An implementation takes any subset of a hook's arguments, by name. A package that implements every
hook is in `tests/plugin_package`; the settings `plugins.enabled` and `plugins.disabled` pin which
plugins are used. To test a plugin against a broker in your process, see `twistmq.broker.testing`.

"""

_FOOT = """\

This page is written by `python -m twistmq.broker.hooks_page` from `broker/hookspecs.py`.
"""


def hooks_by_section() -> list[tuple[str, list[str]]]:
    """The sections of the specifications and the hooks of each, in the order they are called."""
    sections: list[tuple[str, list[str]]] = []
    for line in inspect.getsource(hookspecs).splitlines():
        section = _SECTION.match(line)
        if section is not None:
            sections.append((section[1], []))
        elif line.startswith("def "):
            sections[-1][1].append(line[4:line.index("(")])
    return sections


def signature(name: str) -> str:
    """A hook as it is declared, on one line."""
    text = str(inspect.signature(getattr(hookspecs, name)))
    return f"{name}{text}".replace("'", "")


def _paragraphs(documented: Callable[..., Any] | Any) -> str:
    """A docstring as Markdown: fields become list items, literals keep one backquote."""
    def item(field: re.Match[str]) -> str:
        name = field[1]
        return "- returns: " if name == "returns" else f"- `{name}`: "

    return _FIELD.sub(item, inspect.getdoc(documented) or "").replace("``", "`")


def _lines() -> Iterator[str]:
    yield _INTRODUCTION
    # The first paragraph of the module says what a plugin is, as the introduction does.
    yield _paragraphs(hookspecs).split("\n\n", 2)[2].rpartition("\n\nSource:")[0] + "\n"
    for title, names in hooks_by_section():
        yield f"\n## {title.capitalize()}\n"
        for name in names:
            yield (f"\n### {name}\n\n```python\n{signature(name)}\n```\n\n"
                   f"{_paragraphs(getattr(hookspecs, name))}\n")
    yield _FOOT


def hooks_page() -> str:
    """The page."""
    return "".join(f"{line}" if line.endswith("\n") else f"{line}\n" for line in _lines())


if __name__ == "__main__":
    print(hooks_page(), end="")
