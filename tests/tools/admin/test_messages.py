"""Commands that send, find and list messages."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.tools.admin.case import AdminCase
from twistmq.client import Client, Message, Producer
from twistmq.protocol.bodies import MessageQueue
from twistmq.protocol.record import SYS_COMPRESSED


class MessageCase(AdminCase):
    """A topic of two queues with a message that has a key."""

    def setUp(self) -> None:
        super().setUp()
        self.rows("updateTopic", "-b", self.broker, "-t", "T", "-r", "2", "-w", "2")
        [self.sent] = self.rows("sendMessage", "-t", "T", "-p", "héllo", "-k", "k1 k2", "-c", "a",
                                "-b", "broker-a", "-i", "1")

    def detail(self, *arguments: str) -> dict[str, Any]:
        """Return the rows of a message as names and values."""
        return {row["name"]: row["value"] for row in self.rows(*arguments)}


class DamagedTests(MessageCase):
    """One message is damaged in the log: the others are shown, and a line about that one."""

    def setUp(self) -> None:
        super().setUp()
        for body in ("whole one", "damaged one", "whole two"):
            self.rows("sendMessage", "-t", "T", "-p", body, "-k", "k1", "-b", "broker-a", "-i", "0")
        [log] = Path(self.running.data, "store", "commitlog").glob("0*")
        with open(log, "r+b") as file:
            # The file is a gibibyte, and its messages are in the beginning.
            self.place = (data := file.read(1 << 20)).index(b"damaged one")
            file.seek(self.place)
            file.write(b"#")
        begin = data.rindex(b"\xda\xa3\x20\xa7", 0, self.place) - 4
        self.line = f"offset 1, commit log offset {begin}"
        [self.unique] = re.findall(rb"UNIQ_KEY\x01([0-9A-F]+)\x02", data[self.place:])[:1]
        self.offset_id = f"7F000001{int(self.broker.rpartition(':')[2]):08X}{begin:016X}"

    def shown(self, *arguments: str) -> list[dict[str, Any]]:
        """The rows of a command that fails for the damaged message and prints its line."""
        status, out, err = self.call(*arguments, "--output", "json")
        self.assertEqual(status, 1, msg=err)
        [line] = [each for each in err.splitlines() if "damaged" in each.lower()]
        self.assertIn(self.line, line)
        self.assertIn("of T, broker broker-a, queue 0", line)
        self.assertIn("CRC does not match", line)
        rows: list[dict[str, Any]] = json.loads(out)
        return rows

    def test_by_key(self) -> None:
        """The command ``queryMsgByKey``."""
        self.assertEqual([(row["queue"], row["offset"]) for row in self.shown(
            "queryMsgByKey", "-t", "T", "-k", "k1")], [(1, 0), (0, 0), (0, 2)])

    def test_by_id(self) -> None:
        """``queryMsgById`` finds a message by an id of either kind, even beside other ids."""
        whole = self.sent["message"]
        for damaged in (self.unique.decode(), self.offset_id):
            rows = self.shown("queryMsgById", "-t", "T", "-i", f"{damaged},{whole}")
            self.assertEqual([row["value"] for row in rows if row["name"] == "body"], ["héllo"])
        self.assertEqual(self.shown(
            "queryMsgByUniqueKey", "-t", "T", "-i", self.unique.decode()), [])


class SendTests(MessageCase):
    """``sendMessage`` and the commands that measure."""

    def test_a_send_prints_queue_and_ids(self) -> None:
        """The output has the queue and the ids."""
        self.assertEqual((self.sent["broker"], self.sent["queue"], self.sent["offset"],
                          self.sent["status"]), ("broker-a", 1, 0, "SEND_OK"))
        with self.running.client() as client:
            [message] = client.pull("T", queue_id=1)
        self.assertEqual(message.body, "héllo".encode())
        self.assertEqual(message.properties_map()["UNIQ_KEY"], self.sent["message"])

    def test_no_such_queue(self) -> None:
        """The queue does not exist."""
        self.assertIn("no such queue", self.refusal(
            "sendMessage", "-t", "T", "-p", "x", "-b", "broker-a", "-i", "7"))
        self.assertIn("-i needs -b", self.refusal("sendMessage", "-t", "T", "-p", "x", "-i", "1"))

    def test_a_tag_that_no_subscription_can_name(self) -> None:
        """It is refused, and so is a separator of properties."""
        self.assertIn("tag 'a||b'", self.refusal("sendMessage", "-t", "T", "-p", "x", "-c", "a||b"))
        self.assertIn("property 'KEYS'", self.refusal(
            "sendMessage", "-t", "T", "-p", "x", "-k", "a\x01b"))

    def test_each_measured_send_is_stored(self) -> None:
        """Each send is measured and stored."""
        rows = self.rows("checkMsgSendRT", "-t", "T", "-a", "4", "-s", "10")
        self.assertEqual([(row["queue"], row["stored"]) for row in rows],
                         [(0, True), (1, True), (0, True), (1, True)])
        self.assertTrue(all(row["ms"] > 0 for row in rows))
        [row] = self.rows("clusterRT", "-a", "3", "--print log", "true", "--machine room=north")
        self.assertEqual((list(row), row["room"], row["cluster"]), (
            ["time", "room", "cluster", "broker", "ms"], "north", "DefaultCluster"))
        self.assertGreater(row["time"], 1_600_000_000_000)
        [row] = self.rows("clusterRT", "-a", "3")
        self.assertEqual((row["cluster"], row["broker"], row["stored"], row["failed"]),
                         ("DefaultCluster", "broker-a", 3, 0))
        self.assertEqual(len(self.rows("sendMsgStatus", "-b", "broker-a", "-c", "2")), 2)
        self.assertEqual(self.rows("topicStatus", "-t", "T")[1]["max_offset"], 3)

    def test_a_refused_send_is_shown_and_makes_the_status_1(self) -> None:
        """A refused send is counted and shown, and the status is 1."""
        status, out, err = self.call("clusterRT", "-a", "2", "-s", "5000000", "--output", "json")
        [row] = json.loads(out)
        self.assertEqual((status, row["stored"], row["failed"]), (1, 0, 2))
        self.assertEqual(err.count("\n"), 1, msg=err)


class FindTests(MessageCase):
    """Messages are found by id, key and offset."""

    def test_each_key_of_a_message_finds_it(self) -> None:
        """Each key of a message finds it, and no other message."""
        for key in ("k1", "k2"):
            [row] = self.rows("queryMsgByKey", "-t", "T", "-k", key)
            self.assertEqual((row["message"], row["queue"], row["offset"]),
                             (self.sent["message"], 1, 0))
        self.assertEqual(self.rows("queryMsgByKey", "-t", "T", "-k", "k"), [])
        self.assertEqual(self.rows("queryMsgByKey", "-t", "T", "-k", "k1", "-e", "1"), [])

    def test_by_either_id(self) -> None:
        """The id of the sender and the offset id find the same message."""
        found = self.detail("queryMsgById", "-t", "T", "-i", self.sent["message"])
        self.assertEqual(found, self.detail("queryMsgById", "-t", "T", "-i",
                                            self.sent["offset_message"]))
        self.assertEqual(found, self.detail("queryMsgByUniqueKey", "-t", "T", "-i",
                                            self.sent["message"]))
        self.assertEqual(found, self.detail("queryMsgByOffset", "-t", "T", "-b", "broker-a", "-i",
                                            "1", "-o", "0"))
        self.assertEqual((found["body"], found["tags"], found["keys"], found["queue"],
                          found["offset_id"], found["store_host"]),
                         ("héllo", "a", "k1 k2", 1, self.sent["offset_message"], self.broker))
        two = self.rows("queryMsgById", "-t", "T", "-i",
                        f"{self.sent['message']},{self.sent['offset_message']}")
        self.assertEqual(len(two), 2 * len(found))

    def test_what_groups_made_of_it(self) -> None:
        """One group has consumed it, one has not yet, and one does not exist."""
        self.member("g", "T")
        queue = MessageQueue("T", "broker-a", 1)

        def state() -> object:
            return self.detail("queryMsgById", "-t", "T", "-i", self.sent["message"])["group g"]

        self.assertEqual(state(), "NOT_CONSUME_YET")
        with Client(self.running.namesrv_address) as client:
            client.commit_group_offset("g", queue, 1)
        self.assertEqual(state(), "CONSUMED")

    def test_a_message_that_is_not_found_is_one_line(self) -> None:
        """The result is one line."""
        unknown = "7F" * 16
        for arguments in (("queryMsgById", "-i", unknown), ("queryMsgById", "-i", "short"),
                          ("queryMsgByUniqueKey", "-i", unknown),
                          ("queryMsgByOffset", "-b", "broker-a", "-i", "1", "-o", "9")):
            self.assertIn("has no message", self.refusal(*arguments, "-t", "T"))

    def test_a_message_sent_again_has_the_same_body_and_properties(self) -> None:
        """The new message has its own offset."""
        [row] = self.rows("queryMsgById", "-t", "T", "-i", self.sent["message"], "-s", "true")
        self.assertNotEqual(row["message"], self.sent["message"])
        found = self.detail("queryMsgById", "-t", "T", "-i", row["offset_message"])
        self.assertEqual((found["body"], found["tags"], found["keys"]), ("héllo", "a", "k1 k2"))

    def test_a_body_that_a_client_compressed_is_shown_as_it_was(self) -> None:
        """A body that a client compressed is shown as it was."""
        with Producer(self.running.namesrv_address) as producer:
            producer.send(Message("T", zlib.compress(b"long " * 9), keys=["z"],
                                  sys_flag=SYS_COMPRESSED))
            producer.send(Message("T", b"not zlib", keys=["n"], sys_flag=SYS_COMPRESSED))
        bodies = {row["keys"]: row["body"] for row in self.rows("printMsg", "-t", "T")}
        self.assertEqual(bodies["z"], "long " * 9)
        self.assertTrue(bodies["n"].startswith("<8 bytes cannot be decompressed"))
        self.assertIn("no encoding", self.refusal("printMsg", "-t", "T", "-c", "none-such"))


class WalkTests(MessageCase):
    """Messages are listed one after the other."""

    def setUp(self) -> None:
        super().setUp()
        with Producer(self.running.namesrv_address) as producer:
            for at in range(70):
                producer.send("T", b"%d" % at, tags="b" if at % 2 else "a",
                              queue=MessageQueue("T", "broker-a", 0))

    def test_all_messages_of_a_topic_come_in_queue_order(self) -> None:
        """All messages are listed, over many pulls, or those with a tag."""
        rows = self.rows("printMsg", "-t", "T")
        self.assertEqual([row["body"] for row in rows], [*map(str, range(70)), "héllo"])
        self.assertEqual(len(self.rows("printMsg", "-t", "T", "-s", "b || none")), 35)
        self.assertEqual({row["body"] for row in self.rows("printMsg", "-t", "T", "-d", "false")},
                         {None})
        begin = rows[69]["stored"]
        self.assertIn("69", [row["body"] for row in self.rows(
            "printMsg", "-t", "T", "-b", str(begin))])
        self.assertEqual(self.rows("printMsg", "-t", "T", "-e", "1"), [])

    def test_a_queues_messages(self) -> None:
        """The messages of a queue are listed, or counted by tag."""
        rows = self.rows("printMsgByQueue", "-t", "T", "-a", "broker-a", "-i", "1", "-d", "true")
        self.assertEqual([row["body"] for row in rows], ["héllo"])
        self.assertEqual(self.rows("printMsgByQueue", "-t", "T", "-a", "broker-a", "-i", "0", "-f",
                                   "true"),
                         [{"tag": "a", "messages": 35}, {"tag": "b", "messages": 35}])

    def test_consuming_shows_a_number_of_messages_and_commits_nothing(self) -> None:
        """The messages begin at an offset; no group's offset changes."""
        rows = self.rows("consumeMessage", "-t", "T", "-b", "broker-a", "-i", "0", "-o", "5", "-c",
                         "40", "-g", "g")
        self.assertEqual([row["offset"] for row in rows], list(range(5, 45)))
        with Client(self.running.namesrv_address) as client:
            self.assertIsNone(client.group_offset("g", MessageQueue("T", "broker-a", 0)))
        self.assertIn("-o needs", self.refusal("consumeMessage", "-t", "T", "-o", "5"))

    def test_entries_of_the_consume_queue(self) -> None:
        """Entries of the consume queue are listed."""
        rows = self.rows("queryCq", "-t", "T", "-q", "0", "-i", "3", "-c", "2")
        self.assertEqual([row["index"] for row in rows], [3, 4])
        self.assertEqual(rows[1]["place"] - rows[0]["place"], rows[0]["size"])


