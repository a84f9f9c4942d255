"""The names of topics and groups for the queues and exchanges of AMQP.

    queue Q       the topic prefix-Q, and the group of the same name
    exchange E    the topic prefix_x-E; the default exchange has an empty name

Characters that the name of a topic cannot have are percent-encoded, so two queues never share a
topic. A long name ends in a hash, because a broker builds the name of a retry topic from the names
of a group and a topic, and that name has at most 127 characters.
"""

from __future__ import annotations

from hashlib import blake2s
from typing import Final
from urllib.parse import quote

__all__ = ["exchange_topic", "queue_topic"]

#: The longest name: "%RETRY%", two such names and a separator have at most 127 characters.
_LENGTH_MAX: Final = 59
_HASH_BYTES: Final = 6


def queue_topic(prefix: str, queue: str) -> str:
    """Return the name of a queue's topic, which is also the name of its group."""
    return _shortened(f"{prefix}-{_quoted(queue)}")


def exchange_topic(prefix: str, exchange: str) -> str:
    """Return the name of an exchange's topic."""
    return _shortened(f"{prefix}_x-{_quoted(exchange)}")


def _quoted(name: str) -> str:
    return quote(name, safe="").replace(".", "%2E").replace("~", "%7E")


def _shortened(name: str) -> str:
    if len(name) <= _LENGTH_MAX:
        return name
    digest = blake2s(name.encode(), digest_size=_HASH_BYTES).hexdigest()
    return f"{name[:_LENGTH_MAX - len(digest) - 1]}|{digest}"
