"""Upper limits for the contents of a single request.

A patch release keeps these names; a minor release may change them and lists this in CHANGELOG.md.
"""

from __future__ import annotations

from twistmq.broker.constants import (
    ATTEMPT_ID_LENGTH_MAX,
    BATCH_ACK_POINTS_MAX,
    BATCH_ACK_SIZE_MAX,
    CHECKPOINT_MARGIN_MS,
    CLIENT_ID_LENGTH_MAX,
    HEADER_SIZE_MAX,
    HOLD_MS_MAX,
    LOCK_BODY_SIZE_MAX,
    LOG_OFFSET_MAX,
    LONG_HEADER_SIZE_MAX,
    RECEIPT_LENGTH_MAX,
    SETTINGS_SIZE_MAX,
    TOPIC_QUEUES_MAX,
    TURN_SECONDS,
    VIP_PORT_DISTANCE,
)

__all__ = [
    "ATTEMPT_ID_LENGTH_MAX",
    "BATCH_ACK_POINTS_MAX",
    "BATCH_ACK_SIZE_MAX",
    "CHECKPOINT_MARGIN_MS",
    "CLIENT_ID_LENGTH_MAX",
    "HEADER_SIZE_MAX",
    "HOLD_MS_MAX",
    "LOCK_BODY_SIZE_MAX",
    "LOG_OFFSET_MAX",
    "LONG_HEADER_SIZE_MAX",
    "RECEIPT_LENGTH_MAX",
    "SETTINGS_SIZE_MAX",
    "TOPIC_QUEUES_MAX",
    "TURN_SECONDS",
    "VIP_PORT_DISTANCE",
]
