"""Runs ``twistmq doctor`` as a separate process.

In the process of a broker, the look of the doctor at the lock of the store would release this lock.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from threading import Lock
from typing import Final

import msgspec

from twistmq.tools.admin.session import AdminError

__all__ = ["DOCTOR_S", "DoctorRunner", "Finding"]

#: The time that the doctor may take, seconds.
DOCTOR_S: Final = 40.0
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
