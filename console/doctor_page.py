"""The findings of ``twistmq doctor`` about the servers in whose process the console runs.

The doctor looks at the settings, the ports and the disk of its host, so only the console of
``twistmq up`` has one, and visitors with accounts do not see it.
"""

from __future__ import annotations

from typing import Final

from twistmq.console.page import Cell, Column, Page, Table
from twistmq.console.page_session import PageSession
from twistmq.console.query import Query

__all__ = ["doctor_page"]

_FINDINGS: Final = (Column("level", "state"), Column("check"), Column("found"),
                    Column("mend", title="What to do"))
#: The order of the levels on the page.
_LEVELS: Final = ("broken", "warn", "ok")


def doctor_page(session: PageSession, query: Query) -> Page:
    """Show the findings, the worst first."""
    doctor = session.doctor
    findings = doctor() if doctor is not None else []
    findings.sort(key=lambda each: _LEVELS.index(each.level) if each.level in _LEVELS else 0)
    rows: list[tuple[Cell, ...]] = [
        (each.level, each.check, each.text, each.mend or None) for each in findings]
    page = Page("doctor", "Doctor", {"findings": Table(_FINDINGS, rows, empty=(
        "The doctor looks at the settings, the ports and the disk of a server: run the command "
        "twistmq doctor on its host with the arguments of the server. A console of twistmq up "
        "shows the findings here, unless visitors log in with accounts."))})
    page.facts = {"is_available": doctor is not None,
                  **{level: sum(each.level == level for each in findings) for level in _LEVELS}}
    return page
