"""The commands ``twistmq produce``, ``consume``, ``request`` and ``bench``.

They are for pipes: a message a line in, a message a line out, or JSON. They end with 0, with 1
when something failed, 2 for a bad command line, 130 for Ctrl-C, and quietly when what reads their
output ends.

Source: client notes 2.5; the tools' options ``-n`` and ``tools.yml`` of mqadmin @5.3.3.
"""

from __future__ import annotations

from typing import Final

from twistmq.client.commands.bench import bench
from twistmq.client.commands.consume import consume
from twistmq.client.commands.produce import produce
from twistmq.client.commands.request import request

__all__ = ["COMMANDS"]

#: The commands by name.
COMMANDS: Final = {
    "bench": bench, "consume": consume, "produce": produce, "request": request}
