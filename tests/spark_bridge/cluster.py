"""A name server and brokers in this process that can be restarted on their ports."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from twisted.internet.defer import ensureDeferred

from tests.interop.ports import free_port
from tests.spark_bridge import records  # noqa: F401  (skips where the extra is not installed)
from twistmq.broker.config.setting_rows import namesrv_rows
from twistmq.broker.config.settings import Settings
from twistmq.broker.edge import boot, services
from twistmq.broker.edge.broker_service import BrokerService
from twistmq.broker.edge.namesrv_service import NamesrvService
from twistmq.broker.testing.in_process_broker import ReactorThread
from twistmq.client import Client, Message, Producer, RequestRefused
from twistmq.protocol.bodies import MessageQueue
from twistmq.protocol.codes import RequestCode
from twistmq.protocol.headers.namesrv import DeleteTopicFromNamesrvRequestHeader
from twistmq.protocol.headers.topic import CreateTopicRequestHeader, DeleteTopicRequestHeader

__all__ = ["Cluster", "cluster"]

_LOCAL = {"bindAddress": "127.0.0.1", "brokerIP1": "127.0.0.1", "brokerIP2": "127.0.0.1",
          "mappedFileSizeCommitLog": str(1 << 20), "haListenPort": "0",
          "brokerFastFailureEnable": "false", "registerNameServerPeriod": "10000"}


class Cluster:
    """A name server, and brokers by name.

    :param folder: everything they keep; a broker's part is the folder with its name.
    :param settings: of every broker.
    """

    def __init__(self, folder: Path, settings: Mapping[str, str]) -> None:
        self.folder = folder
        self._settings = settings
        self._namesrv_port = free_port()
        self._ports: dict[str, int] = {}
        self._running: dict[str, ExitStack] = {}
        self._services: dict[str, BrokerService] = {}
        self._threads: dict[str, ReactorThread] = {}
        self.start_name_server()

    @property
    def namesrv(self) -> str:
        return f"127.0.0.1:{self._namesrv_port}"

    @property
    def options(self) -> dict[str, str]:
        """Return the options of every source and sink."""
        return {"nameServer": self.namesrv}

    # --- servers

    def start_name_server(self) -> None:
        values = Settings.load(namesrv_rows(), None, {
            "listenPort": str(self._namesrv_port), "bindAddress": "127.0.0.1",
            "kvConfigPath": str(self.folder / "kv.json"),
            "configStorePath": str(self.folder / "namesrv.properties")})
        self._run("namesrv", lambda reactor: NamesrvService(reactor, values))

    def register(self) -> None:
        """Have the brokers register now, as they do every ten seconds."""
        for name, service in self._services.items():
            self._threads[name].call(
                lambda service=service: ensureDeferred(service.register(True)))

    def start(self, name: str = "broker-a", **settings: str) -> None:
        """Start a broker, on the port it had before.

        :param settings: of this broker, such as those of a slave, which has a name of its own here
            and its master's as ``brokerName``.
        """
        port = self._ports.setdefault(name, free_port())
        values = boot.broker_settings(None, {
            **_LOCAL, "listenPort": str(port), "brokerName": name, "namesrvAddr": self.namesrv,
            "storePathRootDir": str(self.folder / name), **self._settings, **settings})
        self._services[name] = self._run(
            name, lambda reactor: BrokerService(reactor, values, services.load_hooks(values)))

    def stop(self, name: str = "broker-a") -> None:
        """Stop a broker, or "namesrv"."""
        self._services.pop(name, None)
        self._running.pop(name).close()

    def replace_store(self, copy: Path, name: str = "broker-a") -> None:
        """Put an older copy of a stopped broker's store in its place."""
        shutil.rmtree(self.folder / name)
        shutil.copytree(copy, self.folder / name)

    def copy_store(self, copy: Path, name: str = "broker-a") -> None:
        """Copy a stopped broker's store."""
        shutil.copytree(self.folder / name, copy)

    def _run(self, name: str, make: Any) -> Any:
        stack, thread = ExitStack(), ReactorThread()
        service = stack.enter_context(thread.serving(make))
        self._running[name], self._threads[name] = stack, thread
        return service

    def close(self) -> None:
        for name in list(self._running)[::-1]:
            self.stop(name)

    def service(self, name: str = "broker-a") -> BrokerService:
        """Return a running broker."""
        return self._services[name]

    def call(self, function: Any, name: str = "broker-a") -> Any:
        """Call a function on the thread of a broker; :returns: its result."""
        return self._threads[name].call(function)

    # --- topics and messages

    def address(self, name: str = "broker-a") -> str:
        return f"127.0.0.1:{self._ports[name]}"

    def send(self, topic: str, bodies: list[bytes], queue_id: int = 0,
             broker: str = "broker-a") -> None:
        """Send messages to a queue; a topic that is not there gets four queues."""
        queue = MessageQueue(topic, broker, queue_id)
        with Client(self.namesrv, timeout_s=30) as client:
            try:
                known = client.read_queues(topic)
            except RequestRefused:
                known = []
            if queue not in known:
                client.ask(self.address(broker), RequestCode.UPDATE_AND_CREATE_TOPIC,
                           CreateTopicRequestHeader(topic, "TBW102", 4, 4, 6, "SINGLE_TAG"))
                self.register()
                client.route(topic, again=True)
            Producer(client=client, timeout_s=30).send_batch(
                [Message(topic, body) for body in bodies], queue)

    def delete(self, topic: str, *brokers: str) -> None:
        """Delete a topic as the admin command does: at brokers, then at the name server."""
        with Client(self.namesrv, timeout_s=30) as client:
            for name in brokers or ("broker-a",):
                client.ask(self.address(name), RequestCode.DELETE_TOPIC_IN_BROKER,
                           DeleteTopicRequestHeader(topic=topic))
            client.ask_name_server(RequestCode.DELETE_TOPIC_IN_NAMESRV,
                                   DeleteTopicFromNamesrvRequestHeader(topic=topic))


@contextmanager
def cluster(folder: Path, *brokers: str, **settings: str) -> Iterator[Cluster]:
    """Start a name server and brokers, by default "broker-a"."""
    folder.mkdir(parents=True)
    made = Cluster(folder, settings)
    try:
        for name in brokers or ("broker-a",):
            made.start(name)
        yield made
    finally:
        made.close()
