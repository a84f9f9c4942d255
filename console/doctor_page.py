"""The findings of ``twistmq doctor`` about the servers in whose process the console runs.

The doctor looks at the settings, the ports and the disk of its host, so only the console of
``twistmq up`` has one, and visitors with accounts do not see it. It runs as a process of its own:
in the process of a broker, its look at the lock of the store would release this lock.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Final

import msgspec

from twistmq.console.page import Cell, Column, Page, Table
from twistmq.console.page_session import PageSession
from twistmq.console.query import Query
from twistmq.tools.admin.session import AdminError

__all__ = ["DOCTOR_S", "DoctorRunner", "Finding", "doctor_page"]

#: The additional time that the page may take, seconds.
DOCTOR_S: Final = 40.0
_FINDINGS: Final = (Column("level", "state"), Column("check"), Column("found"), Column("mend"))
#: The order of the levels on the page.
_LEVELS: Final = ("broken", "warn", "ok")
_PROGRAM: Final = "import sys; from twistmq.tools.entry import main; sys.exit(main())"


class Finding(msgspec.Struct):
    """One result of the doctor."""

    check: str
    level: str
    text: str
    mend: str = ""


class _Report(msgspec.Struct):
    findings: list[Finding]


class DoctorRunner:
    """Runs ``twistmq doctor``, one at a time.

    :param arguments: the arguments of the command that describe the servers.
    """

    def __init__(self, arguments: Sequence[str]) -> None:
        self._arguments = arguments
        self._lock = Lock()

    def __call__(self) -> list[Finding]:
        """Return the findings.

        :raises AdminError: when another page waits for the doctor, or it fails.
        """
        if not self._lock.acquire(blocking=False):
            raise AdminError("the doctor already runs for another page: try again in a moment")
        try:
            run = subprocess.run(
                [sys.executable, "-c", _PROGRAM, "doctor", "--json", "--running",
                 *self._arguments], capture_output=True, timeout=DOCTOR_S, check=False)
            return msgspec.json.decode(run.stdout, type=_Report).findings
        except subprocess.TimeoutExpired:
            raise AdminError("the doctor did not end in time: run `twistmq doctor`") from None
        except msgspec.MsgspecError:
            raise AdminError("the doctor failed: run `twistmq doctor` to see why") from None
        finally:
            self._lock.release()


def doctor_page(session: PageSession, query: Query) -> Page:
    """Show the findings, the worst first."""
    doctor: Callable[[], list[Finding]] | None = session.doctor
    findings = doctor() if doctor is not None else []
    findings.sort(key=lambda each: _LEVELS.index(each.level) if each.level in _LEVELS else 0)
    rows: list[tuple[Cell, ...]] = [
        (each.level, each.check, each.text, each.mend or None) for each in findings]
    page = Page("doctor", "Doctor", {"findings": Table(_FINDINGS, rows, empty=(
        "The doctor looks at the settings, the ports and the disk of a server: run `twistmq "
        "doctor` on its host with the arguments of the server. The console of `twistmq up` shows "
        "the findings here, unless visitors log in with accounts."))})
    page.facts = {"is_available": doctor is not None,
                  **{level: sum(each.level == level for each in findings) for level in _LEVELS}}
    return page
