"""Writes HOOKS.md, the page of every hook, from the specifications.

``python -m twistmq.broker.pages.hooks_page > plugins/HOOKS.md`` makes it anew; a test holds the two
together.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

from twistmq.broker.pages.hook_types import shown_types
from twistmq.broker.plugin import hookspecs

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

An implementation takes any subset of a hook's arguments, by name; what hooks are given and give is
under [Types](#types), where `AnyHandler` is a `RequestHandler` of any header, `TagsCode` a function
from a record to a number, and `BrokerError` any of `twistmq.broker.errors`. A package with every
hook is in [tests/plugin_package](../tests/plugin_package), in a checkout; the settings
`plugins.enabled` and `plugins.disabled` pin which plugins are used.

## A request code of one's own

```python
from twistmq.broker import hookimpl
from twistmq.broker.remoting.messages import Reply, RequestHandler
from twistmq.broker.wire.header import CommandHeader

COUNT_CODE = 40_001


class CountHeader(CommandHeader):
    topic: str
    queue_id: int = 0


@hookimpl
def register_request_handlers(kernel):
    def count(request):
        header = request.header
        offset = kernel.store.max_offset_in_queue(header.topic, header.queue_id)
        return Reply(body=str(offset).encode())

    return [RequestHandler(COUNT_CODE, count, CountHeader)]
```

- Which codes are free? From 30,000 to 99,999: neither Apache's brokers nor twistmq use any of them.
- How is a header read? By the class that the row names: a field without a default must be there, a
  field `queue_id` is `queueId` on the wire, and a request that does not fit is refused before the
  handler is called. Without a class, `request.command.fields()` is a dict of texts.
- May a handler wait? Yes, but it is no `async def`: it returns a Deferred of the reply, such as
  `Deferred.fromCoroutine(answer(request))`. To refuse, it raises
  `twistmq.broker.errors.RequestRefused(code, remark)`.

## Testing a plugin

`running_broker` runs a broker in the process, under any test tool; `settings` are texts as on the
command line, `plugins` are used beside those that are installed, `data` is a folder that stays:

```python
from types import SimpleNamespace

from twistmq.broker.testing import running_broker

plugin = SimpleNamespace(register_request_handlers=register_request_handlers)  # or your module
with running_broker({"brokerName": "a"}, plugins=[("mine", plugin)]) as broker:
    with broker.client() as client:
        client.send("orders", b"paid", tag="new", keys="order-1", properties={"colour": "red"})
        [message] = client.pull("orders", expression="new", hold_ms=1000)
        assert message.properties_map()["KEYS"] == "order-1"
        reply = client.request(COUNT_CODE, CountHeader(topic="orders"))
        assert (reply.code, reply.body) == (0, b"1")
```

The client's `send` and `pull` raise `RequestRefused` when the broker refuses; `request` gives the
reply whatever its code. `twistmq.broker.testing.BrokerTestCase` is the same for trial, with
`async def` tests; see its docstring.

"""

_FOOT = """\

This page is written by `python -m twistmq.broker.pages.hooks_page` from
`broker/plugin/hookspecs.py` and the sources of the types.
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
    yield from _types()
    yield _FOOT


def _types() -> Iterator[str]:
    """What hooks are given and give: where from, and what is in it."""
    yield "\n## Types\n"
    for shown in shown_types():
        yield (f"\n### {shown.name}\n\n`from {shown.module} import {shown.name}`\n\n"
               f"{_cell(shown.help)}\n\n| | type | |\n| --- | --- | --- |\n")
        for member in shown.members:
            kind = f"`{_cell(member.type)}`" if member.type else ""
            yield f"| `{_cell(member.text)}` | {kind} | {_cell(member.help)} |\n"


def _cell(text: str) -> str:
    """A text of a source as Markdown in a table."""
    return re.sub(r":\w+:`~?\.?(.+?)`", r"`\1`", text.replace("``", "`")).replace("|", "\\|")


def hooks_page() -> str:
    """The page."""
    return "".join(f"{line}" if line.endswith("\n") else f"{line}\n" for line in _lines())


if __name__ == "__main__":
    print(hooks_page(), end="")
