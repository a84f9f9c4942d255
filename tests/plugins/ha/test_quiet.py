"""In the normal life of a broker and a pair, the log has no warning that asks for a reaction."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Final

from twisted.logger import LogEvent, LogLevel, formatEvent, globalLogPublisher

from tests.plugins.ha.pair import wait_until
from tests.plugins.ha.test_pair import PairCase
from twistmq.client import (
    Consumer,
    Decision,
    PopConsumer,
    Producer,
    ReceivedMessage,
    Retry,
)
from twistmq.plugins.ha.settings import FAULT_AFTER_MS

#: What a machine that is busy causes.
_OF_THE_HOST: Final = ("blocked the reactor", "slow request", "an append took")


class QuietCase(PairCase):
    """A test that keeps the warnings and errors of all servers."""

    def setUp(self) -> None:
        super().setUp()
        self.loud: list[str] = []
        globalLogPublisher.addObserver(self.keep)
        # After the servers have ended.
        self.addCleanup(self.check_quiet)

    def keep(self, event: LogEvent) -> None:
        level, text = event.get("log_level"), formatEvent(event)
        if level in (LogLevel.warn, LogLevel.error, LogLevel.critical) and not any(
                words in text for words in _OF_THE_HOST):
            self.loud.append(f"{event['log_namespace']}: {text}")

    def check_quiet(self) -> None:
        self.stack.close()
        globalLogPublisher.removeObserver(self.keep)
        self.assertEqual(self.loud, [])

    def consume(
        self, consumer: Any, handler: Callable[[ReceivedMessage[bytes]], object],
        is_done: Callable[[], object],
    ) -> None:
        """Let a consumer run until it has the expected messages."""
        with consumer:
            thread = threading.Thread(target=lambda: consumer.run(handler))
            thread.start()
            try:
                wait_until(is_done, "the messages", 60)
            finally:
                consumer.stop()
                thread.join()


class BrokerTests(QuietCase):
    """A broker without slaves."""

    def test_a_start_all_kinds_of_messages_and_a_stop(self) -> None:
        """Sends, retries, timed messages, pops, a transaction, a restart."""
        for _ in range(2):
            with ExitStack() as self.stack:
                broker = self.start_master(transactionCheckInterval="300",
                                           transactionTimeOut="100")
                self.live(broker.namesrv_address)

    def live(self, namesrv: str) -> None:
        with Producer(namesrv, group="p", on_check=lambda _: Decision.COMMIT) as producer:
            producer.send("T", b"first")
            for number in range(20):
                producer.send("T", b"%d" % number, keys=[f"k{number}"], tags="t")
            producer.send("T", b"timed", delay_s=1)
            got: list[bytes] = []

            def handle(message: ReceivedMessage[bytes]) -> None:
                if message.body == b"7" and message.attempt == 1:
                    raise Retry(level=1)
                got.append(message.body)

            wanted = {b"7", b"timed"}
            self.consume(Consumer(namesrv, group="g", topics="T", start="first"), handle,
                         lambda: len(set(got)) >= 22 and wanted <= set(got))
            self.share_in_order(namesrv)
            popped: list[bytes] = []
            self.consume(PopConsumer(namesrv, group="pops", topics="T", start="first"),
                         lambda message: popped.append(message.body),
                         lambda: len(set(popped)) >= 22)


    def share_in_order(self, namesrv: str) -> None:
        """A second member joins a group with ordered consumption, and both leave."""
        seen: list[list[bytes]] = [[], []]

        def member(number: int) -> Consumer[bytes]:
            return Consumer(namesrv, group="ordered", topics="T", start="first", order="queue")

        def second() -> bool:
            self.consume(member(1), lambda message: seen[1].append(message.body),
                         lambda: kernel_members() == 2 and len({*seen[0], *seen[1]}) >= 22)
            return True

        def kernel_members() -> int:
            def count() -> int:
                group = self.master.kernel.clients.consumer_group("ordered")
                return len(group.client_ids) if group else 0
            return self.master.call(count)

        self.consume(member(0), lambda message: seen[0].append(message.body), second)


class PairTests(QuietCase):
    """A pair, in the orders in which an operator starts and stops it."""

    def test_slaves_that_come_and_go(self) -> None:
        """The first start of a slave, its stop and its next start; the master stops last."""
        self.start_master()
        self.send(20)
        for first in (20, 40):
            with ExitStack() as stack:
                self.stack, outer = stack, self.stack
                slave = self.slave()
                self.stack = outer
                self.send(20, first=first)
                self.caught_up(slave)
            wait_until(lambda: not self.plugin().slaves.links, "the slave is gone")

    def test_a_master_that_stops_and_starts_while_its_slave_runs(self) -> None:
        """The slave follows it again, on another port."""
        first = ExitStack()
        self.stack.callback(first.close)
        namesrv = self.start_master()
        # Its name server lives on, so that the master is another broker of it.
        master_settings = {"namesrvAddr": namesrv.namesrv_address, "brokerName": "other"}
        self.run_other_pair(master_settings)

    def run_other_pair(self, settings: dict[str, str]) -> None:
        from tests.plugins.ha.pair import lone_broker

        data = self.folder / "other"
        with ExitStack() as stack:
            with lone_broker(data, settings) as master, master.client() as client:
                client.send("T", b"body")
                slave = stack.enter_context(lone_broker(self.folder / "other1", {
                    **settings, "brokerRole": "SLAVE", "brokerId": "1"}))
                wait_until(lambda: slave.end == master.end, "the slave has all")
            wait_until(lambda: not slave.plugin.follower.is_connected, "the master is gone")
            wait_until(lambda: slave.plugin.follower.fault, "the slave knows it")
            with lone_broker(data, settings) as master:
                wait_until(lambda: slave.plugin.follower.is_connected, "the slave is back")
                with master.client() as client:
                    client.send("T", b"more")
                wait_until(lambda: slave.end == master.end, "the slave has all")


class LongerTests(PairCase):
    """A state that lasts is logged as a warning."""

    def test_a_slave_and_a_master_that_stay_away(self) -> None:
        """Each side logs it once, after FAULT_AFTER_MS."""
        loud: list[str] = []

        def keep(event: LogEvent) -> None:
            if event.get("log_level") is LogLevel.warn:
                loud.append(formatEvent(event))

        globalLogPublisher.addObserver(keep)
        self.addCleanup(globalLogPublisher.removeObserver, keep)
        self.start_master()
        self.send(5)
        with ExitStack() as stack:
            self.stack, outer = stack, self.stack
            slave = self.slave()
            self.stack = outer
            self.caught_up(slave)
            wait_until(lambda: self.plugin().slaves.links, "the slave is known")
        slaves = self.plugin().slaves
        wait_until(lambda: not slaves.links, "the slave is gone")
        self.assertEqual([text for text in loud if "gone" in text], [])
        later_ms = slaves._now_ms() + FAULT_AFTER_MS
        self.master.call(lambda: setattr(slaves, "_now_ms", lambda: later_ms))
        wait_until(lambda: any("has been gone for 30 s" in text for text in loud), "a warning")

    def test_a_master_that_stays_away(self) -> None:
        """The slave logs the reason when the state has lasted."""
        self.start_master()
        self.send(5)
        slave = self.slave()
        self.caught_up(slave)
        follower = slave.plugin.follower
        self.master.call(lambda: self.plugin().slaves.end_all("the test ends it"))
        self.master.call(lambda: self.plugin().slaves._port.stop())  # type: ignore[union-attr]
        wait_until(lambda: follower.fault, "the slave knows it")
        self.assertFalse(follower._has_warned)
        later_ms = follower._now_ms() + FAULT_AFTER_MS
        slave.thread.call(lambda: setattr(follower, "_now_ms", lambda: later_ms))
        wait_until(lambda: follower._has_warned, "a warning")
