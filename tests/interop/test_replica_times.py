"""The times at which masters and slaves send and close: ours with Apache's.

A relay between both measures. Bounds below are the clock's: nothing comes earlier. Those above are
wide, since the machine may be busy; what was measured is printed.
"""

from __future__ import annotations

from contextlib import ExitStack
from statistics import median

from tests.interop.clients import JavaTestCase
from tests.interop.ports import free_port
from tests.interop.replica_times import Link, Relay, gaps
from tests.interop.replicas import Group
from tests.interop.servers import wait_until
from twistmq.broker.testing import RawClient

VERSIONS = ("5.3.3", "4.9.4")
#: The defaults of haSendHeartbeatInterval and haHousekeepingInterval, seconds.
HEARTBEAT, SILENCE = 5.0, 20.0
#: How much clocks may differ, seconds.
GRAIN = 0.1
#: How much later than they came the relay may see bytes on a busy machine, seconds.
LATE = 2.0
#: How much later than asked something may be on a busy machine, seconds.
BUSY = 5.0
#: How long a first report is kept from the master. A slave of Apache's waits 20 s for an answer.
HOLD = 15.0
BEATS = 3
MESSAGES = 5


class TimesCase(JavaTestCase):
    """A group whose name server is ours."""

    def setUp(self) -> None:
        super().setUp()
        self.stack = ExitStack()
        self.addCleanup(self.stack.close)
        self.group = self.stack.enter_context(Group(self.folder))

    def say(self, what: str, *seconds: float) -> None:
        """Print the measured times."""
        print(f"{what}: {', '.join(f'{each:.3f}' for each in seconds)} s")

    def periodic(self, what: str, times: list[float]) -> None:
        """Periodic heartbeats and reports follow after more than five seconds each time.

        One that is seen late makes a gap longer and the next one shorter.
        """
        found = gaps(times)
        self.say(what, *found)
        self.assertGreaterEqual(len(found), BEATS)
        self.assertGreater(median(found), HEARTBEAT - GRAIN)
        self.assertGreater(min(found), HEARTBEAT - LATE)
        self.assertLess(max(found), HEARTBEAT + 1 + BUSY)

    def closed(self, what: str, link: Link, side: str, silent: str) -> None:
        """A side closes when the other one was silent for more than twenty seconds."""
        wait_until(f"{what} closes", lambda: link.closed is not None, SILENCE + 2 + 6 * BUSY)
        assert link.closed is not None
        seconds = link.closed[1] - link.handed_on[silent]
        self.say(f"{what} closes after", seconds)
        self.assertEqual(link.closed[0], side)
        self.assertGreater(seconds, SILENCE - GRAIN)
        self.assertLess(seconds, SILENCE + 2 + BUSY)

    def send(self, address: str, links: list[Link]) -> None:
        """Send messages, each when all slaves have reported the one before."""
        with RawClient(address) as client:
            for number in range(MESSAGES):
                before = [len(link.reports()) for link in links]
                client.send("T", b"%d" % number)
                for link, count in zip(links, before, strict=True):
                    wait_until("it is reported", lambda link=link, count=count: [
                        each for each in link.reports()[count:]
                        if each.offset == link.frames()[-1].offset + link.frames()[-1].size
                        and link.frames()[-1].size], 30)


class OurMasterTests(TimesCase):
    """Our master with slaves of 5.3.3 and 4.9.4."""

    def test_times_of_our_master(self) -> None:
        """The first report may be late; heartbeats follow; a silent slave is disconnected."""
        master = self.group.ours("master", brokerIP2="127.0.0.2")
        ha_port = master.port + 1
        relay = self.stack.enter_context(
            Relay(("127.0.0.2", ha_port), ("127.0.0.1", ha_port), HOLD))
        master.start()
        with RawClient(master.address) as client:
            client.send("T", b"first")
        for number, version in enumerate(VERSIONS):
            self.group.apache(f"slave-{version}", version, brokerRole="SLAVE",
                              brokerId=str(number + 1)).start()
            wait_until(f"{version} connects", lambda number=number: len(relay.links) > number, 90)
        links = list(relay.links)
        for version, link in zip(VERSIONS, links, strict=True):
            wait_until("heartbeats", lambda link=link: [
                each.size for each in link.frames()][-BEATS - 1:] == [0] * (BEATS + 1), 120)
            self.begins(version, link)
        self.send(master.address, links)
        relay.mute("slave")
        for version, link in zip(VERSIONS, links, strict=True):
            self.closed(f"our master with {version}", link, "master", "slave")

    def begins(self, version: str, link: Link) -> None:
        """The master waits for the first report, then sends all data, then heartbeats."""
        report, frames = link.reports()[0], link.frames()
        self.say(f"{version} reports first after", report.at - link.began)
        self.say("and our master sends after", frames[0].at - link.began)
        self.assertGreater(frames[0].at - link.began, HOLD - GRAIN)
        self.assertEqual([report.offset, frames[0].offset], [0, 0])
        self.assertGreater(frames[0].size, 0)
        beats = [each.at for each in frames if each.size == 0]
        self.periodic(f"heartbeats of our master to {version}", beats)


class OurSlaveTests(TimesCase):
    """Our slaves of masters of 5.3.3 and 4.9.4."""

    def test_times_of_our_slave(self) -> None:
        """It reports at once, at each append and while idle, and closes a silent master."""
        masters, relays = [], []
        for version in VERSIONS:
            master = self.group.apache(f"master-{version}", version, brokerName=version)
            master.start()
            relay = self.stack.enter_context(Relay(
                ("127.0.0.1", free_port()), ("127.0.0.1", master.peer.broker_port + 1)))
            self.group.ours(f"slave-{version}", brokerName=version, brokerRole="SLAVE",
                            brokerId="1", haMasterAddress=relay.address).start()
            masters.append(master)
            relays.append(relay)
        for version, master, relay in zip(VERSIONS, masters, relays, strict=True):
            wait_until(f"our slave of {version} connects", lambda relay=relay: relay.links, 90)
            link = relay.links[0]
            wait_until("it reports", lambda link=link: len(link.reports()) > BEATS, 60)
            self.begins(version, link)
            self.send(master.address, [link])
            relay.mute("master")
        for version, relay in zip(VERSIONS, relays, strict=True):
            self.closed(f"our slave of {version}", relay.links[0], "slave", "master")
            relay.unmute()
            wait_until("it comes again", lambda relay=relay: len(relay.links) > 1, 60)

    def begins(self, version: str, link: Link) -> None:
        """The slave reports at once, and then after five silent seconds."""
        reports = link.reports()
        self.assertEqual(link.parts[0][1], "slave", msg="the master says nothing before")
        self.say(f"our slave of {version} reports after", reports[0].at - link.began)
        self.assertLess(reports[0].at - link.began, BUSY)
        self.periodic(f"reports of our slave to {version}", [each.at for each in reports])
