"""The result of reading a queue, and the filter that selects messages.

Source: MessageFilter, GetMessageStatus, GetMessageResult @5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import Protocol

__all__ = ["GetMessageResult", "GetMessageStatus", "KnownAnswers", "MessageFilter",
           "entries_to_look_at"]


#: Returns earlier results of a filter for messages of a queue. The arguments are the queue id, the
#: offset of the first message, its commit-log offset, and the number of messages. The result has
#: one byte per message, 1 for a match and 0 otherwise, for as many messages as are known. The
#: filter is asked about the other messages.
KnownAnswers = Callable[[int, int, int, int], bytes]


class MessageFilter(Protocol):
    """Decides which messages of a queue a reader gets, in two steps: first by the entry, then by
    the record.

    A filter can have these optional attributes. ``cost`` is higher for a filter that takes long to
    evaluate, see ``entries_to_look_at``. ``size_bytes`` is the memory that it uses. ``asks_entries
    = False`` marks a filter that every entry passes, so that it is not asked about entries.
    ``known_answers`` returns earlier results, see KnownAnswers.
    """

    def match_queue_entry(
        self, tags_code: int, store_time: int | None = None, bitmap: bytes | None = None
    ) -> bool:
        """Return whether a queue entry may match; if not, the record is not even read.

        :param tags_code: the Java hash of the message's tag, 0 without a tag.
        """

    def match_record(self, record: bytes) -> bool:
        """Return whether a record matches.

        :param record: the whole record, as in the commit log.
        """

    def match_properties(self, properties: str) -> bool:
        """Return whether a message that is just being stored matches, before its record can be
        read.

        :param properties: as stored.
        """


def entries_to_look_at(message_filter: MessageFilter, size_max: int, entry_size: int) -> int:
    """Return how many entries one read may examine for a filter, so that other work is not delayed.

    :param size_max: max_filter_message_size: the size of the entries for a filter with a ``cost``
        of 1, in bytes.
    :param entry_size: the size of one entry in bytes.
    """
    cost: int = getattr(message_filter, "cost", 1)
    return size_max // entry_size // cost


class GetMessageStatus(Enum):
    """How a read of a queue ended."""

    FOUND = auto()
    #: None of the examined messages matched the filter.
    NO_MATCHED_MESSAGE = auto()
    #: The records are no longer in the commit log.
    MESSAGE_WAS_REMOVING = auto()
    #: The file of the queue that contained this offset has been removed.
    OFFSET_FOUND_NULL = auto()
    OFFSET_OVERFLOW_BADLY = auto()
    #: The offset of the next message: the reader should wait for it.
    OFFSET_OVERFLOW_ONE = auto()
    OFFSET_TOO_SMALL = auto()
    NO_MATCHED_LOGIC_QUEUE = auto()
    NO_MESSAGE_IN_QUEUE = auto()
    #: An operator moved the group's offset. The store itself does not return this status.
    OFFSET_RESET = auto()


class GetMessageResult:
    """The result of reading a queue.

    :param next_begin_offset: the offset at which the reader should continue.
    :param min_offset: the first offset of the queue, as ``max_offset`` is its end.
    """

    def __init__(
        self, status: GetMessageStatus, next_begin_offset: int, min_offset: int, max_offset: int
    ) -> None:
        self.status = status
        self.next_begin_offset = next_begin_offset
        self.min_offset = min_offset
        self.max_offset = max_offset
        #: Whole records, in order.
        self.messages: list[bytes] = []
        #: Their total size in bytes.
        self.size = 0
        #: Whether the reader lags so far that a slave should serve it.
        self.suggest_slave = False
        #: The number of messages in ``messages``; messages of inner batches are counted one by one.
        self.message_count = 0
        #: The number of records that were read and did not match.
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
        """The number of records in ``messages``."""
        return len(self.messages)
