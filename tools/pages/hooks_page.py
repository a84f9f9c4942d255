"""Writes HOOKS.md, the page of every hook, from the specifications.

``python -m twistmq.tools.pages.hooks_page > plugins/HOOKS.md`` writes it again; a test
holds the two together.
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

The stock plugins import these modules of the broker and no other. The names of
`twistmq.broker.api` keep their meaning through a minor release, those of the modules below it
through a patch release.
"""

_INTRODUCTION = """\
# Hooks

A plugin is a class named by an entry point of the group `twistmq`. Each broker makes an object of
it; methods marked with `@hookimpl` implement hooks of the same name:

```toml
[project.entry-points.twistmq]
word_filter = "word_filter:WordFilter"
```

An implementation takes any subset of a hook's arguments, by name; what hooks are given and return
is under [Types](#types), where `AnyHandler` is a `RequestHandler` of any header, `TagsCode` a
function from a record to a number, and `BrokerError` any error with a response code. The names a
plugin imports are under [Modules](#modules-that-plugins-import). A package with every hook is in
[tests/plugin_package](../tests/plugin_package), in a checkout; the settings `plugins.enabled` and
`plugins.disabled` pin which plugins are used.

## A whole plugin

It refuses sends with a forbidden word and counts them; it has a setting, a request code, a command
and a metric of its own, and a file in the store's folder. Each broker of a process has its own
object, and its own count. This is all of `word_filter.py`:

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

- How is it used? `pip install` its package beside twistmq, then
  `twistmq up word_filter.word=secret` and `twistmq word-filter 127.0.0.1:10911 orders`. A plugin
  that is left out is named on the terminal and in the log, with the reason; `twistmq doctor` lists
  the plugins in use.
- Where are its metrics? With those of the broker, once `twistmq[metrics]` is installed (from a
  checkout: `pip install '.[metrics]'`) and `metricsExporterType=PROM` is set: at `/metrics` of the
  port `metricsPromExporterPort`.
- How is a value refused that its row allows? By a method `register_setting_checks` that returns
  `[SettingCheck(("word_filter.word",), check)]`: `check(settings)` raises
  `SettingsError("word_filter.word=...: why")`, and `SettingCheck` and `SettingsError` are names of
  `twistmq.broker.api`. The start ends with that line, and a change by a tool is refused with it.
- A value of `register_commands` that is no `click.Command` leaves out the commands of its plugin.
- Two plugins with one name: a third party's replaces the stock plugin of its name. A plugin
  with a setting of another one is left out; of two handlers, commands or metrics with one code or
  name, those of the plugin called first are used.
- The pyproject.toml of a plugin has `[build-system]` with `requires = ["setuptools>=77"]`,
  `[project]` with name, version and `dependencies = ["twistmq~=0.1.0"]`,
  `[project.entry-points."twistmq.plugins"]` with `word_filter = "word_filter:WordFilter"`, and
  `[tool.setuptools]` with `py-modules = ["word_filter"]`.
- How does `twistmq admin` get a command? By no hook, for it runs without a broker: the entry point
  `words = "word_tools.rows"` of the group `twistmq.admin` names a module of a package, whose
  `COMMANDS` are `Command(name, group, help, "word_tools.show:show", options, codes, columns)` of
  `twistmq.broker.api.admin_commands`. `show(session, broker=..., topic=...)` gets the options by
  their names, None for one that is not given, and returns a row for each line, a value a column.
  `for each in session.brokers(broker)` has the broker that `-b` names, or all masters, and
  `session.ask(each.address, code, header)` is one request. The groups are those of the help, by
  title or by mqadmin's name (`topic`), or new ones. `plugins/static_topic/admin_rows.py` has two.
- How does it log? By `log = Logger()` in its class, of `twisted.logger`.
- Hooks that run before there is a broker are static or class methods: `register_settings`,
  `register_setting_checks`, `register_commands`, `register_store_files`,
  `register_supervisor_pages`; write `@staticmethod` above `@hookimpl`.
- Which codes are free? From 30,000 to 99,999: neither Apache's brokers nor twistmq use any of them.
- How is a header read? By the class that the row names: a field without a default must be there, a
  field `queue_id` is `queueId` on the wire, and a request that does not fit is refused before the
  handler is called. Fields are `str`, `int` or `bool`, or one of them `| None`. Without a class,
  `request.command.fields()` is a dict of texts. The header of a reply is such a class too:
  `Reply(header=UsageHeader(used_bytes=3))`.
- Was a send stored? `batch.all_stored` of `after_send` says it of all; `is_stored(reply)` of
  `twistmq.broker.api.requests` of one in `batch.replies`. An answer, `Handled`, is a `Reply`, a
  `DeferredReply` that goes once its message is safe, the `Deferred` of a reply, or None where the
  client wants no answer.
- May a handler wait? Yes, but it is no `async def`: it returns a Deferred of the reply, such as
  `Deferred.fromCoroutine(answer(request))`. To refuse, it raises
  `RequestRefused(code, remark)`.
- How does a plugin reach another one? By an interface: `broker.hooks.provider(IQueueLocks)` is the
  plugin that provides it, of several the one that is called first, or None. `IQueueLocks` and
  `ITimedDelivery` are provided by the stock plugins `orderly` and
  `timer`, and by any plugin that stands in for them.
- May hooks be switched on and off? `broker.hooks.add(name, object)` calls the hooks of an object
  from then on, `broker.hooks.remove(name)` no longer.

## Testing a plugin

`running_broker` runs a broker in the process, under any test tool; `settings` are texts as on the
command line, `plugins` are used beside those that are installed, `data` is a folder that stays:

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

The client's `send` and `pull` raise `RequestRefused` when the broker refuses; `request` gives the
reply whatever its code: `code`, `remark`, `body`, and `fields()`, its header as a dict of texts.
A plugin of `plugins` that would be left out is an error here.
`twistmq.broker.testing.BrokerTestCase` is the same for trial, with `async def` tests. An object
with hooks is a plugin too, also in tests.

"""

_FOOT = """\

This page is written by `python -m twistmq.tools.pages.hooks_page` from
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
    yield from _modules()
    yield _FOOT


def _types() -> Iterator[str]:
    """The types of hooks' arguments and results: their module and members."""
    yield "\n## Types\n"
    for shown in shown_types():
        yield (f"\n### {shown.name}\n\n`from {shown.module} import {shown.name}`\n\n"
               f"{_cell(shown.help)}\n\n| | type | |\n| --- | --- | --- |\n")
        for member in shown.members:
            kind = f"`{_cell(member.type)}`" if member.type else ""
            yield f"| `{_cell(member.text)}` | {kind} | {_cell(member.help)} |\n"


def _modules() -> Iterator[str]:
    """The public modules and their names."""
    yield _MODULES
    for name, summary, names in public_modules():
        listed = ", ".join(f"`{each}`" for each in names)
        yield f"\n### {name}\n\n{_cell(summary)}\n\n{listed}\n"


def _cell(text: str) -> str:
    """A text of a source as Markdown in a table."""
    return re.sub(r":\w+:`~?\.?(.+?)`", r"`\1`", text.replace("``", "`")).replace("|", "\\|")


def hooks_page() -> str:
    """The page."""
    return "".join(f"{line}" if line.endswith("\n") else f"{line}\n" for line in _lines())


if __name__ == "__main__":
    print(hooks_page(), end="")
