"""mqadmin 5.3.3 prints of our broker what it prints of Apache's, after the same small workload."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from tests.interop.admin_tour import TOPIC, tour
from tests.interop.clients import JavaTestCase
from tests.interop.servers import PEER, Servers, free_port

#: What both brokers are told; other names would show in every line.
_SETTINGS: Final = {"brokerName": "broker-a", "brokerIP1": "127.0.0.1", "traceTopicEnable": "true",
                    "enablePropertyFilter": "true"}
#: Settings whose values belong to the place and not to the broker.
_PLACES: Final = {"storePathRootDir", "storePathCommitLog", "bindAddress", "namesrvAddr",
                  "brokerIP2", "listenPort", "haListenPort", "rocketmqHome"}
#: Settings of Apache's name server, which is in the same process as ours.
_NAMESRV_SETTINGS: Final = {
    "brokerConfigPath", "configStorePath", "deleteTopicWithBrokerRegistration",
    "enableAllTopicList", "enableTopicList", "kvConfigPath", "needWaitForService",
    "notifyMinBrokerIdChanged", "orderMessageEnable", "returnOrderTopicConfigToBroker",
    "scanNotActiveBrokerInterval", "supportActingMaster", "waitSecondsForService",
}
#: What differs from run to run, and what stands for it.
_VOLATILE: Final = (
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(,\d{3})?"), "<time>"),
    (re.compile(r"127\.0\.0\.1:\d+"), "<address>"),
    (re.compile(r"\S+@\d+#\d+"), "<client>"),
    (re.compile(r"/\S+/store\b"), "<store>"),
    (re.compile(r"\d+\.\d+"), "<fraction>"),
    # The messages a second of consumerProgress without a group, as a whole number.
    (re.compile(r"(?<=CLUSTERING) +\d+"), " <rate>"),
    (re.compile(r" {2,}"), "  "),
)


@dataclass(frozen=True)
class Reports:
    """What the tour's commands printed, by name."""

    apache: dict[str, str]
    ours: dict[str, str]


@contextmanager
def _apache(folder: Path) -> Iterator[tuple[str, str]]:
    # The command and not the class: its processes stay when what started them is forgotten.
    peer = [sys.executable, str(PEER)]
    namesrv_port, broker_port = free_port(), free_port()
    settings = [option for pair in _SETTINGS.items() for option in ("--set", "=".join(pair))]
    subprocess.run([*peer, "start", str(folder), "--heap", "512m", "--namesrv", str(namesrv_port),
                    "--broker", str(broker_port), *settings], check=True,
                   stdout=subprocess.DEVNULL)
    try:
        yield f"127.0.0.1:{namesrv_port}", f"127.0.0.1:{broker_port}"
    finally:
        subprocess.run([*peer, "stop", str(folder)], check=True)


@contextmanager
def _ours(folder: Path) -> Iterator[tuple[str, str]]:
    servers = Servers(folder, *(f"{name}={text}" for name, text in _SETTINGS.items()))
    servers.start()
    try:
        yield servers.namesrv, f"127.0.0.1:{servers.broker_port}"
    finally:
        servers.stop()


@cache
def reports() -> Reports:
    """Take mqadmin through the tour of both, once a run; a minute or two."""
    texts = []
    for run in (_apache, _ours):
        with tempfile.TemporaryDirectory(prefix="mqadmin-tour-") as folder, \
                run(Path(folder)) as (namesrv, broker):
            texts.append(tour(namesrv, broker))
    return Reports(*texts)


def steady(text: str) -> list[str]:
    """The lines of an output with what differs from run to run replaced."""
    for pattern, replacement in _VOLATILE:
        text = pattern.sub(replacement, text)
    return [line.rstrip() for line in text.splitlines()]


def pairs(text: str, separator: str) -> dict[str, str]:
    """The rows of a table of names and values."""
    rows = (line.partition(separator) for line in text.splitlines())
    return {name.strip(): value.strip() for name, found, value in rows if found}


