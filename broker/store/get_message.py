"""The question and the answer of a read of a queue.

Source: MessageFilter, GetMessageStatus, GetMessageResult @5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Protocol

__all__ = ["GetMessageResult", "GetMessageStatus", "KnownAnswers", "MessageFilter",
           "entries_to_look_at"]


#: Earlier results of a filter for messages of a queue: given queue id, the offset of the first,
#: its place in the commit log, and how many, a byte for each, 1 it is wanted, 0 it is not, as many
#: as it knows. It is asked for the others.
KnownAnswers = Callable[[int, int, int, int], bytes]


class MessageFilter(Protocol):
    """Decides which messages of a queue a reader gets, in two steps: entry, then record.

    One that takes long to ask may say so in an attribute ``cost``, see ``entries_to_look_at``;
    one that takes much memory may say so in an attribute ``size_bytes``; one that every entry
    passes may say so by ``asks_entries = False``, and is not asked by entries then. One that was
    asked before may say what it said in an attribute ``known_answers``, see KnownAnswers.
    """

    def match_queue_entry(
        self, tags_code: int, store_time: int | None = None, bitmap: bytes | None = None
    ) -> bool:
        """Whether a queue entry may be wanted; the record is not even read when it is not.

        :param tags_code: Java hash of the message's tag, 0 without one.
        """

    def match_record(self, record: bytes) -> bool:
        """Whether a record is wanted.

        :param record: whole, as in the commit log.
        """

    def match_properties(self, properties: str) -> bool:
        """Whether a message that is just stored is wanted, where there is no record yet to ask.

        :param properties: as stored.
        """


def entries_to_look_at(message_filter: MessageFilter, size_max: int, entry_size: int) -> int:
    """How many entries one read may look at for a filter, so that others do not wait.

    :param size_max: max_filter_message_size: bytes of entries for a filter whose ``cost`` is 1.
    :param entry_size: bytes of one entry.
    """
    cost: int = getattr(message_filter, "cost", 1)
    return size_max // entry_size // cost


class GetMessageStatus(Enum):
    """How a read of a queue ended."""

    FOUND = auto()
    #: The filter wanted none of those that were looked at.
    NO_MATCHED_MESSAGE = auto()
    #: The records are no longer in the commit log.
    MESSAGE_WAS_REMOVING = auto()
    #: The queue's file of this offset is gone.
    OFFSET_FOUND_NULL = auto()
    OFFSET_OVERFLOW_BADLY = auto()
    #: The offset the next message will have: wait for it.
    OFFSET_OVERFLOW_ONE = auto()
    OFFSET_TOO_SMALL = auto()
    NO_MATCHED_LOGIC_QUEUE = auto()
    NO_MESSAGE_IN_QUEUE = auto()
    #: An operator moved the group's offset; not answered by the store.
    OFFSET_RESET = auto()


@dataclass(slots=True)
class GetMessageResult:
    """The answer to a read of a queue."""

    status: GetMessageStatus
    #: Where the reader should go on.
    next_begin_offset: int
    min_offset: int
    max_offset: int
    #: Records, whole, in order.
    messages: list[bytes] = field(default_factory=list)
    #: Bytes of all of them.
    size: int = 0
    #: The reader is so far behind that a slave should serve it.
    suggest_slave: bool = False
    #: Messages in ``messages``, those of inner batches counted one by one.
    message_count: int = 0
    #: Records that were read and not wanted.
    filtered_count: int = 0

    @property
    def count(self) -> int:
        """Records in ``messages``."""
        return len(self.messages)
