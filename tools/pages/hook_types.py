"""The types of the arguments and results of hooks, read from their sources for HOOKS.md.

The sources are read and not imported, since a compiled class has neither source nor comments. The
description of a field is its ``#:`` comment or the ``:param`` with its name; the description of a
method is the first sentence of its docstring. A member without a description is not for plugins and
is not shown.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Final

__all__ = ["SHOWN", "Member", "ShownType", "shown_types"]

#: The modules and their classes, in the order of the page.
SHOWN: Final = (
    ("broker.config.settings", ("Setting", "SettingCheck")),
    ("broker.remoting.messages", ("RequestHandler",)),
    ("broker.remoting.request", ("Request",)),
    ("broker.remoting.messages", ("Reply", "Channel")),
    ("broker.scheduling.periodic", ("PeriodicTask",)),
    ("broker.plugin.synced_table", ("SyncedTable",)),
    ("broker.store.config_file", ("ConfigFile",)),
    ("broker.store.inspect.plugin_files", ("PluginFiles", "FilesCheck")),
    ("broker.store.inspect.layout", ("StoreFiles",)),
    ("broker.store.inspect.report", ("Report",)),
    ("broker.request.send_context", ("SendBatch",)),
    ("protocol.record", ("MessageRecord",)),
    ("broker.request.consume_context", ("ConsumeContext",)),
    ("broker.request.client_table", ("ClientChange", "Client")),
    ("protocol.bodies.topic", ("TopicConfigSerializeWrapper",)),
    ("broker.observe.metrics", ("MetricFamily", "Histogram")),
    ("broker.observe.supervisor_pages", ("SupervisorPages", "BrokerPages", "PageAnswer")),
    ("broker.remoting.interfaces", ("IAccessValidator",)),
    ("broker.plugin.interfaces", ("IFilterLanguage", "IConsumerFilters",
                                  "ITransactionService")),
    ("broker.remoting.interfaces", ("IFlowControl",)),
    ("broker.plugin.interfaces", ("IBroadcastOffsets",)),
    ("broker.plugin.protocols", ("Broker", "NameServer")),
)
_PARAM: Final = re.compile(r":param (\w+): (.+?)(?=\n\s*(?::|\n|$)|$)", re.DOTALL)
_FOLDER: Final = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Member:
    """A field, a property or a method."""

    #: The member as it is written in code; a method has its arguments.
    text: str
    type: str
    help: str


@dataclass(frozen=True, slots=True)
class ShownType:
    """A class on the page."""

    name: str
    #: The public module that exports it.
    module: str
    help: str
    members: tuple[Member, ...]


def public_modules() -> Iterator[tuple[str, str, list[str]]]:
    """Return the modules for plugins: name, first line of the docstring, and ``__all__``."""
    for path in sorted((_FOLDER / "broker/api").glob("*.py")):
        name = "twistmq.broker.api" + ("" if path.stem == "__init__" else f".{path.stem}")
        module = import_module(name)
        yield name, (module.__doc__ or "").split("\n")[0], module.__all__


def public_module(name: str) -> str:
    """Return the public module that exports a name."""
    return next(module for module, _, names in public_modules() if name in names)


def shown_types() -> Iterator[ShownType]:
    """Return the types, from the installed sources."""
    for module, names in SHOWN:
        source = (_FOLDER / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8")
        lines = source.splitlines()
        classes = {node.name: node for node in ast.parse(source).body
                   if isinstance(node, ast.ClassDef)}
        for name in names:
            node = classes[name]
            docstring = ast.get_docstring(node) or ""
            params = {match[1]: _one_line(match[2]) for match in _PARAM.finditer(docstring)}
            bases = [classes[base.id] for base in node.bases
                     if isinstance(base, ast.Name) and base.id in classes]
            members = tuple(member for part in (*bases, node)
                            for member in _members(part, lines, params) if member.help)
            yield ShownType(name, public_module(name),
                            _one_line(docstring.split("\n\n")[0]), members)


def _members(
    node: ast.ClassDef, lines: list[str], params: dict[str, str]
) -> Iterator[Member]:
    for part in node.body:
        if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
            yield Member(part.target.id, ast.unparse(part.annotation),
                         params.get(part.target.id) or _comment(lines, part.lineno))
        elif isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef):
            if part.name == "__init__":
                yield from _assigned(part, lines, params)
            elif not part.name.startswith("_"):
                yield _callable(part)


def _assigned(
    function: ast.FunctionDef | ast.AsyncFunctionDef, lines: list[str], params: dict[str, str]
) -> Iterator[Member]:
    """Return the fields that ``__init__`` sets, each once."""
    given = {argument.arg: argument.annotation for argument in function.args.args}
    seen: set[str] = set()
    for part in function.body:
        if isinstance(part, ast.AnnAssign):
            target: ast.expr = part.target
            annotation: ast.expr | None = part.annotation
        elif isinstance(part, ast.Assign):
            target = part.targets[0]
            value = part.value
            annotation = value.func if isinstance(value, ast.Call) else (
                given.get(value.id) if isinstance(value, ast.Name) else None)
            if isinstance(annotation, ast.Attribute):
                annotation = {"text": ast.Name("str"), "int": ast.Name("int")}.get(annotation.attr)
            if isinstance(value, ast.Constant):
                annotation = ast.Name(type(value.value).__name__)
        else:
            continue
        if isinstance(target, ast.Attribute) and target.attr not in seen:
            seen.add(target.attr)
            if not target.attr.startswith("_"):
                yield Member(target.attr, ast.unparse(annotation) if annotation else "",
                             _comment(lines, part.lineno) or params.get(target.attr, ""))


def _callable(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Member:
    """Return a method or a property as a member."""
    text = _one_line((ast.get_docstring(node) or "").split("\n\n")[0])
    sentence = re.split(r"(?<=[.])\s(?=[A-Z])|;? ?:(?:returns|raises)", text)[0]
    returns = ast.unparse(node.returns) if node.returns else ""
    if any(isinstance(each, ast.Name) and each.id == "property" for each in node.decorator_list):
        return Member(node.name, returns, sentence)
    arguments = ast.unparse(node.args).removeprefix("self").removeprefix(", ")
    return Member(f"{node.name}({arguments})", returns, sentence)


def _comment(lines: list[str], line: int) -> str:
    """Return the ``#:`` comment above a line; lines are counted from 1."""
    comment_lines: list[str] = []
    for text in reversed(lines[:line - 1]):
        if not text.lstrip().startswith("#:"):
            break
        comment_lines.append(text.lstrip()[2:].strip())
    return " ".join(reversed(comment_lines))


def _one_line(text: str) -> str:
    return " ".join(text.split())
