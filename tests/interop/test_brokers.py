"""Four brokers of one command, with members of Apache's clients and ours in one group."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from threading import Thread

from twisted.trial.unittest import SkipTest

from tests.broker.supervisor.test_supervisor import PATIENCE, broker_processes, free_base
from tests.interop.clients import JavaTestCase, go_missing
from tests.interop.mixed_group import CONCURRENT, GO, ORDERLY, OURS, QUEUES, MixedGroup
from tests.interop.mqadmin import mqadmin
from tests.interop.servers import wait_until
from tests.tools.test_command_line import TWISTMQ

COUNT = 4
CLUSTER = "DefaultCluster"


class BrokersTests(JavaTestCase):
    """``twistmq up --brokers 4``."""

    def setUp(self) -> None:
        super().setUp()
        reason = go_missing()
        if reason:
            raise SkipTest(reason)
        base = free_base(COUNT)
        self.namesrv = f"127.0.0.1:{base + 5}"
        self.brokers = [f"127.0.0.1:{base + 10 * index}" for index in range(COUNT)]
        self.data = self.folder / "data"
        self.process = subprocess.Popen(
            [*TWISTMQ, "up", "--brokers", str(COUNT), "--data", str(self.data),
             "--namesrv-port", str(base + 5), "--broker-port", str(base), "brokerName=b",
             "mappedFileSizeCommitLog=16777216"],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.addCleanup(self.end)
        self.lines: list[str] = []
        Thread(target=self.read, daemon=True).start()
        wait_until("all brokers answer", lambda: f"{COUNT} brokers are up" in self.text, PATIENCE)

    def read(self) -> None:
        """Keep the output."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)

    @property
    def text(self) -> str:
        return "".join(list(self.lines))

    def end(self) -> None:
        """End all processes."""
        self.process.kill()
        self.process.wait(PATIENCE)
        assert self.process.stdout is not None
        self.process.stdout.close()

    def test_members_of_all_clients_outlive_the_kill_of_a_broker(self) -> None:
        """A killed broker is started again, no acknowledged message is lost, and one signal stops
        all.

        Members of the Java, the Go and our client share the queues of all four, under load.
        Apache's mqadmin prints them as it prints four machines.
        """
        group = MixedGroup(self.namesrv, self.brokers, rate=100)
        self.addCleanup(group.close)
        for name, kind in (("java", "5.3.3"), ("go", GO), ("ours", OURS)):
            group.start(name, kind)
        group.wait_for_shares([CONCURRENT], 60)
        self.assertEqual({queue.partition(":")[0] for name in group.living
                          for queue in group.held(name, CONCURRENT)},
                         {f"b-{index}" for index in range(COUNT)})
        before = broker_processes(self.data)
        os.kill(before["b-2"], signal.SIGKILL)
        wait_until("the killed broker is back", lambda: self.text.count("The broker[b-2") == 2,
                   PATIENCE)
        self.assertEqual(self.text.count("boot success"), COUNT + 2)
        self.assertRegex(self.text, rf"(?s)The broker\[b-2, {self.brokers[2]}\] boot success.*"
                                    rf"The broker\[b-2, {self.brokers[2]}\] boot success")
        after = broker_processes(self.data)
        self.assertEqual({name for name in before if before[name] != after[name]}, {"b-2"})
        count = len(group.sent[CONCURRENT])
        wait_until("sends go on", lambda: len(group.sent[CONCURRENT]) > count + 200, PATIENCE)
        group.finish()
        for topic in (CONCURRENT, ORDERLY):
            self.assertGreater(len(group.sent[topic]), 400)
        self.see_with_mqadmin()
        begin = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        self.assertEqual(self.process.wait(PATIENCE), 0, msg=self.text)
        self.assertLess(time.monotonic() - begin, PATIENCE)
        self.assertEqual(broker_processes(self.data), {})

    def see_with_mqadmin(self) -> None:
        """clusterList, topicStatus and consumerProgress have a row for each broker, or queue."""
        clusters, topic, group = mqadmin(self.namesrv, [
            "clusterList", f"topicStatus -t {CONCURRENT}", f"consumerProgress -g {CONCURRENT}"])
        found = [line.split()[:4] for line in clusters.splitlines() if line.startswith(CLUSTER)]
        self.assertEqual(found, [[CLUSTER, f"b-{index}", "0", address]
                                 for index, address in enumerate(self.brokers)], msg=clusters)
        queues = [f"b-{index}" for index in range(COUNT) for _ in range(QUEUES)]
        for text in (topic, group):
            names = [name for line in text.splitlines() if "RETRY" not in line
                     for name in re.findall(r"(?:^|\s)(b-[0-9])\s", line)]
            self.assertEqual(names, queues, msg=text)
