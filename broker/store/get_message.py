"""The question and the answer of a read of a queue.

Source: MessageFilter, GetMessageStatus, GetMessageResult @5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable
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


class GetMessageResult:
    """The answer to a read of a queue.

    :param next_begin_offset: where the reader should go on.
    :param min_offset: of the queue, as ``max_offset``.
    """

    def __init__(
        self, status: GetMessageStatus, next_begin_offset: int, min_offset: int, max_offset: int
    ) -> None:
        self.status = status
        self.next_begin_offset = next_begin_offset
        self.min_offset = min_offset
        self.max_offset = max_offset
        #: Records, whole, in order.
        self.messages: list[bytes] = []
        #: Bytes of all of them.
        self.size = 0
        #: The reader is so far behind that a slave should serve it.
        self.suggest_slave = False
        #: Messages in ``messages``, those of inner batches counted one by one.
        self.message_count = 0
        #: Records that were read and not wanted.
        self.filtered_count = 0

    def __reduce__(self) -> tuple[object, ...]:
        return GetMessageResult, (
            self.status, self.next_begin_offset, self.min_offset, self.max_offset
        ), (self.messages, self.size, self.suggest_slave, self.message_count, self.filtered_count)

    def __setstate__(self, state: tuple[list[bytes], int, bool, int, int]) -> None:
        messages, size, suggest_slave, message_count, filtered_count = state
        self.messages = list(messages)
        self.size = size
        self.suggest_slave = suggest_slave
        self.message_count = message_count
        self.filtered_count = filtered_count

    @property
    def count(self) -> int:
        """Records in ``messages``."""
        return len(self.messages)
