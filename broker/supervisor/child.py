"""The process of one broker of several: ``twistmq``, as long as its supervisor runs.

The process has its own process group, so that Ctrl-C on a terminal reaches only the supervisor,
which then stops the broker. It creates the group before it imports any large module. If the
supervisor is killed, the other end of standard input is closed, and this process stops as it does
after SIGTERM.

Source: design of twistmq.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import Final

__all__ = ["run"]

_CHUNK: Final = 4096


def _stop_without_supervisor() -> None:
    while os.read(0, _CHUNK):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def run() -> int:
    """Run the command line; :returns: the exit status."""
    os.setpgid(0, 0)
    from twistmq.broker.edge.first_signals import hold_signals

    hold_signals()
    from twistmq.broker.edge.systemd_notify import NOTIFY_SOCKET
    from twistmq.tools.command_line import main

    # systemd knows only the supervisor as its service.
    os.environ.pop(NOTIFY_SOCKET, None)
    threading.Thread(target=_stop_without_supervisor, name="supervisor watch", daemon=True).start()
    return main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(run())
