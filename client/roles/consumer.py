"""The methods that consumers of all styles share, besides their iterations and their handlers."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from twistmq.client.base.errors import OptionError
from twistmq.client.base.messages import ReceivedMessage, SendResult, check_message
from twistmq.client.core.connection.client import ClientCore
from twistmq.client.core.consumer.handler_calls import HandlerCalls
from twistmq.client.core.consumer.member import Member
from twistmq.client.core.consumer.subscriptions import Topics
from twistmq.client.core.producer.replies import reply_to
from twistmq.client.roles.member import BaseMember
from twistmq.client.roles.parts import build_consumer
from twistmq.client.roles.waits import waits

__all__ = ["BaseConsumer", "as_list"]

T = TypeVar("T")


class BaseConsumer(BaseMember[T]):
    """A consumer that handles messages."""

    _handling: HandlerCalls[T]

    def _build(
        self, core: ClientCore, group: str, topics: Topics | None, options: Mapping[str, Any]
    ) -> Member[T]:
        return build_consumer(core, group, topics or (), options)

    @abstractmethod
    def _check_open(self) -> None:
        """:raises Closed: when the consumer is closed."""

    def _finish(self) -> None:
        """Report to the core the messages that iterations have finished, if this was postponed."""

    @waits
    async def acknowledge(
        self, messages: ReceivedMessage[T] | Sequence[ReceivedMessage[T]]
    ) -> None:
        """Acknowledge messages of an iteration, in any order.

        The loop may continue or end afterwards. A program that processes several messages at once
        makes the consumer with ``auto_acknowledge=False``, so that the loop itself does not
        acknowledge any message.

        :raises AlreadyHandled: when a message already has its result.
        :raises NotAssigned: when a message is delivered again because its queue now belongs to
            another member. In both cases, the other messages are acknowledged.
        """
        self._check_open()
        self._finish()
        self._apply(self._handling.acknowledge, as_list(messages))

    @waits
    async def reply(self, message: ReceivedMessage[T], body: bytes) -> SendResult:
        """Reply to a message that a producer sent by ``request``.

        Consumers of all styles have this method. The message counts as processed under the same
        rules as any other message.

        :raises OptionError: when the message is not a request.
        :raises RequestRefused: when the producer does not take the reply, for example because it
            has left.
        :raises SendFailed: when no broker answers.
        """
        check_message(message)
        return await self._call(reply_to, self._member.sender, message, body)

    def stop(self) -> None:
        """End ``run`` and the iteration once the messages that are being handled are finished."""
        self._set_stopped()
        self._post(self._member.wake_all)

    def _set_stopped(self) -> None:
        self._handling.is_stopped = True


def as_list(
    messages: ReceivedMessage[T] | Sequence[ReceivedMessage[T]]
) -> list[ReceivedMessage[T]]:
    """Return one message or several messages as a list.

    :raises OptionError: when it is anything else.
    """
    if isinstance(messages, ReceivedMessage):
        return [messages]
    if isinstance(messages, str | bytes) or not isinstance(messages, Iterable):
        raise OptionError(f"messages are {messages!r}: give a message or a list of messages")
    several = list(messages)
    for message in several:
        check_message(message)
    return several
