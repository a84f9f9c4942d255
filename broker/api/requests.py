"""Building blocks for request handlers that wait, filter, keep a table or create topics.

A patch release keeps these names; a minor release may change them and lists this in CHANGELOG.md.
"""

from __future__ import annotations

from twistmq.broker.client.name_servers import Registered
from twistmq.broker.plugin.interfaces import BroadcastClient
from twistmq.broker.plugin.synced_table import SyncedTable
from twistmq.broker.remoting.forwarded_headers import forwarded
from twistmq.broker.remoting.host_shares import Shares
from twistmq.broker.remoting.interfaces import OpenPort, WaitingRequests
from twistmq.broker.remoting.long_answers import Work
from twistmq.broker.remoting.messages import Channel, DeferredReply, now_or_later
from twistmq.broker.request.acknowledgement import Stage
from twistmq.broker.request.client_table import Client
from twistmq.broker.request.filters import (
    Matches,
    PropertyFilter,
    UnknownLanguage,
    is_tag_type,
    wants_any,
)
from twistmq.broker.request.persisted_table import FileRows, SavedTable, Saving
from twistmq.broker.request.priority import is_priority_topic, priority_factor
from twistmq.broker.request.refusals import no_group, no_queue, no_topic
from twistmq.broker.request.send_context import is_stored
from twistmq.broker.request.send_record import RecordMaker
from twistmq.broker.request.send_topic import SendTopics, queue_refusal
from twistmq.broker.request.settled_progress import SettledProgress
from twistmq.broker.request.topic_config import is_batch_topic
from twistmq.broker.request.waiting_by_tag import WaitingByTag, index_size
from twistmq.protocol.run_to_completion import run_to_completion

__all__ = [
    "BroadcastClient",
    "Channel",
    "Client",
    "DeferredReply",
    "FileRows",
    "Matches",
    "OpenPort",
    "PropertyFilter",
    "RecordMaker",
    "Registered",
    "SavedTable",
    "Saving",
    "SendTopics",
    "SettledProgress",
    "Shares",
    "Stage",
    "SyncedTable",
    "UnknownLanguage",
    "WaitingByTag",
    "WaitingRequests",
    "Work",
    "forwarded",
    "index_size",
    "is_batch_topic",
    "is_priority_topic",
    "is_stored",
    "is_tag_type",
    "no_group",
    "no_queue",
    "no_topic",
    "now_or_later",
    "priority_factor",
    "queue_refusal",
    "run_to_completion",
    "wants_any",
]
