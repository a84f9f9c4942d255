"""Public names for plugins of a name server.

A patch release keeps these names; a minor release may change them and lists this in CHANGELOG.md.
"""

from __future__ import annotations

from twistmq.broker.namesrv.route_info import LEAVE_REASONS

__all__ = [
    "LEAVE_REASONS",
]
