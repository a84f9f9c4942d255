"""Features that messages ask for by a property, and the refusal where no plugin provides them.

A plugin that gives it claims the property (``claim_properties``). Stored as ordinary ones, such
messages would be delivered at once: that is refused, not done in silence. Transactions are the
property TRAN_MSG; their plugin is ``kernel.transaction_service``.

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
#: By property, how a message is refused that has it. A level wins over a time.
# Differs from Apache: its broker has levels always, so it has no words for their absence.
_REFUSALS: Final[Mapping[str, tuple[int, str]]] = {
    names.DELAY: (ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                  "no plugin of this broker delays messages by level"),
    names.TIMER_DELAY_SEC: _NO_TIMERS,
    names.TIMER_DELAY_MS: _NO_TIMERS,
    names.TIMER_DELIVER_MS: _NO_TIMERS,
}


def unclaimed_properties(claimed: Collection[str]) -> frozenset[str]:
    """The properties that ask for what no plugin gives."""
    return frozenset(_REFUSALS).difference(claimed)


def refuse_unclaimed(
    topic: str, fields: Mapping[str, str], unclaimed: Collection[str]
) -> None:
    """Refuse a message that asks for a feature without a provider.

    On a retry topic a delay level is no wish of the sender's: without who delays, the next try
    comes at once.

    :param fields: the message's properties.
    :raises RequestRefused: as Apache's broker refuses where the feature is off.
    """
    delayed = _is_delayed(fields.get(names.DELAY))
    for name, (code, remark) in _REFUSALS.items():
        if name not in fields or name not in unclaimed:
            continue
        if name == names.DELAY:
            is_asked = delayed and not topic.startswith(RETRY_GROUP_TOPIC_PREFIX)
        else:
            # One that was a timer has TIMER_OUT_MS, and may be sent on.
            is_asked = not delayed and names.TIMER_OUT_MS not in fields
        if is_asked:
            raise RequestRefused(code, remark)


def _is_delayed(level: str | None) -> bool:
    """Whether a level asks for a delay; what is no number may mean one."""
    if level is None:
        return False
    try:
        return int(level) > 0
    except ValueError:
        return True
