"""Refuses messages that ask for a feature by a property, where no plugin provides the feature.

A plugin that provides the feature claims the property (``claim_properties``). Without one, such
messages would be stored as ordinary messages and delivered at once; they are refused instead, so
that the sender notices. Transactions use the property TRAN_MSG; their plugin is
``kernel.transaction_service``.

Source: HookUtils.handleScheduleMessage, SendMessageProcessor.handlePutMessageResult @5.3.3.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from twistmq.protocol import properties as names
from twistmq.protocol.codes import ResponseCode
from twistmq.protocol.errors import RequestRefused
from twistmq.protocol.topic_names import RETRY_GROUP_TOPIC_PREFIX

__all__ = ["refuse_unclaimed", "unclaimed_properties"]

_NO_TIMERS: Final = (ResponseCode.SYSTEM_ERROR,
                     "accurate timer message is not enabled, timerWheelEnable is false")
#: The refusal of a message by the property it has. A delay level has precedence over a time.
# Differs from Apache: its broker always has levels, so it has no remark for their absence.
_REFUSALS: Final[Mapping[str, tuple[int, str]]] = {
    names.DELAY: (ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                  "no plugin of this broker delays messages by level"),
    names.TIMER_DELAY_SEC: _NO_TIMERS,
    names.TIMER_DELAY_MS: _NO_TIMERS,
    names.TIMER_DELIVER_MS: _NO_TIMERS,
}


def unclaimed_properties(claimed: Collection[str]) -> frozenset[str]:
    """Return the properties whose features no plugin provides."""
    return frozenset(_REFUSALS).difference(claimed)


def refuse_unclaimed(
    topic: str, fields: Mapping[str, str], unclaimed: Collection[str]
) -> None:
    """Refuse a message that asks for a feature without a provider.

    On a retry topic the sender did not choose the delay level. Without a plugin that delays, the
    next attempt comes at once.

    :param fields: the message's properties.
    :raises RequestRefused: as Apache's broker does when the feature is off.
    """
    delayed = _is_delayed(fields.get(names.DELAY))
    for name, (code, remark) in _REFUSALS.items():
        if name not in fields or name not in unclaimed:
            continue
        if name == names.DELAY:
            is_asked = delayed and not topic.startswith(RETRY_GROUP_TOPIC_PREFIX)
        else:
            # A message that was a timed message has TIMER_OUT_MS, and may be sent again.
            is_asked = not delayed and names.TIMER_OUT_MS not in fields
        if is_asked:
            raise RequestRefused(code, remark)


def _is_delayed(level: str | None) -> bool:
    """Whether a level asks for a delay; a text that is not a number may mean one."""
    if level is None:
        return False
    try:
        return int(level) > 0
    except ValueError:
        return True
