"""The client of every style: it answers questions about topics, queues and offsets."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, ParamSpec, TypeVar

from twistmq.client.base.argument_checks import check_attributes, check_text, check_whole
from twistmq.client.base.errors import OptionError
from twistmq.client.base.messages import MessageQueue, PullResult, check_queue
from twistmq.client.base.times import Time, unix_ms
from twistmq.client.core.connection.client import ClientCore
from twistmq.client.core.consumer.queries import Queries
from twistmq.client.roles.waits import waits
from twistmq.client.shell.options import milliseconds

__all__ = ["BaseClient", "check_pull"]

P = ParamSpec("P")
T = TypeVar("T")


class BaseClient:
    """A client of a cluster. Producers and consumers that are given the same client share it.

    Every offset is a logical index in a queue.
    """

    def __init__(self, core: ClientCore) -> None:
        self._core = core
        self._queries = Queries(core)

    @abstractmethod
    async def _call(
        self, function: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run a coroutine function of the core."""

    def __repr__(self) -> str:
        return repr(self._core)

    @property
    def client_id(self) -> str:
        """The id under which brokers know the client."""
        return self._core.client_id

    @waits
    async def topics(self) -> list[str]:
        """The names of all topics, sorted."""
        return await self._call(self._queries.topics)

    @waits
    async def create_topic(
        self, topic: str, *, queues: int = 4, attributes: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic on the master of each broker, and wait until the name servers know it.

        A topic that exists gets this number of queues.

        :param queues: the number of queues on each broker.
        :param attributes: attributes to set, such as ``{"message.type": "PRIORITY"}``; brokers of
            version 4 do not have any.
        :raises OptionError: when an argument is not valid.
        :raises RequestRefused: when a broker does not accept the name, or denies the request.
        :raises RemotingError, NoRoute: when a broker does not answer, or no name server knows a
            broker.
        """
        check_text(topic, "topic")
        check_whole(queues, "queues", 1)
        check_attributes(attributes)
        await self._call(self._queries.create_topic, topic, queues, attributes)

    @waits
    async def read_queues(self, topic: str, *, again: bool = False) -> list[MessageQueue]:
        """The queues from which a topic can be read, sorted.

        :param again: ask the name servers even when the route is known.
        :raises RequestRefused: with TOPIC_NOT_EXIST when no name server knows the topic.
        :raises RemotingError: when no name server answers.
        """
        check_text(topic, "topic")
        return await self._call(self._queries.read_queues, topic, again=again)

    @waits
    async def write_queues(self, topic: str, *, again: bool = False) -> list[MessageQueue]:
        """The queues to which a topic can be sent, sorted.

        For a topic that does not exist yet, these are the queues that the first send would create.

        :param again: ask the name servers even when the route is known.
        :raises RequestRefused: with TOPIC_NOT_EXIST when no broker creates topics either.
        :raises RemotingError: when no name server answers.
        """
        check_text(topic, "topic")
        return await self._call(self._queries.write_queues, topic, again=again)

    @waits
    async def min_offset(self, queue: MessageQueue) -> int:
        """The first offset that can be read."""
        check_queue(queue)
        return await self._call(self._queries.min_offset, queue)

    @waits
    async def max_offset(self, queue: MessageQueue) -> int:
        """The offset that the next message will get."""
        check_queue(queue)
        return await self._call(self._queries.max_offset, queue)

    @waits
    async def search_offset(self, queue: MessageQueue, timestamp_s: Time) -> int:
        """The first offset stored at a time or later, or the end of the queue.

        :param timestamp_s: a datetime, or seconds since 1970, as ``time.time()`` returns them.
        :raises OptionError: when it is not a time before the year 10000, for example because it is
            in milliseconds.
        """
        check_queue(queue)
        time_ms = unix_ms(timestamp_s, "timestamp_s")
        return await self._call(self._queries.search_offset, queue, time_ms)

    @waits
    async def group_offset(self, group: str, queue: MessageQueue) -> int | None:
        """The first offset that a group has not yet consumed; None when it never had the queue."""
        check_text(group, "group")
        check_queue(queue)
        return await self._call(self._queries.group_offset, group, queue)

    @waits
    async def commit_group_offset(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Set the offset of a group: the first offset that the group has not yet consumed."""
        check_text(group, "group")
        check_queue(queue)
        check_whole(offset, "offset")
        await self._call(self._queries.commit_group_offset, group, queue, offset)

    @waits
    async def pull(
        self, queue: MessageQueue, offset: int, *, group: str = "twistmq_client",
        max_count: int = 32, expression: str = "*", expression_type: str = "TAG",
        hold_s: float = 0.0,
    ) -> PullResult:
        """Pull messages from one queue.

        :param offset: the offset of the first message.
        :param group: the group whose permissions and statistics the broker applies.
        :param max_count: the number of messages to ask for; the broker has its own limits.
        :param expression: "*" for all messages, tags as in "eu || us", or the text of SQL92.
        :param expression_type: "TAG", or "SQL92" for an expression in SQL92.
        :param hold_s: how long the broker may hold the request until a message arrives.
        :raises RequestRefused: with the broker's code and remark.
        """
        check_pull(queue, offset, group, max_count, expression)
        return await self._call(
            self._queries.pull, queue, offset, group=group, max_count=max_count,
            expression=expression, expression_type=expression_type,
            hold_ms=int(milliseconds(hold_s, "hold_s")))


def check_pull(
    queue: object, offset: object, group: object, max_count: object, expression: object
) -> None:
    """:raises OptionError: when an argument of a pull is of the wrong kind."""
    check_queue(queue)
    check_whole(offset, "offset")
    check_text(group, "group")
    check_whole(max_count, "max_count", 1)
    if not isinstance(expression, str):
        raise OptionError(f"expression is {expression!r}: give a text, and for SQL92 also "
                          "expression_type='SQL92'")
