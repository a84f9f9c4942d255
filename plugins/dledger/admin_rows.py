"""The rows of ``twistmq admin leadershipTransfer`` and ``dledgerStatus``.

This module is loaded for every help text; the code of the commands is elsewhere. mqadmin has no
commands for a group. leadershipTransfer has the options of DLedger's own command line.

Source: LeadershipTransferCommand @dledger-0.2.6.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from twistmq.broker.api import RequestCode
from twistmq.broker.api.admin_commands import BROKER_NAME, CLUSTER, INTERVAL, Command, Option
from twistmq.protocol.codes import DLedgerRequestCode

__all__ = ["COMMANDS"]

_HERE: Final = "twistmq.plugins.dledger.admin_commands"
_NAME: Final = replace(BROKER_NAME, required=False, help="The group of the brokers of this name.")

COMMANDS: Final = (
    Command("leadershipTransfer", "ha", "Let another member of a group of brokers lead.",
            f"{_HERE}:transfer_lead",
            (Option("member", ("-t", "--transfereeId"), "The member that is to lead, such as n1.",
                    required=True),
             _NAME,
             Option("peers", ("-p", "--peers"),
                    "The members of the group, ID-HOST:PORT separated by semicolons; no name "
                    "server is asked."),
             Option("group", ("-g", "--group"), "With -p: the name of the group.",
                    default="default"),
             Option("leader", ("-l", "--leader"),
                    "The member that leads now; by default the members are asked."),
             Option("term", ("--term",), "The current term; by default the leader is asked.",
                    "int")),
            (RequestCode.GET_BROKER_CLUSTER_INFO, RequestCode.GET_BROKER_CONFIG,
             DLedgerRequestCode.METADATA, DLedgerRequestCode.HEART_BEAT,
             DLedgerRequestCode.LEADERSHIP_TRANSFER),
            ("group", "member", "address", "step", "result"), one_of=("broker", "peers")),
    Command("dledgerStatus", "ha", "Show the members of groups of brokers.",
            f"{_HERE}:group_status", (_NAME, CLUSTER, INTERVAL),
            (RequestCode.GET_BROKER_CLUSTER_INFO, RequestCode.GET_BROKER_CONFIG,
             RequestCode.GET_BROKER_RUNTIME_INFO),
            ("broker", "member", "address", "role", "leader", "term", "begin_index", "end_index",
             "committed_index", "lag", "reachable", "may_vote")),
)
