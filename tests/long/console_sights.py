"""A cluster with something on every page of the console, and consoles in every state."""

from __future__ import annotations

import json
import os
import random
import secrets
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final
from unittest import mock

import msgspec

from tests.console.case import TOKEN, Browser
from tests.interop.servers import Servers, free_port, wait_until
from tests.long.console import process
from tests.tools.admin.case import call
from twistmq.broker.testing.in_process_broker import ReactorThread, running_broker
from twistmq.broker.testing.raw_client import RawClient
from twistmq.client import Consumer, Producer, ReceivedMessage, Retry
from twistmq.console.page_session import PageSession
from twistmq.console.site import make_site
from twistmq.console.visitor import ConsoleOptions
from twistmq.protocol.bodies import MessageQueue
from twistmq.protocol.codes import RequestCode
from twistmq.protocol.headers.send import ConsumerSendMsgBackRequestHeader
from twistmq.tools.admin.offsets import commit_offset

__all__ = ["LONG_GROUP", "LONG_KEY", "LONG_TOPIC", "MOVING_GROUP", "ROOT", "SMALL", "Sights"]

PATIENCE_S: Final = 60.0
QUEUES: Final = 4
LONG_TOPIC: Final = "warehouse-eu-central-1-replenishment-suggestions"
LONG_GROUP: Final = "warehouse-eu-central-1-replenishment-planner"
LONG_KEY: Final = "customer/7f3e9c1a-52b8-4f0d-9a67-d1c0b8e4a9f2/basket/2026-11-30T08:15:00Z"
TOPICS: Final = {
    "orders": "", "payments": "", "shipments": "FIFO", "reminders": "DELAY", "ledger":
    "TRANSACTION", "sensor-readings": "", "clicks": "", "newsletter": "", LONG_TOPIC: ""}
#: The key of the message that is consumed at its third attempt.
RETRIED: Final = "o-1007"
#: The messages of orders after which billing rests.
_CONSUMED: Final = 30
#: More than there are messages that wait, so that a retry finds a worker.
_WORKERS: Final = 40
#: The group that consumes clicks, more slowly than they are sent, with these pauses, seconds.
MOVING_GROUP: Final = "recommendations"
_SEND_S: Final = 0.05
_HANDLE_S: Final = 0.07
#: The time between two looks at the pages with charts, seconds.
_LOOK_S: Final = 4.0
#: An administrator and an account that may read one topic.
ROOT: Final = ("root", "secret-of-root")
SMALL: Final = ("shop-reader", "secret-of-shop")
_ACCOUNTS: Final = {
    "brokerIP1": "127.0.0.1", "brokerName": "broker-a", "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": json.dumps({"username": ROOT[0], "password": ROOT[1]})}


def _order(number: int) -> bytes:
    """Return the body of an order."""
    return json.dumps({
        "order": f"o-{1000 + number}", "customer": "Zoë Müller" if number % 3 else "李小龍",
        "total": round(19.9 + 7.35 * number, 2), "currency": "EUR",
        "items": [{"sku": f"SKU-{number % 7:03}", "count": number % 4 + 1}]},
        ensure_ascii=False).encode()


