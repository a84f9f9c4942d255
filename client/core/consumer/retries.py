"""Messages that a handler could not process: they are sent back, for a retry or as dead letters.

A message is sent back to the broker that stores it (36). The broker puts it into the group's retry
topic with a delay that grows with each attempt, or into the dead-letter topic. If the broker
refuses or does not answer, the client puts a copy into the retry topic itself. If that fails too,
the message waits in this member for five seconds and is handed out again. A close does not wait for
that: the message is not finished, so the group gets it again.

Source: DefaultMQPushConsumerImpl.sendMessageBack, ConsumeMessageConcurrentlyService @5.3.3, and
the copied properties as in 5.3.4. Differs from Apache: the window distinguishes a message that a
time-out sent back from its late result.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from twistmq.client.base.errors import refusal
from twistmq.client.base.messages import ReceivedMessage
from twistmq.client.core.connection.client import ClientCore
from twistmq.client.core.producer.outgoing_message import OutgoingMessage
from twistmq.client.core.producer.sender import Sender
from twistmq.protocol import properties as names
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.errors import BrokerError
from twistmq.protocol.headers.send import ConsumerSendMsgBackRequestHeader
from twistmq.protocol.properties import format_properties
from twistmq.protocol.topic_names import retry_topic

__all__ = ["DEAD_LEVEL", "Retries"]

log = logging.getLogger("twistmq.client")

#: The delay level that means that there are no further attempts.
DEAD_LEVEL: Final = -1
#: The first delay level of the fallback, to which the attempts are added.
_FIRST_LEVEL: Final = 3
_TIMEOUT_MS: Final = 5000


class Retries:
    """Sends messages back to brokers.

    :param group: the consumer group, with its name at brokers.
    :param sender: sends the copies if a broker does not accept a message back.
    :param max_attempts: the number of further attempts before a failed message becomes a dead
        letter.
    """

    def __init__(
        self, client: ClientCore, group: str, sender: Sender, max_attempts: int
    ) -> None:
        self._client = client
        self._group = group
        self._sender = sender
        self.max_attempts = max_attempts

    async def send_back(self, message: ReceivedMessage[Any], level: int) -> bool:
        """Send a message back.

        :param level: the delay level; 0: the broker chooses it by the attempts; -1: dead letter.
        :returns: whether it is known to be stored; otherwise it has to be handed out again here.
        """
        if message.damage:
            return self._is_given_up(message, level)
        try:
            await self.ask_back(message, level)
            return True
        except BrokerError as error:
            log.warning("%r cannot be sent back, so a copy of it goes to the retry topic: %s",
                        message, error)
        try:
            await self._sender.send(self.copy(message), timeout_ms=_TIMEOUT_MS)
            return True
        except BrokerError as error:
            log.warning("%r waits here for its next attempt: %s", message, error)
            return False

    def _is_given_up(self, message: ReceivedMessage[Any], level: int) -> bool:
        """Whether a damaged message is not handed out again.

        It is not copied: the copy would have a new CRC, which would hide the damage.
        """
        if level >= 0 and message.attempt <= self.max_attempts:
            return False
        log.error("%r is given up: it is damaged, so it does not go to the dead letters", message)
        return True

    async def ask_back(self, message: ReceivedMessage[Any], level: int) -> None:
        """Ask the broker to take a message back.

        :param level: the delay level, as for :meth:`send_back`.
        :raises RequestRefused, RemotingError, NoRoute: when the broker did not accept it.
        """
        record = message.record
        header = ConsumerSendMsgBackRequestHeader(
            offset=record.physical_offset, group=self._group, delay_level=level,
            origin_msg_id=message.id, origin_topic=record.topic,
            max_reconsume_times=self.max_attempts)
        address = self._client.routes.master(self._client.routes.broker_of(message.queue))
        reply = await self._client.engine.invoke(
            address, RequestCode.CONSUMER_SEND_MSG_BACK, header, timeout_ms=_TIMEOUT_MS)
        if reply.code != ResponseCode.SUCCESS:
            raise refusal(reply.code, reply.remark, address)

    def copy(self, message: ReceivedMessage[Any]) -> OutgoingMessage:
        """Return the copy for the retry topic."""
        record = message.record
        properties = dict(message.properties)
        origin = properties.get(names.ORIGIN_MESSAGE_ID) or message.id
        attempts = record.reconsume_times
        properties.update({
            names.RETRY_TOPIC: properties.get(names.RETRY_TOPIC) or record.topic,
            names.ORIGIN_MESSAGE_ID: origin,
            names.DELAY: str(_FIRST_LEVEL + attempts),
        })
        properties.pop(names.TRAN_MSG, None)
        return OutgoingMessage(
            retry_topic(self._group), record.body, format_properties(properties),
            properties.get(names.UNIQ_KEY, ""), flag=record.flag, sys_flag=record.sys_flag,
            reconsume_times=attempts + 1, max_reconsume_times=self.max_attempts)
