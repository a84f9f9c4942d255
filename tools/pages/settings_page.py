"""Writes SETTINGS.md, the page of every setting, from the rows.

``python -m twistmq.tools.pages.settings_page > broker/SETTINGS.md`` writes it
again; a test holds the two together.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib.metadata import entry_points

from twistmq.broker.config.setting_rows import NAMESRV_OPEN, broker_rows, namesrv_rows, up_rows
from twistmq.broker.config.settings import Setting, setting_text
from twistmq.broker.plugin.discovery import ENTRY_POINT_GROUP
from twistmq.broker.plugin.hooks import Hooks

__all__ = ["settings_page", "stock_plugin_rows"]

_HEAD = """\
# Settings

`twistmq broker -c broker.conf key=value ...` reads a Java `.properties` file; the command line wins
over the file, the file over the defaults here. Names without a dot are Apache's, with Apache's
defaults; names with a dot are ours, but for `tls.*`, which are system properties of Apache's
servers. **Bold** ones are what `-m` prints. A key that is not here is kept and named in one
warning; a value that is not of its type stops the start. `~` is `$HOME`, or the account's home
folder where that is not set.

Tools change settings of a broker or a name server that runs (`mqadmin updateBrokerConfig`,
`updateNamesrvConfig`), and the file with them. A change takes effect at once or, where the last
column says so, at the next start. A value with which the next start would fail is refused, as
`twistmq doctor` would tell it; so is a name that neither this page, nor Apache's broker, nor the
file has.

A name server has no accounts, so every client that reaches its port can send it a change. It takes
changes of these settings only: {open_settings}. The others are changed in its file.

This page is written by `python -m twistmq.tools.pages.settings_page` from the rows in
`broker/config/setting_rows.py` and of the stock plugins.
"""


def stock_plugin_rows() -> list[tuple[str, list[Setting]]]:
    """The settings of each stock plugin that has any, by the plugin's name."""
    found = []
    for point in sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda point: point.name):
        if point.value.startswith("twistmq."):
            rows = Hooks([(point.name, point.load())]).collect_settings()
            if rows:
                found.append((point.name, rows))
    return found


def settings_page(plugins: Iterable[tuple[str, Sequence[Setting]]]) -> str:
    """The page.

    :param plugins: name and settings of each stock plugin.
    """
    broker = broker_rows()
    broker_names = {row.name for row in broker}
    # The name server's port and black list have other defaults under the same names.
    shared = broker_names - {"listenPort", "configBlackList"}
    namesrv = [row for row in namesrv_rows() if row.name not in shared]
    only_up = [row for row in up_rows()
               if row.name not in broker_names | {row.name for row in namesrv}]
    sections = [
        ("The broker", [row for row in broker if not _is_shared(row)]),
        ("The name server", namesrv),
        ("Both", [row for row in broker if _is_shared(row)]),
        ("`twistmq up`", only_up),
        *((f"Plugin {name}", list(rows)) for name, rows in plugins),
    ]
    names = ", ".join(f"`{name}`" for name in sorted(NAMESRV_OPEN))
    head = _HEAD.replace("{open_settings}", names)
    return head + "".join(_section(title, rows) for title, rows in sections)


def _is_shared(row: Setting) -> bool:
    return row.name in {other.name for other in namesrv_rows()} - {"listenPort", "configBlackList"}


def _section(title: str, rows: Sequence[Setting]) -> str:
    lines = [f"\n## {title}\n",
             "| name | default | unit | allowed | meaning | Apache class | changes hold |",
             "| --- | --- | --- | --- | --- | --- | --- |"]
    for row in rows:
        name = f"**{row.name}**" if row.important else row.name
        cells = (name, _default(row), row.unit, _allowed(row), row.help, row.source,
                 _changes_hold(row))
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def _changes_hold(row: Setting) -> str:
    if row.is_fixed:
        return "no tool may change it"
    return "at the next start" if row.at_start else ""


def _default(row: Setting) -> str:
    if row.default_text:
        return row.default_text
    assert not callable(row.default), f"{row.name}: a computed default needs a default_text"
    text = setting_text(row.default)
    return f"`{text}`" if text else "empty"


def _allowed(row: Setting) -> str:
    if row.choices:
        return ", ".join(row.choices)
    if row.kind in ("int", "float"):
        return f"{row.least} to {row.most}"
    return {"flag": "true, false", "path": "a path", "names": "names, with commas"}.get(
        row.kind, "any text")


if __name__ == "__main__":
    print(settings_page(stock_plugin_rows()), end="")
