"""Commands for brokers, clusters and name servers, and exports."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from twisted.trial.unittest import SynchronousTestCase

from tests.tools.admin.case import AdminCase
from twistmq.protocol.bodies import HAClientRuntimeInfo, HARuntimeInfo
from twistmq.protocol.codes import RequestCode
from twistmq.tools.admin.brokers import replication_status
from twistmq.tools.admin.session import Broker, Session


class BrokerTests(AdminCase):
    """Tables, settings, and removal of old data."""

    def test_a_brokers_table(self) -> None:
        """The table of a broker is shown, by address and by cluster."""
        rows = self.rows("brokerStatus", "-b", self.broker)
        table = {row["name"]: row["value"] for row in rows}
        self.assertEqual((table["brokerVersionDesc"], table["brokerActive"]), ("V5_3_3", "true"))
        self.assertEqual({row["broker"] for row in rows}, {"broker-a"})
        names = {row["name"] for row in self.rows("brokerStatus", "-c", "DefaultCluster")}
        self.assertEqual(names, table.keys())

    def test_cluster_statistics_count_todays_messages(self) -> None:
        """The statistics have the messages of today."""
        self.rows("updateTopic", "-b", self.broker, "-t", "T")
        self.rows("sendMessage", "-t", "T", "-p", "x")
        [row] = self.rows("clusterList", "-m")
        self.assertEqual((row["broker"], row["in_yesterday"], row["in_today"]), ("broker-a", 0, 1))
        [row] = self.rows("clusterList", "-c", "DefaultCluster")
        self.assertEqual((row["version"], row["address"]), ("V5_3_3", self.broker))
        self.assertLess(row["hours"], 1)

    def test_a_brokers_settings(self) -> None:
        """The settings of a broker are shown."""
        table = {row["name"]: row["value"] for row in self.rows("getBrokerConfig", "-b",
                                                                self.broker)}
        self.assertEqual((table["brokerName"], table["brokerIP1"]), ("broker-a", "127.0.0.1"))
        self.assertEqual(table["messageDelayLevel"].split()[0], "1s")

    def test_each_kind_of_cleaning_runs_when_asked_for(self) -> None:
        """Each kind of removal runs when it is asked for."""
        for name in ("cleanExpiredCQ", "cleanUnusedTopic", "deleteExpiredCommitLog"):
            for place in (("-b", self.broker), ("-c", "DefaultCluster"), ()):
                self.assertEqual(self.rows(name, *place), [
                    {"broker": "broker-a", "address": self.broker, "done": True}], msg=name)


    def test_a_master_without_slaves(self) -> None:
        """A master without slaves is shown; it accepts the commands for slaves."""
        self.rows("updateTopic", "-b", self.broker, "-t", "T")
        self.rows("sendMessage", "-t", "T", "-p", "x")
        for place in (("-b", self.broker), ("-c", "DefaultCluster")):
            [row] = self.rows("haStatus", *place)
            self.assertGreater(row.pop("max_offset"), 0)
            self.assertEqual(row, {
                "broker": "broker-a", "address": self.broker, "role": "master", "peer": "no slave",
                "peer_offset": None, "behind": None, "in_sync": None, "bytes_per_second": None})
        self.assertEqual(self.rows("resetMasterFlushOffset", "-b", self.broker, "-o", "7"),
                         [{"address": self.broker, "offset": 7}])


class _Session:
    """The answers of brokers, by address."""

    def __init__(self, answers: dict[str, bytes]) -> None:
        self.answers = answers

    def brokers(self, broker: str | None, cluster: str | None, slaves: bool) -> list[Broker]:
        return [Broker("c", "b", number, address) for number, address in enumerate(self.answers)]

    def for_each(
        self, places: Iterable[Broker], ask: Callable[[Broker], Any]
    ) -> Iterator[tuple[Broker, Any]]:
        return ((place, ask(place)) for place in places)

    def ask(self, address: str, code: int) -> Any:
        assert code == RequestCode.GET_BROKER_HA_STATUS
        return SimpleNamespace(body=self.answers[address])


class ReplicationTests(SynchronousTestCase):
    """The command haStatus for brokers with replication."""

    def test_master_and_slave(self) -> None:
        """Apache's brokers report each other; each slave of a master has a row."""
        connection = (b'{"addr":"127.0.0.1:%d","diff":%d,"inSync":%s,"slaveAckOffset":%d,'
                      b'"transferFromWhere":0,"transferredByteInSecond":5}')
        master = b'{"haConnectionInfo":[%s],"master":true,"masterCommitLogMaxOffset":100}' % (
            b",".join([connection % (1, 10, b"true", 90), connection % (2, 100, b"false", 0)]))
        slave = (b'{"haClientRuntimeInfo":{"activated":true,"masterAddr":"127.0.0.1:9",'
                 b'"masterFlushOffset":100,"maxOffset":90,"transferredByteInSecond":5}}')
        session = cast(Session, _Session({"m:1": master, "s:1": slave}))
        self.assertEqual(list(replication_status(session, broker=None, cluster="c")), [
            ("b", "m:1", "master", 100, "127.0.0.1:1", 90, 10, True, 5),
            ("b", "m:1", "master", 100, "127.0.0.1:2", 0, 100, False, 5),
            ("b", "s:1", "slave", 90, "127.0.0.1:9", 100, 10, True, 5)])

    def test_lone_master(self) -> None:
        """A master without slaves has a row as well."""
        body = HARuntimeInfo(master=True, master_commit_log_max_offset=3).encode()
        session = cast(Session, _Session({"m:1": body}))
        self.assertEqual(list(replication_status(session, broker="m:1", cluster=None)), [
            ("b", "m:1", "master", 3, "no slave", None, None, None, None)])

    def test_a_slave_that_does_not_know_how_far_its_master_is(self) -> None:
        """The master is lost, has not reported its end yet, or reported it long ago."""
        for activated, told in ((False, 0), (False, 200), (True, 0), (True, 80)):
            body = HARuntimeInfo(ha_client_runtime_info=HAClientRuntimeInfo(
                activated=activated, master_addr="m:2", master_flush_offset=told,
                max_offset=90)).encode()
            session = cast(Session, _Session({"s:1": body}))
            self.assertEqual(list(replication_status(session, broker="s:1", cluster=None)), [
                ("b", "s:1", "slave", 90, "m:2", None, None, activated, 0)])


