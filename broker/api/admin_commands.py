"""Commands of ``twistmq admin`` that a plugin adds: their rows, options and session.

A patch release keeps these names; a minor release may change them and lists this in CHANGELOG.md.
"""

from __future__ import annotations

from twistmq.tools.admin.brokers import broker_settings, runtime_table
from twistmq.tools.admin.messages import find_messages
from twistmq.tools.admin.option_rows import (
    BROKER,
    BROKER_NAME,
    CLUSTER,
    FROM_MS,
    INTERVAL,
    MAX_COUNT,
    MESSAGE_ID,
    TO_MS,
    TOPIC,
)
from twistmq.tools.admin.rows import Command, Millis, Option, Row
from twistmq.tools.admin.session import AdminError, Session
from twistmq.tools.admin.session import Broker as RegisteredBroker

__all__ = [
    "BROKER",
    "BROKER_NAME",
    "CLUSTER",
    "FROM_MS",
    "INTERVAL",
    "MAX_COUNT",
    "MESSAGE_ID",
    "TOPIC",
    "TO_MS",
    "AdminError",
    "Command",
    "Millis",
    "Option",
    "RegisteredBroker",
    "Row",
    "Session",
    "broker_settings",
    "find_messages",
    "runtime_table",
]
