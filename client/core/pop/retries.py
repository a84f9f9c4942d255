"""Popped messages that could not be processed: hidden until the next attempt, or dead letters.

Source: DefaultMQPushConsumerImpl.popDelayLevel @5.3.3; for dead letters ReceiveMessageActivity of
its proxy. Differs from Apache's client, which acknowledges a message that failed too often, and
does so only once it is old.
"""

from __future__ import annotations

from typing import Any, Final

from twistmq.client.core.consumer.retries import DEAD_LEVEL, Retries
from twistmq.client.core.pop.acknowledger import Acknowledger
from twistmq.client.core.pop.popped_message import PoppedMessage

__all__ = ["PopRetries", "delay_ms"]

#: The delay levels of brokers in seconds, from 1 on; and the level of the first retry.
#: Source: MessageStoreConfig.messageDelayLevel.
_LEVELS_S: Final = (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800,
                    3600, 7200)
_FIRST_LEVEL: Final = 3


def delay_ms(message: PoppedMessage[Any], level: int = 0) -> float:
    """Return the wait before the next attempt with a message.

    :param level: a delay level; with 0, it is chosen by the attempts.
    """
    chosen = level or _FIRST_LEVEL + message.attempt - 1
    return _LEVELS_S[min(max(chosen, 1), len(_LEVELS_S)) - 1] * 1000.0


class PopRetries:
    """Sends messages of one member to the dead letters.

    :param retries: sends the requests to brokers.
    """

    def __init__(self, retries: Retries, acks: Acknowledger) -> None:
        self._retries = retries
        self._acks = acks

    async def bury(self, message: PoppedMessage[Any]) -> None:
        """Send a message to the dead letters, and then acknowledge it.

        :raises BrokerError: when its broker does not accept it.
        """
        await self._retries.ask_back(message, DEAD_LEVEL)
        await self._acks.add(message, is_patient=False)
