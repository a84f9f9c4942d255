"""The brokers of ``--group N``: several brokers of one name, which elect their master.

They are the brokers of ``--brokers N`` with a common name and with the settings of a group. The
members reach each other at their ``haListenPort``, which has no other use in a group.

Source: design of twistmq.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Final

from twistmq.broker.config.settings import Settings
from twistmq.broker.edge.boot import EXIT_USAGE, WILDCARDS, StartRefused, log_folder
from twistmq.broker.supervisor.child_command import ChildCommand
from twistmq.broker.supervisor.members import Member, members_of

__all__ = ["members_of_command"]

_LOCAL: Final = "127.0.0.1"
_ENABLE: Final = "enableDLegerCommitLog"
_QUICK: Final = "dledger.quick_failover"


def members_of_command(settings: Settings, command: ChildCommand) -> list[Member]:
    """Return the brokers of a command, with the settings in which each one differs.

    :param settings: the settings of the command, with the rows of plugins.
    :raises SettingsError: as :func:`members_of`, and when a group cannot be formed.
    """
    members = members_of(settings, command.count)
    return _grouped(settings, members) if command.is_group else members


def _grouped(settings: Settings, members: list[Member]) -> list[Member]:
    if not settings.has(_ENABLE):
        raise StartRefused(EXIT_USAGE, "--group needs the plugin dledger, which is not in use")
    if not settings.int("listenPort"):
        raise settings.error("listenPort", "leaves the ports of the brokers open, but the members "
                                           "of a group must know each other's ports")
    name, host = settings.text("brokerName"), settings.text("bindAddress")
    if host in WILDCARDS:
        host = _LOCAL
    ids = [f"n{member.index}" for member in members]
    peers = ";".join(f"{member_id}-{host}:{member.values['haListenPort']}"
                     for member_id, member in zip(ids, members, strict=True))
    common = {"brokerName": name, "isolateLogEnable": "false", _ENABLE: "true",
              "dLegerGroup": name, "dLegerPeers": peers}
    if not settings.is_given(_QUICK):
        common[_QUICK] = "true"
    return [replace(member, values={
                **member.values, **common, "dLegerSelfId": member_id,
                "log.dir": os.path.join(log_folder(settings), member.name)})
            for member_id, member in zip(ids, members, strict=True)]
