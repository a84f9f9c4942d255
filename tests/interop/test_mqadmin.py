"""mqadmin 5.3.3 prints the same for our broker as for Apache's, after the same workload."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from tests.interop.admin_sweep import STEPS, Step, admin_sweep, differences, mqadmin_sweep
from tests.interop.admin_tour import TOPIC, tour
from tests.interop.answers import OWN_ROWS
from tests.interop.clients import JavaTestCase
from tests.interop.peer import Peer
from tests.interop.servers import Servers, free_port

#: What both brokers are told; other names would show in every line.
_SETTINGS: Final = {"brokerName": "broker-a", "brokerIP1": "127.0.0.1", "traceTopicEnable": "true",
                    "enablePropertyFilter": "true",
                    # Apache's defaults, which Peer changes: they are compared with those of ours.
                    "timerFlushIntervalMs": "1000", "transactionMetricFlushInterval": "3000"}
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
#: Apache's broker takes these from its file, and does not show them, or not while they are empty.
_HIDDEN_SETTINGS: Final = {
    "dLegerGroup", "dLegerPeers", "dLegerSelfId", "haMasterAddress", "preferredLeaderId",
    "rmqAddressServerDomain", "rmqAddressServerSubGroup", "storePathDLedgerCommitLog",
}
#: Apache's broker 5.5 has these, and the one that is asked here has not.
_LATER_SETTINGS: Final = {
    "authenticationEnabled", "authenticationWhitelist", "authorizationEnabled",
    "authorizationWhitelist", "initAuthenticationUser", "innerClientAuthenticationCredentials",
    "maxMessageFilterNumForNotification", "migrateAuthFromV1Enabled",
    "popFromRetryProbabilityForPriority", "priorityOrderAsc", "useMessageFilterForNotification",
}
#: What differs from run to run, and what stands for it.
_VOLATILE: Final = (
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(,\d{3})?"), "<time>"),
    (re.compile(r"127\.0\.0\.1:\d+"), "<address>"),
    (re.compile(r"\S+@\d+#\d+"), "<client>"),
    (re.compile(r"/\S+/store\b"), "<store>"),
    (re.compile(r"\d+\.\d+"), "<fraction>"),
    # How many seconds and messages timers are behind, in clusterList.
    (re.compile(r"\b\d+-\d+(?=\()"), "<behind>"),
    # The messages a second of consumerProgress without a group, as a whole number.
    (re.compile(r"(?<=CLUSTERING) +\d+"), " <rate>"),
    (re.compile(r" {2,}"), "  "),
)


@dataclass(frozen=True)
class Reports:
    """The outputs of commands, by name: of the tour, of a sweep of mqadmin, and of one of ours."""

    tour: dict[str, str]
    mqadmin: dict[str, str]
    admin: dict[str, str]


@contextmanager
def apache_servers(folder: Path) -> Iterator[tuple[str, str]]:
    """Apache's name server and broker; their addresses."""
    peer = Peer(folder, namesrv_port=free_port(), broker_port=free_port(), heap="512m",
                settings=dict(_SETTINGS))
    try:
        peer.start()
        yield peer.namesrv_address, f"127.0.0.1:{peer.broker_port}"
    finally:
        peer.stop(kill=True)


@contextmanager
def our_servers(folder: Path) -> Iterator[tuple[str, str]]:
    """Start our servers in one process; returns their addresses."""
    servers = Servers(folder, *(f"{name}={text}" for name, text in _SETTINGS.items()))
    servers.start()
    try:
        yield servers.namesrv, f"127.0.0.1:{servers.broker_port}"
    finally:
        servers.stop()


@cache
def reports() -> tuple[Reports, Reports]:
    """Run both tools with both clusters, Apache's and ours, once a run; it takes minutes.

    mqadmin runs in processes of its own, against both at once: it waits most of the time.
    """
    with ExitStack() as stack, ThreadPoolExecutor() as threads:
        places = [stack.enter_context(run(Path(stack.enter_context(
            tempfile.TemporaryDirectory(prefix="mqadmin-tour-")))))
            for run in (apache_servers, our_servers)]
        printed = list(threads.map(
            lambda place: (tour(*place), mqadmin_sweep(*place)), places))
        apache, ours = (Reports(*texts, admin_sweep(*place))
                        for texts, place in zip(printed, places, strict=True))
        return apache, ours


def steady(text: str) -> list[str]:
    """Return the lines of an output, with replaced variable parts."""
    for pattern, replacement in _VOLATILE:
        text = pattern.sub(replacement, text)
    return [line.rstrip() for line in text.splitlines()]


def pairs(text: str, separator: str) -> dict[str, str]:
    """Return the rows of a table of names and values."""
    rows = (line.partition(separator) for line in text.splitlines())
    return {name.strip(): value.strip() for name, found, value in rows if found}