class MqadminTests(JavaTestCase):
    """One tour of each broker, then a look at each command's output."""

    timeout = 600

    def setUp(self) -> None:
        super().setUp()
        both = reports()
        self.apache, self.ours = both.apache, both.ours

    def same(self, *names: str) -> None:
        for name in names:
            self.assertEqual(steady(self.ours[name]), steady(self.apache[name]), msg=name)

    def test_topic(self) -> None:
        """A topic is created, found by the tools, and its queues' bounds are shown."""
        self.same("updateTopic", "updateTopic again", "topicStatus empty", "topicList",
                  "topicRoute", "topicStatus", "topicStatus 1024", "topicClusterList")

    def test_queue(self) -> None:
        """A queue's entries; the places and sizes of records are each broker's own."""
        self.same("queryCq nothing")
        apache, ours = (re.sub(r"(physicOffset|physicSize|subVersion\"?) ?[=:] ?\d+", r"\1", text)
                        for text in (self.apache["queryCq"], self.ours["queryCq"]))
        self.assertEqual(steady(ours), steady(apache))

    def test_topics_with_groups(self) -> None:
        """Apache's broker names a topic that is consumed among the groups that consume it."""
        apache = [line for line in steady(self.apache["topicList -c"])
                  if line.split()[1:] != [TOPIC, TOPIC]]
        self.assertEqual(steady(self.ours["topicList -c"]), apache)

    def test_group(self) -> None:
        """A group is created, and its settings and its progress are shown."""
        self.same("updateSubGroup", "getConsumerConfig", "consumerProgress nobody",
                  "consumerProgress", "consumerProgress all", "consumerProgress offline")

    def test_connections(self) -> None:
        """Clients that are there and clients that are not."""
        self.same("consumerConnection", "consumerConnection offline", "producerConnection",
                  "producerConnection nobody")

    def test_what_a_consumer_does(self) -> None:
        """The consumer's own answer reaches the tool: settings, subscriptions, its queues."""
        def names(text: str) -> list[str]:
            # A client may not know its retry topic yet; the rest of a row is the client's affair.
            words = (line.split() for line in text.splitlines())
            return [first for first, *_ in filter(None, words) if not first.startswith("%RETRY%")]

        self.assertEqual(names(self.ours["consumerStatus"]), names(self.apache["consumerStatus"]))
        self.assertGreater(names(self.ours["consumerStatus"]).count(TOPIC), 8)

    def test_cluster(self) -> None:
        """The one line of the cluster's only broker, and what went in and out."""
        self.same("clusterList", "clusterList -m")

    def test_runtime_table(self) -> None:
        """The same rows; a number where Apache's broker has one.

        Of the rates over three windows a tool reads the first.
        """
        apache, ours = (pairs("\n".join(steady(report["brokerStatus"])), ":")
                        for report in (self.apache, self.ours))
        self.assertEqual(ours.keys(), apache.keys())
        number = re.compile(r"\d+|<fraction>")
        for name, value in apache.items():
            if name.endswith("Tps") and not (ours[name] and value):
                # A window that is not full yet shows nothing: how old the broker is decides.
                continue
            kinds = [bool(number.fullmatch(text.partition(" ")[0])) for text in (ours[name], value)]
            self.assertEqual(*kinds, msg=f"{name}: {ours[name]!r}, Apache's is {value!r}")
        for name in ("brokerVersion", "brokerVersionDesc", "brokerActive", "putMessageTimesTotal",
                     "msgPutTotalTodayNow", "msgGetTotalTodayNow", "commitLogMinOffset",
                     "sendThreadPoolQueueCapacity", "EndTransactionThreadPoolQueueCapacity"):
            self.assertEqual(ours[name], apache[name], msg=name)

    def test_settings(self) -> None:
        """Settings under Apache's names have Apache's values; those of ours have a dot."""
        apache, ours = (pairs(report["getBrokerConfig"], "=  ")
                        for report in (self.apache, self.ours))
        more = {name for name in ours.keys() - apache.keys() if "." not in name}
        self.assertLessEqual(more, _NAMESRV_SETTINGS)
        shared = ours.keys() & apache.keys() - _PLACES
        self.assertGreater(len(shared), 50)
        self.maxDiff = None
        self.assertEqual({name: ours[name] for name in shared},
                         {name: apache[name] for name in shared})

    def test_deletion(self) -> None:
        """A group and a topic are deleted and are gone from every list.

        In Apache's broker a pull that still waits creates its group again.
        """
        self.same("deleteSubGroup", "deleteTopic", "topicStatus deleted", "topicRoute deleted",
                  "topicList deleted")
        self.assertEqual(self.ours["getConsumerConfig deleted"].strip(), "")
        self.assertNotIn(TOPIC, self.ours["topicList deleted"].split())