class Sights:
    """Two brokers, one of them with a slave, and consoles of several kinds.

    Each console has a host of its own, because a cookie is for all ports of a host.

    :ivar main: the address of the console of ``twistmq up --console``.
    :ivar second: a broker, which can be stopped by SIGSTOP.
    :ivar ids: the ids of messages, by a name of what they are.
    """

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder = folder
        self._stack = stack
        self.ids: dict[str, str] = {}
        self._rest = threading.Event()
        stack.callback(self._rest.set)
        port = free_port()
        os.environ["TWISTMQ_CONSOLE_TOKEN"] = TOKEN
        servers = Servers(folder / "a", "--console", "--console-port", str(port),
                          "brokerIP1=127.0.0.1", "brokerName=broker-a", "traceTopicEnable=true")
        stack.callback(servers.stop)
        servers.start()
        self.main = f"http://127.0.0.1:{port}"
        self.browser = Browser(port)
        wait_until("the console answers", lambda: self.browser.get("/login").status == 200)
        self.browser.log_in()
        self.name_server = servers.namesrv
        self._first = f"127.0.0.1:{servers.broker_port}"
        self.second = self._broker("b", "brokerName=broker-b")
        self._broker("slave", "brokerName=broker-a", "brokerId=1", "brokerRole=SLAVE")
        self.session = PageSession(self.name_server, timeout_s=PATIENCE_S)
        stack.callback(self.session.close)
        wait_until("all brokers are registered", lambda: len(
            self.session.for_page(PATIENCE_S).all_brokers()) == 3, PATIENCE_S)
        self._fill()
        self._open_consoles()
        self._move()

    def _broker(self, name: str, *settings: str) -> Any:
        return self._stack.enter_context(process(
            sys.executable, "broker", "-n", self.name_server, "bindAddress=127.0.0.1",
            "brokerIP1=127.0.0.1", f"listenPort={free_port()}",
            f"storePathRootDir={self._folder / name}", f"log.dir={self._folder / name / 'logs'}",
            *settings))

    def admin(self, *arguments: str) -> None:
        """Run a command of ``twistmq admin``."""
        status, _, err = call(*arguments, "-n", self.name_server)
        assert status == 0, err

    # --- topics, messages and groups

    def _fill(self) -> None:
        for topic, kind in TOPICS.items():
            self.admin("updateTopic", "-t", topic, "-c", "DefaultCluster", "-r", str(QUEUES),
                       "-w", str(QUEUES), *(["-a", f"+message.type={kind}"] if kind else []))
        with Producer(self.name_server, group="shop", trace=True) as producer:
            self._send(producer)
        with Producer(self.name_server, group="sensors") as producer:
            for number in range(12_000):
                producer.send_soon("sensor-readings", f"{20 + number % 70 / 10} C".encode())
            producer.flush()
        self._commit()
        self._bury()
        self._consume()

    def _send(self, producer: Producer) -> None:
        for number in range(60):
            sent = producer.send("orders", _order(number), keys=[f"o-{1000 + number}"],
                                 tags="paid" if number % 4 else "cancelled",
                                 properties={"region": "eu" if number % 2 else "us"})
            if f"o-{1000 + number}" == RETRIED:
                self.ids["retried"] = sent.id
        noise = random.Random(7)
        bodies: dict[str, tuple[bytes, list[str]]] = {
            "msgpack": (msgspec.msgpack.encode({
                "card": "**** 4242", "amount": 129.5, "ok": True, "risk": [0.1, 0.02]}), ["p-1"]),
            "binary": (noise.randbytes(300), ["p-2"]),
            "html": (b"<!doctype html><h1 onclick=\"alert(1)\">Paid &amp; done</h1>"
                     b"<script>alert('x')</script>", ["p-3"]),
            "long": (("The quick brown fox jumps over the lazy dog. " * 12_000).encode(),
                     ["p-4", LONG_KEY, "a-third-key"]),
            "text": ("Grüße aus Köln: 12 Pakete, 3 davon zerbrechlich".encode(), ["p-6"])}
        for name, (body, keys) in bodies.items():
            self.ids[name] = producer.send("payments", body, keys=keys, tags=name).id
        with RawClient(self._first) as client:
            self.ids["empty"] = secrets.token_hex(16).upper()
            client.send("payments", b"", tag="empty", keys="p-5",
                        properties={"UNIQ_KEY": self.ids["empty"]})
        for number in range(9):
            producer.send("shipments", f"parcel {number} left the hall".encode(),
                          sharding_key=f"s-{number % 3}", keys=[f"s-{number}"])
            producer.send("reminders", b'{"remind": "pay"}', delay_level=18)
            producer.send(LONG_TOPIC, _order(number), keys=[LONG_KEY])

    def _commit(self) -> None:
        """Commit offsets of groups that no client has."""
        for group, topic, part in (
                ("analytics", "sensor-readings", 0.25), ("analytics", "orders", 0.5),
                (LONG_GROUP, LONG_TOPIC, 0.3), ("fraud-check", "payments", 0.6),
                ("audit", "orders", 1.0), ("audit", "payments", 1.0)):
            self.admin("updateSubGroup", "-c", "DefaultCluster", "-g", group)
            for broker in self.session.for_page(PATIENCE_S).brokers():
                with RawClient(broker.address) as client:
                    for queue in range(QUEUES):
                        commit_offset(
                            self.session, broker.address, group,
                            MessageQueue(topic, broker.name, queue),
                            int(client.max_offset(topic, queue) * part))
        self.admin("updateSubGroup", "-c", "DefaultCluster", "-g", "nightly-report")
        self.admin("updateSubGroup", "-c", "DefaultCluster", "-g", "legacy-import", "-s", "false")

    def _bury(self) -> None:
        """Give messages back as a client does after the last attempt."""
        with RawClient(self._first) as client:
            for group, count in (("fraud-check", 9), (LONG_GROUP, 2)):
                for number in range(count):
                    at = client.send(
                        "payments", _order(number), queue_id=number % QUEUES, tag="paid",
                        keys=f"p-{100 + number}" if number else LONG_KEY,
                        properties={"UNIQ_KEY": secrets.token_hex(16).upper()}).queue_offset
                    [message] = client.pull("payments", at, queue_id=number % QUEUES, group=group,
                                            max_count=1)
                    client.request(
                        RequestCode.CONSUMER_SEND_MSG_BACK, ConsumerSendMsgBackRequestHeader(
                            offset=message.physical_offset, group=group, delay_level=-1,
                            origin_topic="payments"))

    def _consume(self) -> None:
        """Consume a part of the orders, one of them at the third attempt, and then rest."""
        consumed: list[str] = []
        attempts: list[int] = []
        consumer = self._stack.enter_context(Consumer(
            self.name_server, group="billing", topics={"orders": "paid || cancelled"},
            start="first", trace=True))

        def handle(message: ReceivedMessage[Any]) -> None:
            if RETRIED in message.keys:
                attempts.append(1)
                if len(attempts) < 3:
                    raise Retry(level=1)
            elif len(consumed) >= _CONSUMED:
                self._rest.wait()
            consumed.append(message.id)

        threading.Thread(target=consumer.run, args=(handle,), kwargs={"workers": _WORKERS},
                         daemon=True).start()
        self._stack.callback(consumer.stop)
        self._stack.callback(self._rest.set)
        wait_until("billing has consumed", lambda: len(consumed) >= _CONSUMED, PATIENCE_S)

    def _move(self) -> None:
        """Send and consume clicks, and look at the pages whose charts show it."""
        producer = self._stack.enter_context(Producer(self.name_server, group="web"))
        consumer = self._stack.enter_context(Consumer(
            self.name_server, group=MOVING_GROUP, topics="clicks", start="first"))
        self._stack.callback(consumer.stop)
        self._stack.callback(self._rest.set)

        def send() -> None:
            while not self._rest.wait(_SEND_S):
                producer.send_soon("clicks", b'{"page": "/basket"}', tags="web")

        def look() -> None:
            while not self._rest.wait(_LOOK_S):
                for path in ("/", f"/groups/{MOVING_GROUP}", "/topics/clicks"):
                    self.browser.get(path)

        for work in (send, look, lambda: consumer.run(
                lambda message: self._rest.wait(_HANDLE_S), workers=1)):
            threading.Thread(target=work, daemon=True).start()

    def wait_for_trace(self) -> None:
        """Wait until the trace of the message with three attempts is whole."""
        wait_until("the trace is whole", lambda: sum(
            row["event"] == "consumed" and row["status"] != "no end"
            for row in self.browser.json(f"/traces/{self.ids['retried']}").rows["events"]) >= 3,
            PATIENCE_S)

    # --- further consoles

    def _open_consoles(self) -> None:
        empty = self._name_server_without_brokers()
        self.two = self._open("two", {
            "shop": self._maker(self.name_server), "staging": self._maker(empty)}, readonly=True)
        self.empty = self._open("empty", {"default": self._maker(empty)})

        def fail() -> PageSession:
            raise RuntimeError("this console fails")

        self.failing = self._open("failing", {"default": fail})
        guarded = self._stack.enter_context(running_broker(_ACCOUNTS))
        with mock.patch.dict(os.environ, {
                "ROCKETMQ_ACCESS_KEY": ROOT[0], "ROCKETMQ_SECRET_KEY": ROOT[1]}):
            for command in (
                    ("updateTopic", "-t", "orders"), ("updateTopic", "-t", "salaries"),
                    ("createUser", "-u", SMALL[0], "-p", SMALL[1]),
                    ("createAcl", "-s", f"User:{SMALL[0]}", "-d", "Allow",
                     "-r", "Topic:orders,Group:TOOLS_CONSUMER", "-a", "Sub,Get")):
                status, _, err = call(*command, "-b", guarded.broker_address,
                                      "-n", guarded.namesrv_address)
                assert status == 0, err
        self.guarded = self._open("guarded", {
            "shop": self._maker(guarded.namesrv_address), "staging": self._maker(empty)},
            accounts=True)

    def _name_server_without_brokers(self) -> str:
        port = free_port()
        self._stack.enter_context(process(
            sys.executable, "namesrv", f"listenPort={port}", "bindAddress=127.0.0.1",
            f"log.dir={self._folder / 'empty'}"))
        return f"127.0.0.1:{port}"

    @staticmethod
    def _maker(name_server: str) -> Callable[[], PageSession]:
        return lambda: PageSession(name_server)

    def _open(
        self, name: str, clusters: dict[str, Callable[[], PageSession]], **options: bool
    ) -> str:
        """Open a console in this process; :returns: its address."""
        thread = ReactorThread()
        self._stack.callback(thread.stop)
        site, resource = thread.call(make_site, thread.reactor, ConsoleOptions(
            clusters, TOKEN, **options))  # type: ignore[arg-type]
        port = thread.call(lambda: thread.reactor.listenTCP(0, site, interface="127.0.0.1"))
        self._stack.callback(thread.call, resource.close)
        self._stack.callback(thread.call, port.stopListening)
        return f"http://{name}.localhost:{port.getHost().port}"

