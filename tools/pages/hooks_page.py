"""Writes HOOKS.md, the page of all hooks, from their specifications.

``python -m twistmq.tools.pages.hooks_page > plugins/HOOKS.md`` generates the page again; a test
makes sure that it is up to date.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

from twistmq.broker.plugin import hookspecs
from twistmq.tools.pages.hook_types import public_modules, shown_types

__all__ = ["hooks_by_section", "hooks_page", "signature"]

_SECTION = re.compile(r"# --- \d+\. (.+?) -+")
_FIELD = re.compile(r"^:(?:param )?(\w+): ", re.MULTILINE)

_MODULES = """
## Modules that plugins import

The stock plugins import only these modules of the broker. The names of `twistmq.broker.api` keep
their meaning through a minor release, and the names of the modules below it keep their meaning
through a patch release.
"""

_INTRODUCTION = """\
# Hooks

A plugin is a class that an entry point of the group `twistmq` names. Each broker creates an object
of this class; methods marked with `@hookimpl` implement hooks of the same name:

```toml
[project.entry-points.twistmq]
word_filter = "word_filter:WordFilter"
```

An implementation takes any subset of a hook's arguments, by name. The types of arguments and
results are described under [Types](#types); `AnyHandler` is a `RequestHandler` with any header,
`TagsCode` is a function from a record to a number, and `BrokerError` is any error with a response
code. The names that a plugin can import are listed under [Modules](#modules-that-plugins-import).
In a checkout, [tests/plugin_package](../tests/plugin_package) contains a package with every hook.
The settings `plugins.enabled` and `plugins.disabled` select the plugins to use.

## A complete plugin

This plugin refuses sends with a forbidden word and counts them. It has its own setting, request
code, command and metric, and a file in the folder of the store. Each broker of a process has its
own object and its own count. This is the complete `word_filter.py`:

```python
import json

import click

from twistmq.broker.api import (
    CommandHeader,
    MetricFamily,
    PeriodicTask,
    Reply,
    RequestHandler,
    RequestRefused,
    ResponseCode,
    Setting,
    hookimpl,
)
from twistmq.broker.testing import RawClient

REFUSED_CODE = 40_001


class RefusedHeader(CommandHeader):
    topic: str
    queue_id: int = 0


class WordFilter:
    def __init__(self, broker):
        self.broker = broker
        self.refused = {}
        self.file = broker.store.config_file("wordFilter.json")
        self.file.load(lambda text: self.refused.update(json.loads(text)))

    def persist(self):
        self.file.save(json.dumps(self.refused))

    @staticmethod
    @hookimpl
    def register_settings():
        return [Setting("word_filter.word", "text", "", "Messages with this word are refused.")]

    @staticmethod
    @hookimpl
    def register_commands():
        return [word_filter]

    @hookimpl
    def before_send(self, batch):
        word = self.broker.settings.text("word_filter.word").encode()
        refusals = {}
        for index, request in enumerate(batch.requests):
            if word and word in request.body:
                topic = request.header.topic
                self.refused[topic] = self.refused.get(topic, 0) + 1
                refusals[index] = RequestRefused(ResponseCode.MESSAGE_ILLEGAL, "a forbidden word")
        return refusals

    @hookimpl
    def register_request_handlers(self):
        return [RequestHandler(REFUSED_CODE, self.answer, RefusedHeader)]

    def answer(self, request):
        return Reply(body=str(self.refused.get(request.header.topic, 0)).encode())

    @hookimpl
    def register_periodic_tasks(self):
        return [PeriodicTask("save the counts of refused sends", 5000, 5000,
                             lambda now_ms: self.on_stop())]

    @hookimpl
    def on_stop(self):
        self.broker.persist([self])  # calls persist, and again later if the disk is full

    @hookimpl
    def collect_metrics(self):
        family = MetricFamily("word_filter_refused", "counter", "Sends refused.", ("topic",))
        for topic, count in self.refused.items():
            family.add(count, topic)
        return [family]


@click.command("word-filter")
@click.argument("address")
@click.argument("topic")
def word_filter(address, topic):
    \"\"\"Print how many sends to a topic a broker refused.\"\"\"
    with RawClient(address) as client:
        click.echo(client.request(REFUSED_CODE, RefusedHeader(topic=topic)).body.decode())
```

- How is it used? Install its package beside twistmq with `pip install`, then run
  `twistmq up word_filter.word=secret` and `twistmq word-filter 127.0.0.1:10911 orders`. A plugin
  that is left out is named on the terminal and in the log, with the reason; `twistmq doctor` lists
  the plugins in use.
- Where are its metrics? They are exported with the metrics of the broker, at `/metrics` of the port
  `metricsPromExporterPort`, if `twistmq[metrics]` is installed (from a checkout:
  `pip install '.[metrics]'`) and `metricsExporterType=PROM` is set.
- How does it refuse a value that its row allows? A method `register_setting_checks` returns
  `[SettingCheck(("word_filter.word",), check)]`, and `check(settings)` raises
  `SettingsError("word_filter.word=...: why")`; `SettingCheck` and `SettingsError` are names of
  `twistmq.broker.api`. The start ends with that line, and a change by a tool is refused with it.
- If a value of `register_commands` is not a `click.Command`, the commands of its plugin are left
  out.
- Two plugins with the same name: the plugin of a third party replaces the stock plugin with its
  name. A plugin that declares a setting of another plugin is left out. If two handlers, commands or
  metrics have the same code or name, the plugin that is called first is used.
- The pyproject.toml of a plugin has `[build-system]` with `requires = ["setuptools>=77"]`,
  `[project]` with name, version and `dependencies = ["twistmq~=0.1.0"]`,
  `[project.entry-points."twistmq.plugins"]` with `word_filter = "word_filter:WordFilter"`, and
  `[tool.setuptools]` with `py-modules = ["word_filter"]`.
- How does a package add a command to `twistmq admin`? Not with a hook, because the command runs
  without a broker. The entry point `words = "word_tools.rows"` of the group `twistmq.admin` names a
  module, whose `COMMANDS` are
  `Command(name, group, help, "word_tools.show:show", options, codes, columns)` of
  `twistmq.broker.api.admin_commands`. `show(session, broker=..., topic=...)` receives the options
  by name, with None for an option that is not given, and returns a row for each line, with one
  value per column. `session.brokers(broker)` returns the broker that `-b` names, or all masters,
  and `session.ask(each.address, code, header)` sends one request. A group is one of the groups in
  the help, by title or by mqadmin's name (`topic`), or a new one.
  `plugins/static_topic/admin_rows.py` contains two commands.
- How does it log? With `log = Logger()` of `twisted.logger` in its class.
- Hooks that run before a broker exists are static or class methods: `register_settings`,
  `register_setting_checks`, `register_commands`, `register_store_files` and
  `register_supervisor_pages`; write `@staticmethod` above `@hookimpl`.
- Which codes are free? From 30,000 to 99,999: neither Apache's brokers nor twistmq use any of them.
- How is a header read? The row names its class. A field without a default is required, a field
  `queue_id` is `queueId` on the wire, and a request that does not fit is refused before the handler
  is called. Fields are `str`, `int` or `bool`, or one of these `| None`. Without a class,
  `request.command.fields()` is a dict of texts. The header of a reply is also such a class:
  `Reply(header=UsageHeader(used_bytes=3))`.
- Was a send stored? `batch.all_stored` of `after_send` answers this for all sends, and
  `is_stored(reply)` of `twistmq.broker.api.requests` for a single reply in `batch.replies`. An
  answer, `Handled`, is a `Reply`, a `DeferredReply` that is sent once its message is safe, the
  `Deferred` of a reply, or None if the client does not expect an answer.
- May a handler wait? Yes, but it must not be an `async def`: it returns a Deferred of the reply,
  such as `Deferred.fromCoroutine(answer(request))`. To refuse a request, it raises
  `RequestRefused(code, remark)`.
- How does a plugin reach another plugin? Through an interface: `broker.hooks.provider(IQueueLocks)`
  is the plugin that provides the interface, or None; of several plugins, it is the one that is
  called first. The stock plugins `orderly` and `timer` provide `IQueueLocks` and `ITimedDelivery`,
  and so does any plugin that replaces them.
- Can hooks be switched on and off? After `broker.hooks.add(name, object)` the hooks of an object
  are called, and after `broker.hooks.remove(name)` they are no longer called.

## Testing a plugin

`running_broker` runs a broker in the process, under any test tool. `settings` are texts as on the
command line, `plugins` are used in addition to the installed plugins, and `data` is a folder that
is kept:

```python
from twistmq.broker.api import RequestRefused
from twistmq.broker.testing import running_broker
from word_filter import REFUSED_CODE, RefusedHeader, WordFilter

with running_broker({"word_filter.word": "secret"}, plugins=[("mine", WordFilter)]) as broker:
    with broker.client() as client:
        client.send("orders", b"paid", tag="new", keys="order-1", properties={"colour": "red"})
        [message] = client.pull("orders", expression="new", hold_ms=1000)
        assert message.properties_map()["KEYS"] == "order-1"
        try:
            client.send("orders", b"a secret")
        except RequestRefused as error:
            assert str(error) == "a forbidden word"
        reply = client.request(REFUSED_CODE, RefusedHeader(topic="orders"))
        assert (reply.code, reply.body) == (0, b"1")
```

The client's `send` and `pull` raise `RequestRefused` when the broker refuses a request; `request`
returns the reply regardless of its code: `code`, `remark`, `body`, and `fields()`, its header as a
dict of texts. If a plugin in `plugins` would be left out, this is an error here.
`twistmq.broker.testing.BrokerTestCase` does the same for trial, with `async def` tests. An object
with hooks is also a plugin, in tests as well.

"""

_FOOT = """\

This page is generated by `python -m twistmq.tools.pages.hooks_page` from
`broker/plugin/hookspecs.py` and the sources of the types.
"""


def hooks_by_section() -> list[tuple[str, list[str]]]:
    """Return the sections of the specifications with their hooks, in the order of the calls."""
    sections: list[tuple[str, list[str]]] = []
    for line in inspect.getsource(hookspecs).splitlines():
        section = _SECTION.match(line)
        if section is not None:
            sections.append((section[1], []))
        elif line.startswith("def "):
            sections[-1][1].append(line[4:line.index("(")])
    return sections


def signature(name: str) -> str:
    """Return the declaration of a hook on one line."""
    text = str(inspect.signature(getattr(hookspecs, name)))
    return f"{name}{text}".replace("'", "")


def _paragraphs(documented: Callable[..., Any] | Any) -> str:
    """Return a docstring as Markdown: fields become list items, literals keep one backquote."""
    def item(field: re.Match[str]) -> str:
        name = field[1]
        return "- returns: " if name == "returns" else f"- `{name}`: "

    return _FIELD.sub(item, inspect.getdoc(documented) or "").replace("``", "`")


def _lines() -> Iterator[str]:
    yield _INTRODUCTION
    # The first paragraph of the module describes plugins, which the introduction does as well.
    yield _paragraphs(hookspecs).split("\n\n", 2)[2].rpartition("\n\nSource:")[0] + "\n"
    for title, names in hooks_by_section():
        yield f"\n## {title.capitalize()}\n"
        for name in names:
            yield (f"\n### {name}\n\n```python\n{signature(name)}\n```\n\n"
                   f"{_paragraphs(getattr(hookspecs, name))}\n")
    yield from _types()
    yield from _modules()
    yield _FOOT


def _types() -> Iterator[str]:
    """Return the types of the arguments and results of hooks, with modules and members."""
    yield "\n## Types\n"
    for shown in shown_types():
        yield (f"\n### {shown.name}\n\n`from {shown.module} import {shown.name}`\n\n"
               f"{_cell(shown.help)}\n\n| | type | |\n| --- | --- | --- |\n")
        for member in shown.members:
            kind = f"`{_cell(member.type)}`" if member.type else ""
            yield f"| `{_cell(member.text)}` | {kind} | {_cell(member.help)} |\n"


def _modules() -> Iterator[str]:
    """Return the public modules and their names."""
    yield _MODULES
    for name, summary, names in public_modules():
        listed = ", ".join(f"`{each}`" for each in names)
        yield f"\n### {name}\n\n{_cell(summary)}\n\n{listed}\n"


def _cell(text: str) -> str:
    """Return a text of a source as Markdown for a table."""
    return re.sub(r":\w+:`~?\.?(.+?)`", r"`\1`", text.replace("``", "`")).replace("|", "\\|")


def hooks_page() -> str:
    """Return the page."""
    return "".join(f"{line}" if line.endswith("\n") else f"{line}\n" for line in _lines())


if __name__ == "__main__":
    print(hooks_page(), end="")
