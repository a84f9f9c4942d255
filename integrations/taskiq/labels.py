"""The labels of a task that determine how its message is sent.

Taskiq writes labels as texts into the message, and gives them to the broker in this form.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Any

import msgspec

from twistmq.integrations.base.names import search_keys

__all__ = ["SendLabels", "send_labels"]


class SendLabels(msgspec.Struct, frozen=True):
    """How a task is sent.

    :param queue: the name of its queue; None: the broker's own.
    :param due: the Unix seconds at which it is delivered; None: at once.
    :param priority: its priority, from 0; None: the lowest one.
    :param keys: the keys by which its message is found.
    :param tag: the tag of its message, or "".
    """

    queue: str | None = None
    due: float | None = None
    priority: int | None = None
    keys: tuple[str, ...] = ()
    tag: str = ""


def send_labels(task_id: str, labels: Mapping[str, Any]) -> SendLabels:
    """Read the labels ``queue_name``, ``delay``, ``priority``, ``message_keys``, ``message_tag``.

    :param task_id: the id of the task, which is also a key of the message.
    :raises ValueError: when a label is not valid; the text names it.
    """
    delay = _number(labels, "delay", float)
    priority = _number(labels, "priority", int)
    return SendLabels(
        queue=str(labels["queue_name"]) if labels.get("queue_name") else None,
        due=time.time() + delay if delay else None,
        priority=None if priority is None else int(priority),
        keys=(*search_keys(task_id), *str(labels.get("message_keys", "")).split()),
        tag=str(labels.get("message_tag", "")))


def _number(labels: Mapping[str, Any], name: str, kind: type[int] | type[float]) -> float | None:
    """Return a label that is a number of at least 0; None without this label."""
    value = labels.get(name)
    if value is None:
        return None
    try:
        number = kind(value)
        is_valid = math.isfinite(number) and number >= 0
    except (TypeError, ValueError, OverflowError):
        is_valid = False
    if not is_valid:
        raise ValueError(f"label {name} is {value!r}: give a number of at least 0")
    return number
