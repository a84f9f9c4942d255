"""Our client in one of its styles, as a program.

    python -P client_shell.py blocking|aio|tx NAMESRV send TOPIC CODEC...
    python -P client_shell.py blocking|aio|tx NAMESRV read TOPIC COUNT

``send`` sends messages in each way there is, one large one for each codec, and tells each, a line
of JSON: its id, body in base64, properties and flag. ``read`` tells the same of the messages of a
topic.
"""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from twistmq.client import Consumer, Message, Producer, ReceivedMessage

#: A body that is compressed, bytes.
_LARGE = 20_000


def messages(prefix: str, count: int) -> list[Message]:
    """Messages with tags, keys, properties, flags and bodies that no text has."""
    return [Message(f"{prefix}-{number}", bytes(range(256)) + b"%d" % number, tags="ab"[number % 2],
                    keys=[f"k{number}", "all"], flag=number,
                    properties={"number": str(number), "word": "größe ☃"})
            for number in range(count)]


def of_topic(topic: str, prefix: str, count: int) -> list[Message]:
    """Return the same for one topic."""
    return [Message(topic, prefix.encode() + each.body, tags=each.tags, keys=each.keys,
                    flag=each.flag, properties=each.properties)
            for each in messages(prefix, count)]


def tell(identity: str, body: bytes, properties: dict[str, str], flag: int) -> None:
    """Print a message."""
    print(json.dumps({"id": identity, "body": base64.b64encode(body).decode(),
                      "properties": properties, "flag": flag}), flush=True)


def tell_sent(identity: str, message: Message) -> None:
    """Print a message as it was given to the producer."""
    tell(identity, message.body, message.all_properties(), message.flag)


async def done(value: Any) -> Any:
    """Return the value of a call in any style."""
    return await value if hasattr(value, "__await__") else value


async def send(topic: str, codecs: list[str], make: Callable[..., Any]) -> None:
    """Send in each way. :param make: opens a producer with options."""
    async with make() as producer:
        for message in of_topic(topic, "sync", 6):
            tell_sent((await done(producer.send(message))).id, message)
        soon = of_topic(topic, "async", 6)
        futures = [await done(producer.send_soon(message)) for message in soon]
        await done(producer.flush())
        for message, future in zip(soon, futures, strict=True):
            result = future.result() if hasattr(future, "running") else await future
            tell_sent(result.id, message)
        many = of_topic(topic, "many", 6)
        for message, result in zip(many, await done(producer.send_many(many)), strict=True):
            tell_sent(result.id, message)
        batch = of_topic(topic, "batch", 6)
        ids = (await done(producer.send_batch(batch))).id.split(",")
        for message, identity in zip(batch, ids, strict=True):
            tell_sent(identity, message)
        [once] = of_topic(topic, "oneway", 1)
        await done(producer.send_oneway(once))
        tell_sent("", once)
        keyed = Message(topic, b"keyed", sharding_key="one")
        tell_sent((await done(producer.send(keyed))).id, keyed)
    for codec in codecs:
        async with make(codec=codec) as producer:
            large = Message(topic, codec.encode() * _LARGE)
            tell_sent((await done(producer.send(large))).id, large)
    async with make(auto_batch=True) as producer:
        soon = of_topic(topic, "auto", 40)
        futures = [await done(producer.send_soon(message)) for message in soon]
        await done(producer.flush())
        for message, future in zip(soon, futures, strict=True):
            result = future.result() if hasattr(future, "running") else await future
            tell_sent(result.id, message)


def tell_read(message: ReceivedMessage[Any]) -> None:
    """Print a message that was read."""
    tell(message.id, message.body, message.properties, message.flag)


class _Blocking:
    """A blocking producer with the entry of the others."""

    def __init__(self, where: str, **options: Any) -> None:
        self._producer = Producer(where, **options)

    async def __aenter__(self) -> Producer:
        return self._producer

    async def __aexit__(self, *error: object) -> None:
        self._producer.close()


def read_blocking(where: str, topic: str, count: int) -> None:
    """Read by iteration."""
    with Consumer(where, group=f"blocking-{topic}", topics=topic, start="first") as consumer:
        for number, message in enumerate(consumer, 1):
            tell_read(message)
            if number == count:
                break


async def read_async(consumer: Any, count: int) -> None:
    """Read by handlers."""
    left = count

    async def handle(message: ReceivedMessage[Any]) -> None:
        nonlocal left
        tell_read(message)
        left -= 1
        if not left:
            consumer.stop()

    async with consumer:
        await consumer.run(handle)


def main() -> None:
    """The command line."""
    shell, where, command, topic, *rest = sys.argv[1:]
    if shell == "blocking":
        if command == "read":
            read_blocking(where, topic, int(rest[0]))
            return
        coroutine = send(topic, rest, lambda **options: _Blocking(where, **options))
        try:
            coroutine.send(None)
        except StopIteration:
            return
        raise AssertionError("a blocking call was not")
    if shell == "aio":
        from twistmq.client import aio

        def run(make: Callable[[Any], Awaitable[None]]) -> None:
            asyncio.run(make(None))  # type: ignore[arg-type]

        run(lambda _: send(topic, rest, lambda **options: aio.Producer(where, **options))
            if command == "send" else read_async(aio.Consumer(
                where, group=f"aio-{topic}", topics=topic, start="first"), int(rest[0])))
        return
    from twisted.internet.defer import Deferred
    from twisted.internet.task import react

    from twistmq.client import tx

    react(lambda reactor: Deferred.fromCoroutine(
        send(topic, rest, lambda **options: tx.Producer(where, reactor=reactor, **options))
        if command == "send" else read_async(tx.Consumer(
            where, group=f"tx-{topic}", topics=topic, start="first", reactor=reactor),
            int(rest[0]))))


if __name__ == "__main__":
    main()
