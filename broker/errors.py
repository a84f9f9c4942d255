"""The errors that only a server raises; they extend the tree of ``twistmq.protocol.errors``.

    StoreError                  the store could not carry out an operation
      StoreFull                 the disk is full: sends are refused, reads continue
      StoreClosed               the store is stopping or does not accept writes
        StoreGone               files of the running store were removed, renamed or cut
      StoreCut                  the end of the log was removed before it was durable
      MessageIllegal            the record does not fit the format's limits
        LightQueuesFull         it needs one more light queue than is allowed
    SettingsError               a setting has no meaning; shown on the command line
      SettingUnavailable        a file or port that it names is not available now

Handlers raise these errors, and a single translator (``remoting/dispatcher.py``) turns an error
into the reply. Source: ResponseCode @5.3.3.
"""

from __future__ import annotations

from typing import Final

from twistmq.protocol.codes import ResponseCode
from twistmq.protocol.errors import CopiedError, MessageIllegal, StoreError

__all__ = [
    "FAULTS",
    "LightQueuesFull",
    "SettingUnavailable",
    "SettingsError",
    "StoreClosed",
    "StoreCut",
    "StoreFull",
    "StoreGone",
]

#: The exceptions that count as a fault of a plugin. A plugin must not end the process.
FAULTS: Final = (Exception, SystemExit)


class StoreFull(StoreError):
    """The disk is full or over its limit; the messages in the store can still be read."""

    response_code = ResponseCode.SERVICE_NOT_AVAILABLE
    retriable = True


class StoreClosed(StoreError):
    """The store does not accept messages: it is stopping, or its role forbids it."""

    response_code = ResponseCode.SERVICE_NOT_AVAILABLE
    retriable = True


class StoreCut(StoreError):
    """The end of the log was removed, because the replicas have agreed on other messages."""


class StoreGone(StoreClosed):
    """The folder or the commit log of the running store is gone: removed, renamed or truncated.

    Differs from Apache: its broker keeps writing into the removed files.
    """


class LightQueuesFull(MessageIllegal):
    """The number of light queues has reached maxLmqConsumeQueueNum."""

    response_code = ResponseCode.SYSTEM_ERROR


class SettingsError(CopiedError):
    """A setting is unknown, out of bounds or of the wrong type; the text gives the reason."""


class SettingUnavailable(SettingsError):
    """The file or port that a setting names is not available now; the next start may succeed."""
