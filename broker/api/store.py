"""Reading the store, and files that belong to a plugin.

A patch release keeps these names; a minor release may change them and lists this in CHANGELOG.md.
"""

from __future__ import annotations

from twistmq.broker.store.config_file import ConfigFile
from twistmq.broker.store.consume_queue import ENTRY_SIZE, ConsumeQueue
from twistmq.broker.store.extension_unit import ExtensionUnit, is_address
from twistmq.broker.store.get_message import GetMessageResult, GetMessageStatus, MessageFilter
from twistmq.broker.store.interfaces import IStoreFile, IStoreIO
from twistmq.broker.store.message_store import MessageStore
from twistmq.broker.store.regular_file import read_named
from twistmq.broker.store.segment_files import OpenFiles, list_segments, segment_path
from twistmq.broker.store.stored_records import TagsCode

__all__ = [
    "ENTRY_SIZE",
    "ConfigFile",
    "ConsumeQueue",
    "ExtensionUnit",
    "GetMessageResult",
    "GetMessageStatus",
    "IStoreFile",
    "IStoreIO",
    "MessageFilter",
    "MessageStore",
    "OpenFiles",
    "TagsCode",
    "is_address",
    "list_segments",
    "read_named",
    "segment_path",
]