class NameServerTests(AdminCase):
    """Values, settings and permissions."""

    def test_a_value_is_kept_and_forgotten(self) -> None:
        """A value is stored, read and deleted."""
        [row] = self.rows("updateKvConfig", "-s", "space", "-k", "key", "-v", "a=b")
        self.assertEqual((row["address"], row["value"]), (self.running.namesrv_address, "a=b"))
        self.rows("deleteKvConfig", "-s", "space", "-k", "key")

    def test_a_name_servers_settings(self) -> None:
        """The settings of a name server are shown."""
        table = {row["name"]: row["value"] for row in self.rows("getNamesrvConfig")}
        self.assertEqual(table["enableTopicList"], "true")

    def test_write_permission(self) -> None:
        """The write permission of a broker is removed and given back."""
        self.rows("updateTopic", "-b", self.broker, "-t", "T")
        [row] = self.rows("wipeWritePerm", "-b", "broker-a")
        self.assertGreater(row["topics"], 0)
        self.assertEqual(self.rows("topicRoute", "-t", "T")[0]["perm"], 4)
        self.assertEqual(self.rows("addWritePerm", "-b", "broker-a")[0]["topics"], row["topics"])
        self.assertEqual(self.rows("topicRoute", "-t", "T")[0]["perm"], 6)

    def test_one_of_two_is_down(self) -> None:
        """The result of the other name server is shown, and the failure is reported."""
        from tests.tools.admin.case import call

        status, out, err = call("updateKvConfig", "-s", "s", "-k", "k", "-v", "v", "--output",
                                "json", "-n", f"127.0.0.1:1;{self.running.namesrv_address}")
        self.assertEqual(status, 1)
        self.assertEqual([row["address"] for row in json.loads(out)],
                         [self.running.namesrv_address])
        self.assertIn("127.0.0.1:1", err)
        self.assertEqual(err.count("\n"), 1)


class ExportTests(AdminCase):
    """Exports."""

    def setUp(self) -> None:
        super().setUp()
        self.rows("updateTopic", "-b", self.broker, "-t", "T", "-r", "3")
        self.rows("updateSubGroup", "-b", self.broker, "-g", "g", "-r", "5")

    def test_topics_and_groups_of_users(self) -> None:
        """The topics and groups of users are printed or written to a file."""
        shown = {row["name"]: row["value"] for row in self.rows("exportMetadata", "-c",
                                                                "DefaultCluster")}
        self.assertEqual((shown["topicConfigTable/T/readQueueNums"],
                          shown["subscriptionGroupTable/g/retryMaxTimes"]), (3, 5))
        self.assertFalse([name for name in shown if "TBW102" in name or "TOOLS" in name])
        with tempfile.TemporaryDirectory() as folder:
            for options, name in (((), "metadata"), (("-t",), "topic"),
                                  (("-g",), "subscriptionGroup")):
                [row] = self.rows("exportMetadata", "-b", self.broker, "-f", f"{folder}/new",
                                  *options)
                self.assertEqual(row["file"], f"{folder}/new/{name}.json")
            content = json.loads((Path(folder) / "new/metadata.json").read_text())
            self.assertEqual(content["topicConfigTable"]["T"]["readQueueNums"], 3)
            self.assertNotIn("subscriptionGroupTable",
                             json.loads((Path(folder) / "new/topic.json").read_text()))
            (Path(folder) / "file").touch()
            self.assertIn("file", self.refusal("exportMetadata", "-b", self.broker, "-f",
                                               f"{folder}/file"))

    def test_the_export_names_cluster_size_and_settings(self) -> None:
        """The export has the size of the cluster and the settings of its brokers."""
        shown = {row["name"]: row["value"] for row in self.rows("exportConfigs", "-c",
                                                                "DefaultCluster")}
        self.assertEqual((shown["clusterScale/masterBrokerSize"],
                          shown["clusterScale/slaveBrokerSize"],
                          shown["brokerConfigs/broker-a/flushDiskType"]), (1, 0, "ASYNC_FLUSH"))

    def test_how_much_the_cluster_does(self) -> None:
        """The export has the load of the cluster."""
        self.member("g", "T")
        shown = {row["name"]: row["value"] for row in self.rows("exportMetrics", "-c",
                                                                "DefaultCluster")}
        report = "evaluateReport/broker-a"
        self.assertEqual((shown[f"{report}/runtimeQuota/topicSize"],
                          shown["totalData/totalOneDayNum/normalOneDayInNum"]), (1, 0))
        self.assertEqual(shown[f"{report}/runtimeVersion/clientInfo"], '["PYTHON%V5_3_3"]')
