"""The modules that only name the new place of their contents."""

from __future__ import annotations

from typing import Final

__all__ = ["FORMER_PLACES"]

FORMER_PLACES: Final = {
    "broker/wire.py": "twistmq.protocol",
    "broker/codes.py": "twistmq.protocol.codes",
    "broker/topic_names.py": "twistmq.protocol.topic_names",
    "trace/records.py": "twistmq.protocol.trace_records",
}
