"""The names of topics and groups for the queues of a task library.

    queue Q    the topic prefix-Q, and the group of the same name

Characters that the name of a topic cannot have are percent-encoded, so two queues never share a
topic. A long name ends in a hash, because a broker builds the name of a retry topic from the names
of a group and a topic, and that name has at most 127 characters.
"""

from __future__ import annotations

from hashlib import blake2s
from typing import Final
from urllib.parse import quote

__all__ = ["prefixed_topic", "queue_topic", "search_keys"]

#: The longest name: "%RETRY%", two such names and a separator have at most 127 characters.
_LENGTH_MAX: Final = 59
_HASH_BYTES: Final = 6
#: The longest id of a task that becomes a key in the broker's index.
_KEY_MAX: Final = 128


def queue_topic(prefix: str, queue: str) -> str:
    """Return the name of the topic of a queue, which is also the name of its group."""
    return prefixed_topic(f"{prefix}-", queue)


def prefixed_topic(prefix: str, name: str) -> str:
    """Return a valid name of a topic: the prefix and the encoded name."""
    quoted = prefix + quote(name, safe="").replace(".", "%2E").replace("~", "%7E")
    if len(quoted) <= _LENGTH_MAX:
        return quoted
    digest = blake2s(quoted.encode(), digest_size=_HASH_BYTES).hexdigest()
    return f"{quoted[:_LENGTH_MAX - len(digest) - 1]}|{digest}"


def search_keys(task_id: object) -> list[str]:
    """Return the id of a task, by which ``twistmq admin queryMsgByKey`` finds the message.

    :returns: an empty list when the id cannot be a key.
    """
    if isinstance(task_id, str) and 0 < len(task_id) <= _KEY_MAX and task_id.isascii() and (
            task_id.isprintable() and " " not in task_id):
        return [task_id]
    return []
