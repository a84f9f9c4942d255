"""The slaves of a master, which it distinguishes from each other."""

from __future__ import annotations

from types import SimpleNamespace

from twisted.internet.address import IPv4Address
from twisted.internet.testing import StringTransport
from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.testing.kernel import KernelBox
from twistmq.broker.testing.store import message
from twistmq.plugins import ha
from twistmq.plugins.ha.frames import encode_report, encode_slave_id
from twistmq.plugins.ha.links import SlaveLink
from twistmq.protocol.codes import ResponseCode


class SlavesTests(SynchronousTestCase):
    """A SYNC_MASTER whose sends wait for two slaves."""

    def setUp(self) -> None:
        self.box = KernelBox([("ha", ha.Plugin)], {
            "brokerRole": "SYNC_MASTER", "inSyncReplicas": "3"})
        self.addCleanup(self.box.stop)
        self.slaves = self.box.plugin(ha.Plugin).slaves
        self.codes: list[ResponseCode] = []

    def connect(self, said: bytes, host: str = "10.0.0.2") -> SlaveLink:
        """Return a connection that has sent this text, and then the report of an empty log."""
        link = self.slaves.connected(IPv4Address("TCP", host, 40_000))
        assert link is not None
        link.makeConnection(StringTransport())
        link.dataReceived(said + encode_report(0))
        return link

    def send(self, *links: SlaveLink) -> list[ResponseCode]:
        """Store a message, which these slaves report; :returns: the codes of all replies so far."""
        self.box.kernel.append([message("T")])
        end = self.box.kernel.store.commit_log.max_offset
        waits = self.box.kernel.acknowledgement.wait(end)
        assert waits is not None
        waits.addCallback(self.codes.append)
        for link in links:
            link.resumeProducing()
            link.dataReceived(encode_report(end))
        return self.codes

    def test_a_default_port_that_is_taken_is_replaced_and_published(self) -> None:
        """Name servers get the port that was opened; a port from the settings must be free."""
        opened = SimpleNamespace(port=4711, stop=lambda: None)

        def serve(factory: object, port: int, *arguments: object, **options: object) -> object:
            if port:
                raise OSError("taken")
            return opened

        self.patch(self.box.kernel.host, "serve_stream", serve)
        self.box.settings.put("haListenPort", 10_912)
        self.patch(self.box.settings, "is_given", lambda name: False)
        with capturedLogs() as events:
            self.slaves.start()
        self.assertEqual(self.box.kernel.identity.ha_port, 4711)
        [line] = [formatEvent(event) for event in events if "for slaves" in formatEvent(event)]
        self.assertIn("taken; 4711 is used", line)
        self.patch(self.box.settings, "is_given", lambda name: True)
        self.assertRaises(OSError, self.slaves.start)

    def test_a_slave_that_connected_twice_counts_once(self) -> None:
        """A slave is known by its broker id, from any address; another id is another slave."""
        first = self.connect(encode_slave_id(1))
        again = self.connect(encode_slave_id(1), "10.0.0.3")
        self.assertEqual(self.send(first, again), [])
        other = self.connect(encode_slave_id(2))
        self.assertEqual(self.send(again, other), [ResponseCode.SUCCESS] * 2)

    def test_all_slaves_are_sent_what_was_appended(self) -> None:
        """Each slave is sent the bytes immediately."""
        links = [self.connect(encode_slave_id(number), f"10.0.0.{number}")
                 for number in range(1, 5)]
        self.box.kernel.append([message("T", body=b"for all of them")])
        for link in links:
            assert isinstance(link.transport, StringTransport)
            self.assertEqual(link.transport.value().count(b"for all of them"), 1)

    def test_its_health_is_bad_when_slaves_were_not_there_for_thirty_seconds(self) -> None:
        """Each send waits as long as it may; a master without synchronous slaves is healthy."""
        check = self.box.kernel.health_checks["replication"]
        self.connect(encode_slave_id(1))
        self.slaves.tick()
        self.box.now_ms += 29_999
        self.assertEqual(check(), "")
        self.box.now_ms += 1
        self.assertEqual(check(), "each send waits for 2 slaves, and 1 of them have been "
                                  "missing for 30 s")
        self.connect(encode_slave_id(2))
        self.assertEqual(check(), "")
        self.slaves.tick()
        self.box.kernel.set_role("ASYNC_MASTER", 0)
        self.slaves.end_all("the test")
        self.slaves.tick()
        self.box.now_ms += 60_000
        self.assertEqual(check(), "")

    def test_slaves_that_do_not_say_their_ids(self) -> None:
        """Slaves without ids are distinguished by their addresses."""
        first, again = self.connect(b""), self.connect(b"")
        self.assertEqual(self.send(first, again), [])
        other = self.connect(b"", "10.0.0.3")
        self.assertEqual(self.send(again, other), [ResponseCode.SUCCESS] * 2)

    def test_seconds_behind(self) -> None:
        """The metrics tell for each slave how long it is behind."""
        link, other = self.connect(encode_slave_id(1)), self.connect(b"", "10.0.0.3")
        self.send(other)
        self.box.now_ms += 2500
        self.send()
        [family] = [each for each in self.box.plugin(ha.Plugin).collect_metrics()
                    if each.name == "ha_slave_behind_seconds"]
        self.assertEqual({sample[0]: sample[-1] for sample in family.samples},
                         {(link.peer,): 2.5, (other.peer,): 2.5})

    def test_lag_is_logged_once_a_minute(self) -> None:
        """There is one line for each slave; a connection without a report does not count."""
        link, other = self.connect(encode_slave_id(1)), self.connect(b"", "10.0.0.3")
        silent = self.slaves.connected(IPv4Address("TCP", "10.0.0.4", 40_000))
        assert silent is not None
        silent.makeConnection(StringTransport())
        self.send(other)
        end = self.box.kernel.store.commit_log.max_offset
        [task] = [task for task in self.box.plugin(ha.Plugin).register_periodic_tasks()
                  if task.name == "log the lag of slaves"]
        with capturedLogs() as events:
            task.run(0)
        self.assertEqual([formatEvent(event) for event in events], [
            f"slave {link.peer} is {end} bytes behind the commit log",
            f"slave {other.peer} is 0 bytes behind the commit log"])
        self.assertEqual((task.first_ms, task.period_ms), (10_000, 60_000))

    def test_the_later_connection_says_how_far_it_is(self) -> None:
        """Reports of the earlier connection no longer count."""
        left = self.connect(encode_slave_id(1))
        self.connect(encode_slave_id(1))
        other = self.connect(encode_slave_id(2))
        self.assertEqual(self.send(left, other), [])

    def lines(self, *ends: tuple[SlaveLink, str]) -> list[str]:
        """Return the log lines about the ends of connections."""
        with capturedLogs() as events:
            for link, why in ends:
                self.slaves._ended(link, why)
        return [formatEvent(event) for event in events]

    def test_two_slaves_of_one_id_are_told(self) -> None:
        """Two brokers have the same brokerId, or one of them is a stranger."""
        first = self.connect(encode_slave_id(1))
        with capturedLogs() as events:
            self.connect(encode_slave_id(2))
            self.connect(b"", "10.0.0.3")
            again = self.connect(encode_slave_id(1), "10.0.0.4")
        found = [text for event in events if "brokerId" in (text := formatEvent(event))]
        self.assertEqual(found, [
            f"slave {again.peer} reports brokerId 1, as does {first.peer}, which is still "
            "connected: only the later one counts"])

    def test_connections_of_one_host_have_a_bound(self) -> None:
        """The oldest connection is closed; those of other hosts remain."""
        other = self.connect(encode_slave_id(1), "10.0.0.3")
        links = [self.connect(b"") for _ in range(33)]
        self.assertEqual([link.is_over for link in (other, *links)],
                         [False, True, *[False] * 32])

    def test_one_host_does_not_hide_the_lines_of_another(self) -> None:
        """Each host may cause a few lines a minute about new and lost connections."""
        with capturedLogs() as events:
            links = [self.connect(b"") for _ in range(30)]
        self.assertEqual(len(events), 10)
        other = self.connect(encode_slave_id(1), "10.0.0.3")
        found = self.lines(*((link, "reset") for link in links), (other, "it was silent too long"))
        self.assertEqual(len(found), 11)
        self.assertEqual(found[-1], f"slave {other.peer} is gone: it was silent too long")
