"""The transport: one connection of kombu, which is a client of the cluster.

Kombu expects a transport that waits for messages of all its queues at one place: a program waits in
``drain_events``, and a worker in its event loop, which watches a file descriptor. A client of the
cluster has no such descriptor, because each queue is read by a thread of its own. So a reader puts
its messages into its source and writes a byte to a socket pair, whose other end wakes the program
or the loop; this then takes the messages from the sources (see ``sources``) in its own thread, as
far as the prefetch count of a channel allows it.
"""

from __future__ import annotations

import os
import socket
import time
from contextlib import suppress
from importlib.metadata import version
from typing import Any, TypeAlias

from kombu.exceptions import ChannelError
from kombu.exceptions import ConnectionError as KombuConnectionError
from kombu.transport import virtual

from twistmq.client import Client, ClientError, Producer
from twistmq.integrations.base.holder import Holder
from twistmq.integrations.celery.channel import Channel
from twistmq.integrations.celery.deliveries import Delivery
from twistmq.integrations.celery.options import Options, client_options, options_of
from twistmq.integrations.celery.sources import QueueSource, Source
from twistmq.integrations.celery.topology import Topology, kombu_errors

__all__ = ["Transport"]

#: The type ``Channel``, whose name is also an attribute of the class.
AnyChannel: TypeAlias = Channel


class Transport(virtual.Transport):
    """A connection of kombu."""

    Channel = Channel
    default_port = 9876
    driver_type = "twistmq"
    driver_name = "twistmq"
    connection_errors = (KombuConnectionError,)
    channel_errors = (ChannelError,)
    #: The errors after which a new connection can help; a refused request would be refused again.
    recoverable_connection_errors = (KombuConnectionError,)
    recoverable_channel_errors = ()
    implements = virtual.Transport.implements.extend(
        asynchronous=True, exchange_type=frozenset(["direct", "topic", "fanout"]))

    holder: Holder
    topology: Topology
    _twistmq: Client
    _producer: Producer

    def __init__(self, client: Any, **kwargs: Any) -> None:
        super().__init__(client, **kwargs)
        self._options: Options = options_of(client.transport_options)
        self._process = 0
        self._loop: Any = None

    def driver_version(self) -> str:
        """Return the version of twistmq."""
        return version("twistmq")

    # --- the connection

    def establish_connection(self) -> Transport:
        """Connect; :raises kombu.exceptions.ConnectionError: when no name server answers."""
        self._open()
        super().establish_connection()
        return self

    def _open(self) -> None:
        with kombu_errors():
            name_servers, arguments = client_options(self.client, self._options)
            client = Client(name_servers, **arguments)
            try:
                client.cluster_info()
            except BaseException:
                client.close()
                raise
            self._twistmq = client
            self._producer = Producer(client=client, group=f"{self._options.prefix}-producers")
        self._process = os.getpid()
        self.holder = Holder(self._options.invisible_s)
        self._reader, self._writer = socket.socketpair()
        self._writer.setblocking(False)
        self.topology = Topology(
            self._twistmq, self._producer, self._options, self.holder, self._arrived)

    def close_connection(self, connection: Any) -> None:
        """Close the channels; messages that are not finished become visible to other workers."""
        super().close_connection(connection)
        if self._process != os.getpid():
            # A forked child leaves the connection of its parent alone.
            return
        self._process = 0
        if self._loop is not None:
            self.unregister_from_event_loop(connection, self._loop)
        self.holder.close()
        self.topology.close()
        with suppress(ClientError):
            self._producer.close()
        self._twistmq.close()
        self._reader.close()
        self._writer.close()

    # --- events

    def register_with_event_loop(self, connection: Any, loop: Any) -> None:
        """Let the worker's loop call the consumers when messages arrive."""
        self._loop = loop
        loop.add_reader(self._reader.fileno(), self._on_arrival)

    def unregister_from_event_loop(self, connection: Any, loop: Any) -> None:
        """Undo :meth:`register_with_event_loop`."""
        self._loop = None
        with suppress(OSError, ValueError):
            loop.remove_reader(self._reader.fileno())

    def _on_arrival(self) -> None:
        self._wait_for_arrival(0)
        while self._deliver_ready():
            pass

    def drain_events(self, connection: Any, timeout: float | None = None) -> None:
        """Wait for messages and pass them to their consumers.

        :raises socket.timeout: when none arrives in time.
        """
        end = None if timeout is None else time.monotonic() + timeout
        while not self._deliver_ready():
            remaining = None if end is None else end - time.monotonic()
            if remaining is not None and remaining <= 0:
                raise TimeoutError("no message has arrived")
            self._wait_for_arrival(remaining)

    def _wait_for_arrival(self, timeout: float | None) -> None:
        self._reader.settimeout(timeout)
        with suppress(TimeoutError, BlockingIOError):
            self._reader.recv(4096)

    def _arrived(self) -> None:
        # If the buffer is full, the loop wakes up anyway; a closed socket no longer has a loop.
        with suppress(OSError):
            self._writer.send(b"\0")

    def _deliver_ready(self) -> bool:
        """Pass the messages that are ready to their consumers, as far as their channels allow it.

        A message for a queue of this process is passed alone, because a caller that waits for a
        reply counts the calls of ``drain_events``.

        :returns: whether there was a message.
        """
        lasting = []
        for is_lasting, source in self.topology.sources():
            if source.channel is None or not source.ready_count:
                continue
            if is_lasting:
                lasting.append(source)
            elif self._deliver_one(source):
                return True
        has_delivered = False
        for source in lasting:
            while self._deliver_one(source):
                has_delivered = True
        return has_delivered

    def _deliver_one(self, source: Source) -> bool:
        channel = source.channel
        if channel is None or not channel.qos.can_consume():
            return False
        delivery = source.take()
        if delivery is None:
            return False
        channel.deliver(delivery)
        return True

    # --- consumers

    def attach(self, queue: str, channel: AnyChannel) -> None:
        """Let a channel consume a queue."""
        self.topology.source(queue).attach(channel)
        self._arrived()

    def detach(self, queue: str) -> None:
        """End the consumption of a queue."""
        source = self.topology.existing_source(queue)
        if source is not None:
            source.detach()

    def sources_of(self, channel: AnyChannel) -> list[Source]:
        """Return the sources of the queues that a channel consumes."""
        return [source for _, source in self.topology.sources() if source.channel is channel]

    def wake(self, channel: AnyChannel) -> None:
        """Read messages again for a channel that has room again."""
        for source in self.sources_of(channel):
            source.wake()
            if source.ready_count:
                self._arrived()

    def receive_now(self, queue: str) -> Delivery | None:
        """Return a message of a queue without waiting for one."""
        source = self.topology.source(queue)
        delivery = source.take()
        if delivery is None and isinstance(source, QueueSource):
            with kombu_errors():
                source.receive_now()
            delivery = source.take()
        return delivery
