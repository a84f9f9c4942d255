"""A small wheel of timed messages, for tests with many brokers in memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from unittest.mock import patch

from twistmq.plugins.timer import wheel

__all__ = ["small_wheel"]

#: The slots of the wheel, of a second each.
_SLOTS: Final = 240


@contextmanager
def small_wheel() -> Iterator[None]:
    """Let the wheel be of four minutes: each broker would need 38 MB for it."""
    with patch.object(wheel, "RING_SLOTS", _SLOTS), patch.object(
            wheel, "WHEEL_SIZE", _SLOTS * wheel.SLOT_SIZE):
        yield
