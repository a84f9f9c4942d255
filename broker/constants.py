"""Limits, each with its unit, its reason and its source; their relations hold at the foot."""

from __future__ import annotations

from typing import Final

from twistmq.broker.wire.frame import FRAME_SIZE_MAX

__all__ = [
    "CONNECTION_BYTES_IN_FLIGHT_MAX",
    "CONNECTION_BYTES_UNSENT_MAX",
    "HELD_PULLS_MAX",
    "STALL_SECONDS",
    "TOTAL_BYTES_IN_FLIGHT_MAX",
    "WRITE_STALL_MAX_MS",
]

# --- connections

#: Bytes of requests awaiting replies at which one connection stops reading. Twice the largest
#: frame, so that no single request can stop its own connection.
CONNECTION_BYTES_IN_FLIGHT_MAX: Final = 32 * 1024 * 1024
#: The same over all connections: what the process may hold for its clients.
TOTAL_BYTES_IN_FLIGHT_MAX: Final = 128 * 1024 * 1024
#: Bytes a peer that does not read may have waiting for it before it is cut off. Its requests are
#: not read meanwhile: this is what one read's pulls and its woken pulls can add up to.
CONNECTION_BYTES_UNSENT_MAX: Final = 64 * 1024 * 1024
#: How long a peer may take nothing of what waits for it, ms; as long as an idle connection lives.
WRITE_STALL_MAX_MS: Final = 120_000
#: Pulls that may wait for messages at a time (pullThreadPoolQueueCapacity @5.3.3).
HELD_PULLS_MAX: Final = 100_000

# --- the reactor

#: Work on the reactor that takes longer is logged and counted, seconds (design of twistmq).
STALL_SECONDS: Final = 0.010

assert CONNECTION_BYTES_IN_FLIGHT_MAX >= 2 * FRAME_SIZE_MAX
assert TOTAL_BYTES_IN_FLIGHT_MAX > CONNECTION_BYTES_IN_FLIGHT_MAX
assert CONNECTION_BYTES_UNSENT_MAX > FRAME_SIZE_MAX