class MqadminTests(JavaTestCase):
    """One tour of each broker, then a comparison of each command's output."""

    def setUp(self) -> None:
        super().setUp()
        apache, ours = reports()
        self.apache, self.ours = apache.tour, ours.tour

    def same(self, *names: str) -> None:
        for name in names:
            self.assertEqual(steady(self.ours[name]), steady(self.apache[name]), msg=name)

    def test_a_topic_is_created(self) -> None:
        """The tools find it, and show the bounds of its queues."""
        self.same("updateTopic", "updateTopic again", "topicStatus empty", "topicList",
                  "topicRoute", "topicStatus", "topicStatus 1024", "topicClusterList")

    def test_a_queues_entries(self) -> None:
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

    def test_a_group_is_created(self) -> None:
        """A group is created, and its settings and its progress are shown."""
        self.same("updateSubGroup", "getConsumerConfig", "consumerProgress nobody",
                  "consumerProgress", "consumerProgress all", "consumerProgress offline")

    def test_clients_that_are_there_and_clients_that_are_not(self) -> None:
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

    def test_the_one_line_of_the_clusters_only_broker(self) -> None:
        """It shows the messages in and out."""
        self.same("clusterList", "clusterList -m")

    def test_runtime_table(self) -> None:
        """It has Apache's rows and our own; a number is where Apache's broker has one.

        Of the rates over three windows a tool reads the first.
        """
        apache, ours = (pairs("\n".join(steady(report["brokerStatus"])), ":")
                        for report in (self.apache, self.ours))
        more = {name for name in ours if name.startswith("flowControl_")} | OWN_ROWS
        self.assertEqual(ours.keys() - more, apache.keys())
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

    def test_settings_under_apaches_names_have_apaches_values(self) -> None:
        """Our own settings have a dot."""
        apache, ours = (pairs(report["getBrokerConfig"], "=  ")
                        for report in (self.apache, self.ours))
        more = {name for name in ours.keys() - apache.keys() if "." not in name}
        self.assertLessEqual(more, _NAMESRV_SETTINGS | _HIDDEN_SETTINGS | _LATER_SETTINGS)
        shared = ours.keys() & apache.keys() - _PLACES
        self.assertGreater(len(shared), 50)
        self.maxDiff = None
        self.assertEqual({name: ours[name] for name in shared},
                         {name: apache[name] for name in shared})

    def test_a_group_and_a_topic_are_deleted_and_are_gone_from_every_list(self) -> None:
        """Afterwards no list has them.

        In Apache's broker a pull that still waits creates its group again.
        """
        self.same("deleteSubGroup", "deleteTopic", "topicStatus deleted", "topicRoute deleted",
                  "topicList deleted")
        self.assertEqual(self.ours["getConsumerConfig deleted"].strip(), "")
        self.assertNotIn(TOPIC, self.ours["topicList deleted"].split())


class SweepTests(JavaTestCase):
    """Every command of the groups, by both tools, against both clusters in the same state."""

    def setUp(self) -> None:
        super().setUp()
        self.apache, self.ours = reports()

    def of_mqadmin(self, step: Step) -> list[str]:
        """Return the differences in the output of mqadmin."""
        return differences(self.apache.mqadmin[step.text], self.ours.mqadmin[step.text])

    def of_admin(self, step: Step) -> list[str]:
        """Return the differences in the output of ``twistmq admin``, or in its status."""
        return differences(self.apache.admin[step.text], self.ours.admin[step.text])

    def test_mqadmin_prints_the_same_shape_for_both_brokers(self) -> None:
        """The shape is equal, except for known differences."""
        for step in STEPS:
            if not step.reason:
                self.assertEqual(self.of_mqadmin(step), [], msg=step.text)

    def test_twistmq_admin(self) -> None:
        """The command prints the same tables for both, and does its work."""
        refused = set()
        for step in STEPS:
            if step.admin:
                if not step.reason:
                    self.assertEqual(self.of_admin(step), [], msg=step.text)
                if not self.apache.admin[step.text].endswith("exit status: 0\n"):
                    refused.add(step.text)
        self.assertEqual(refused, {
            "topicRoute -t NoSuchTopic", "consumerProgress -g NoSuchGroup",
            "consumerConnection -g NoSuchGroup", "producerConnection -g NoSuchGroup -t {topic}",
            "topicStatus -t SweepTopic", "queryMsgTraceById -i {unique_id}"})

    def test_reasons_hold(self) -> None:
        """Each known difference occurs with one of the tools."""
        for step in STEPS:
            if step.reason:
                self.assertTrue(self.of_mqadmin(step) or (step.admin and self.of_admin(step)),
                                msg=step.text)
