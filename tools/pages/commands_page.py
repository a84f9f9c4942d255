"""Writes COMMANDS.md, the page of every command of ``twistmq admin``, from the table.

``python -m twistmq.tools.pages.commands_page > tools/admin/COMMANDS.md`` writes it again; a test
holds the two together.
"""

from __future__ import annotations

from twistmq.tools.admin.command_line import all_commands
from twistmq.tools.admin.command_rows import LEFT_OUT
from twistmq.tools.admin.rows import GROUPS, Command, Option

__all__ = ["commands_page"]

_HEAD = """\
# Commands of `twistmq admin`

    twistmq admin topicStatus -n 127.0.0.1:9876 -t orders
    twistmq admin consumerProgress -g payers --output json

Names and options are those of Apache's mqadmin 5.3.3, and the commands work with Apache's servers
as with these. Its long names with a blank are taken in quotes, as it takes them; abbreviations of
long names, which it takes too, are not. Rows are printed as a table, or with `--output json` as a
list of objects, with the names of the columns; a time is then ms since 1970. The exit status is 0
when all was done and 1 when something was not: standard error says what, a line each, and what was
found is printed all the same.

Every command has `-n`, `--namesrv` (or NAMESRV_ADDR; 127.0.0.1:9876), `--output table|json`,
`--timeout S` and `--access-key KEY`. The secret key is never on the command line: it is read from
ROCKETMQ_SECRET_KEY, or asked for. Without `--access-key`, ROCKETMQ_HOME/conf/tools.yml is read as
mqadmin reads it. `--tls` speaks TLS, `--tls-config FILE` with the settings `tls.client.*` of FILE.

A time is `now`, ms since 1970, `yyyy-MM-dd#HH:mm:ss:SSS` or ISO 8601. Colour is for terminals, and
NO_COLOR=1 is without. Completion in bash: `eval "$(_TWISTMQ_COMPLETE=bash_source twistmq)"`; in zsh
and fish `zsh_source` and `fish_source`. Names of topics, groups and clusters are completed too: by
the servers of NAMESRV_ADDR or of a `-n` before, if they answer within half a second.

This page is written by `python -m twistmq.tools.pages.commands_page` from
`tools/admin/command_rows.py` and what packages add.
"""


def _option(option: Option) -> str:
    text = " ".join(f"`{flag}`" for flag in option.flags)
    if option.quoted:
        text += f" `'{option.quoted}'`"
    return f"**{text}**" if option.required else text


def _row(row: Command) -> str:
    options = ", ".join(map(_option, row.options))
    columns = ", ".join(row.columns)
    for name, others in row.other_columns.items():
        flag = next(option.flags[0] for option in row.options if option.name == name)
        columns += f"; with `{flag}` {', '.join(others)}"
    requests = ", ".join(str(int(code)) for code in row.requests)
    return f"| `{row.name}` | {row.help} | {options} | {columns} | {requests} |"


def commands_page() -> str:
    rows = all_commands().values()
    parts = [_HEAD]
    for group in dict.fromkeys([*GROUPS, *(row.group for row in rows)]):
        lines = [_row(row) for row in rows if row.group == group]
        if lines:
            parts.append(f"\n## {GROUPS.get(group, group)} ({group})\n\n"
                         "| command | what | options, **needed** | columns | codes |\n"
                         "| --- | --- | --- | --- | --- |\n" + "\n".join(lines) + "\n")
    parts.append("\n## mqadmin's commands that are not here\n\n| command | why |\n| --- | --- |\n"
                 + "\n".join(f"| `{name}` | {why} |" for name, why in LEFT_OUT.items()) + "\n")
    return "".join(parts)


if __name__ == "__main__":
    print(commands_page(), end="")
