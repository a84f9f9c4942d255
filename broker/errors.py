"""The errors that only a server has; they continue the tree of ``twistmq.protocol.errors``.

    StoreError                  the store could not do what was asked
      StoreFull                 the disk is full: sends are refused, reads go on
      StoreClosed               the store is stopping or does not accept writes
        StoreGone               files of the running store were removed, renamed or cut
      MessageIllegal            the record does not fit the format's limits
        LightQueuesFull         it would need one more light queue than are allowed
    SettingsError               a setting has no meaning; shown on the command line
      SettingUnavailable        a file or port that it names cannot be had now

Handlers raise errors, and one translator (``remoting/dispatcher.py``) turns an error into the
reply. Source: ResponseCode @5.3.3.
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
    "StoreFull",
    "StoreGone",
]

#: Exceptions that count as a plugin's own fault. A plugin may not end the process.
FAULTS: Final = (Exception, SystemExit)


class StoreFull(StoreError):
    """The disk is full or over its limit; messages that are stored can still be read."""

    response_code = ResponseCode.SERVICE_NOT_AVAILABLE
    retriable = True


class StoreClosed(StoreError):
    """The store does not accept messages: it is stopping, or its role forbids it."""

    response_code = ResponseCode.SERVICE_NOT_AVAILABLE
    retriable = True


class StoreGone(StoreClosed):
    """The folder or the commit log of the running store was removed, renamed, replaced or cut.

    Differs from Apache, whose broker keeps writing into the removed files.
    """


class LightQueuesFull(MessageIllegal):
    """There are as many light queues as maxLmqConsumeQueueNum allows."""

    response_code = ResponseCode.SYSTEM_ERROR


class SettingsError(CopiedError):
    """A setting is unknown, out of bounds or of the wrong type; the text says which and why."""


class SettingUnavailable(SettingsError):
    """The file or port that a setting names cannot be had now; the next start may succeed."""
