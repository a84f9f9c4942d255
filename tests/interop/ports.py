"""Ports for servers that another process will bind, also again after a restart.

A port that the system chose for a moment is anybody's a moment later: the next connection of any
client may have it, even the one that tries to reach the server that is about to come back there.
The ports given out here lie below those the system gives to connections, and no other process of
the tests is given them while this one lives.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import socket
import tempfile
from pathlib import Path
from typing import Final

__all__ = ["free_port", "free_ports"]

#: The lowest port given out, and where those of connections begin when the system does not say.
_LOWEST: Final = 10_000
_RANGE: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
_CONNECTIONS_BEGIN: Final = 32_768
#: A broker takes the port two below its own and the one above, too.
_BLOCK: Final = 4
_OWN: Final = 2
_TRIES: Final = 1000

#: The blocks this process was given.
_taken: set[int] = set()
#: The file whose bytes are locked, one for each block; open as long as this process lives.
_locks: list[int] = []


def free_port() -> int:
    """Return a free port, around which the other ports of a broker are free.

    :raises RuntimeError: when none is found.
    """
    return free_ports(_BLOCK) + _OWN


def free_ports(count: int) -> int:
    """The first of so many ports that are free, one after the other.

    :raises RuntimeError: when none are found.
    """
    size = -(-count // _BLOCK)
    for _ in range(_TRIES):
        first = random.randrange(_LOWEST // _BLOCK, _connections_begin() // _BLOCK - size + 1)
        blocks = range(first, first + size)
        if all(block not in _taken and _is_free(block) for block in blocks) and all(
                map(_take, blocks)):
            return first * _BLOCK
    raise RuntimeError("no free ports")


def _connections_begin() -> int:
    try:
        begin = int(_RANGE.read_text().split()[0])
    except OSError:
        return _CONNECTIONS_BEGIN
    return begin if begin >= 2 * _LOWEST else _CONNECTIONS_BEGIN


def _is_free(block: int) -> bool:
    """Whether all ports of a block can be bound now."""
    with contextlib.ExitStack() as stack:
        try:
            for port in range(block * _BLOCK, (block + 1) * _BLOCK):
                stack.enter_context(socket.socket()).bind(("", port))
        except OSError:
            return False
    return True


def _take(block: int) -> bool:
    """Lock a block; :returns: whether no other process has it.

    Such locks end with the process, and when it closes any descriptor of the file.
    """
    if not _locks:
        path = Path(tempfile.gettempdir()) / f"twistmq-test-ports-{os.getuid()}"
        _locks.append(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    try:
        fcntl.lockf(_locks[0], fcntl.LOCK_EX | fcntl.LOCK_NB, 1, block)
    except OSError:
        return False
    _taken.add(block)
    return True