class TraceTests(AdminCase):
    """The command ``queryMsgTraceById``."""

    settings: Mapping[str, str] = {**AdminCase.settings, "traceTopicEnable": "true"}

    def test_the_trace_of_a_message_has_its_send_and_consumption(self) -> None:
        """The send and the consumption of a message, from a client's records."""
        from twistmq.protocol.trace_records import Pub, SubAfter, SubBefore, encode_records

        name = "0A" * 16
        body = encode_records((
            Pub(1_700_000_000_000, None, "p", "T", name, None, None, None, 5, 3, 0, None, True),
            SubBefore(1_700_000_000_010, None, "g", "r1", name, 0, None),
            SubAfter("r1", name, 7, False, None, 4, 1_700_000_000_020, "g"),
            Pub(1_700_000_000_005, None, "p", "T", "0B" * 16, None, None, None, 5, 3, 0, None,
                True)))
        with Producer(self.running.namesrv_address) as producer:
            producer.send("RMQ_SYS_TRACE_TOPIC", body, keys=[name])
        rows = self.rows("queryMsgTraceById", "-i", name)
        self.assertEqual([(row["type"], row["group"], row["client"], row["time"], row["ms"],
                           row["status"]) for row in rows], [
            ("Pub", "p", "127.0.0.1", 1_700_000_000_000, 3, "success"),
            ("Sub", "g", "127.0.0.1", 1_700_000_000_020, 7, "failed")])
        self.assertIn(f"holds no trace of {'0C' * 16}",
                      self.refusal("queryMsgTraceById", "-i", "0C" * 16))


