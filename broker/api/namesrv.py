"""Names of a name server that its plugins use.

A patch release keeps these names; a minor release may change them, and CHANGELOG.md says so.
"""

from __future__ import annotations

from twistmq.broker.namesrv.route_info import LEAVE_REASONS

__all__ = [
    "LEAVE_REASONS",
]
