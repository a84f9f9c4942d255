"""The processing of the revive topic."""

from __future__ import annotations

import json

from twisted.logger import capturedLogs

from tests.kernel_case import DAMAGED_PARTS, error_lines, flip, note_appends
from tests.plugins.pop.case import RETRY_TOPIC, REVIVE_TOPIC, TIMER_TURN, PopTestCase
from twistmq.plugins.pop import rescue
from twistmq.plugins.pop.check_point import CheckPoint, PointKey
from twistmq.plugins.pop.names import REVIVE_GROUP
from twistmq.protocol.errors import BrokerError, RequestRefused
from twistmq.protocol.record import MessageRecord
from twistmq.protocol.topic_names import TIMER_TOPIC


class ReviveTests(PopTestCase):
    """Messages that are not acknowledged in time are delivered again."""

    settings = {"reviveQueueNum": "1"}  # noqa: RUF012

    def test_not_before_its_time(self) -> None:
        """The message is delivered within two ticks after its time."""
        self.send(b"x")
        self.pop()
        self.pass_time(5000)
        self.assertEqual(self.retries(), [])
        self.pass_time(2500)
        self.assertEqual(self.retries(), [b"x"])

    def test_again_and_again(self) -> None:
        """The message is delivered after each pop, and each time is counted."""
        self.send(b"x")
        for tries in range(4):
            [popped] = self.pop()
            self.assertEqual(popped.message.reconsume_times, tries)
            self.pass_time(8000)
        self.assertEqual([each.reconsume_times for each in self.stored(RETRY_TOPIC)], [1, 2, 3, 4])

    def test_the_revive_groups_offset_is_that_of_the_last_message(self) -> None:
        """The revive group commits the offset of the last message that it has processed."""
        self.send_some(2, 1)
        popped = self.pop(count=1)
        self.pop(count=1)
        self.ack(*popped)
        self.pass_time(9000)
        self.assertEqual(self.revived_to(), {0: 2})
        self.assertEqual(len(self.stored(REVIVE_TOPIC, 0)), 3)

    def test_progress_is_durable(self) -> None:
        """The saved offset does not pass data that a loss of power could remove."""
        self.send(b"x")
        self.pop()
        self.pass_time(5000)
        store = self.box.kernel.store
        self.patch(store, "flush_step", lambda now_ms: None)
        self.pass_time(3000)
        self.assertEqual(self.retries(), [b"x"])
        before = self.revived_to()
        self.assertNotIn(1, before.values())
        self.pass_time(2000)
        self.assertEqual(self.revived_to(), before)

    def test_the_next_broker_goes_on(self) -> None:
        """The next broker continues, and no message is delivered twice."""
        self.send_some(4, 1)
        popped = [self.pop(count=1)[0] for _ in range(4)]
        self.ack(popped[0])
        for elapsed_ms in (2000, 2500, 500, 1000, 1000, 3000):
            self.pass_time(elapsed_ms)
            self.restart()
        self.assertEqual(self.retries(), [b"1", b"2", b"3"])

    def test_kill_before_it_is_saved(self) -> None:
        """Messages revived since the last save are delivered again; acknowledged ones are not."""
        self.send_some(2, 1)
        popped = self.pop()
        self.ack(popped[0])
        self.box.kernel.persist()
        self.pass_time(9000)
        self.assertEqual(self.retries(), [b"1"])
        self.after_kill()
        self.box.kernel.consumer_offset.table.pop(f"{REVIVE_TOPIC}@CID_RMQ_SYS_REVIVE_GROUP", None)
        self.pass_time(3000)
        self.assertEqual(self.retries(), [b"1", b"1"])

    def test_message_is_gone(self) -> None:
        """A check point of messages that no longer exist is skipped."""
        self.send(b"x")
        self.pop()
        self.box.kernel.store.delete_topic("T")
        self.pass_time(9000)
        self.assertEqual(self.retries(), [])
        self.assertEqual(self.revived_to(), {0: 0})

    def test_topic_is_gone(self) -> None:
        """A check point of a deleted topic or group is skipped."""
        self.restart(autoCreateSubscriptionGroup="true")
        self.send(b"x")
        self.pop()
        self.box.kernel.topic_config.delete("T")
        self.box.kernel.store.delete_topic("T")
        self.pass_time(9000)
        self.assertEqual(self.revived_to(), {0: 0})

    def test_forgotten_topic(self) -> None:
        """The messages of a topic whose settings were lost by a kill are delivered again."""
        self.send(b"x")
        self.pop()
        self.box.kernel.topic_config.delete("T")
        self.pass_time(9000)
        self.assertEqual(self.retries(), [b"x"])

    def test_delay_level(self) -> None:
        """A message that had a delay is not delayed again by each retry."""
        self.send(b"x", DELAY="0")
        self.pop()
        self.pass_time(9000)
        [again] = self.stored(RETRY_TOPIC)
        self.assertNotIn("DELAY", again.properties_map())

    def test_without_meaning(self) -> None:
        """Invalid messages of the revive topic are skipped with a log line."""
        host = self.box.kernel.store_host
        bodies = [(b"x", "ck"), (b"[]", "ck"), (b'{"t":"T"}', "ck"), (b"{}", "ack"),
                  (b'{"t":"T","c":"g","q":0,"so":0,"pt":1,"aol":["x"]}', "bAck"),
                  (b'{"t":"T","c":"g","q":0,"so":0,"pt":1,"it":1,"d":[0],"n":1}', "other")]
        self.box.kernel.append([
            MessageRecord(REVIVE_TOPIC, 0, body, f"TAGS\x01{tag}\x02", 1, host, host, [])
            for body, tag in bodies])
        self.send(b"y")
        self.pop()
        self.pass_time(9000)
        self.assertEqual(self.retries(), [b"y"])
        self.assertEqual(self.revived_to(), {0: len(bodies)})

    def test_check_points_of_older_brokers(self) -> None:
        """Brokers before 5.0 did not list offsets, and some did not write their names."""
        self.send_some(4, 1)
        now_ms = self.box.now_ms
        host = self.box.kernel.store_host
        self.box.kernel.subscription_group.find("g")
        records = []
        for tag, body in (
            ("ck", {"so": 1, "pt": now_ms - 9000, "it": 1000, "bm": 0, "n": 3, "q": 0, "t": "T",
                    "c": "g", "ro": 0}),
            ("ack", {"ackOffset": 2, "startOffset": 1, "consumerGroup": "g", "topic": "T",
                     "queueId": 0, "popTime": now_ms - 9000}),
        ):
            records.append(MessageRecord(
                REVIVE_TOPIC, 0, json.dumps(body).encode(), f"TAGS\x01{tag}\x02", 1, host, host,
                []))
        self.box.kernel.append(records)
        self.pass_time(3000)
        self.assertEqual(self.retries(), [b"1", b"3"])

    def test_twice_the_same_check_point(self) -> None:
        """A check point that the timer delivered twice has the acknowledgements of the first."""
        self.send(b"x")
        [popped] = self.pop()
        self.ack(popped)
        self.pass_time(5500, 100)
        key = PointKey("T", "g", 0, 0, int(popped.receipt.split(" ")[1]), "broker-a")
        again = self.service.state.records.check_point(CheckPoint(key, [0], 5000), 0)
        self.service.state.records.store([again])
        self.pass_time(5000)
        self.assertEqual(self.retries(), [])

    def test_full_disk(self) -> None:
        """The revival waits for room on the disk, and no message is lost."""
        self.send_some(3, 1)
        self.pop()
        self.pass_time(5500)
        self.box.kernel.store.log_retention.disk_full = True
        self.pass_time(6000)
        self.assertEqual(self.retries(), [])
        self.box.kernel.store.log_retention.disk_full = False
        self.pass_time(6000)
        self.assertEqual(self.retries(), [b"0", b"1", b"2"])

    def test_many_messages_are_revived_in_several_reads(self) -> None:
        """More messages than one read returns, or one append stores, are revived."""
        for number in range(400):
            self.send(b"%d" % number)
        for _ in range(400):
            self.pop(count=1)
        self.pass_time(9000)
        self.assertEqual(len(self.retries()), 400)
        self.assertEqual(self.revived_to(), {0: 399})


class DamagedTests(PopTestCase):
    """One record is damaged, in the revive topic or among the popped messages."""

    settings = {"reviveQueueNum": "1", "enablePopBufferMerge": "false"}  # noqa: RUF012

    def pop_three(self) -> None:
        """Pop three messages by a check point each, which reach the revive topic."""
        for body in (b"one", b"two", b"three"):
            self.send(body)
        for _ in range(3):
            self.pop(count=1)
        for _ in range(12):
            self.box.now_ms += 500
            self.run_all(TIMER_TURN)
            self.box.kernel.store.flush_step(self.box.now_ms)
        self.assertEqual(len(self.stored(REVIVE_TOPIC)), 3)

    def damage(self, part: str) -> int:
        """Damage the second check point; :returns: its place in the commit log."""
        if part == "tag":
            # The CRC does not cover the tag.
            [data] = self.box.kernel.store.get_message(REVIVE_TOPIC, 0, 1, 1).messages
            part = str(data.index(b"TAGS") + 5)
        return flip(self.box, REVIVE_TOPIC, 0, 1, part)

    def test_a_check_point(self) -> None:
        """One error names it, and all its messages are delivered again, whatever
        part is damaged.
        """
        for part in (*DAMAGED_PARTS, "tag"):
            self.pop_three()
            place = self.damage(part)
            with capturedLogs() as events:
                self.pass_time(9000)
            self.assertEqual(self.retries(), [b"one", b"two", b"three"], msg=part)
            [line] = error_lines(events)
            self.assertIn(f"message 1 of {REVIVE_TOPIC}-0, at {place} of the commit log, is "
                          "damaged: ", line)
            self.assertRegex(line, "its copy in the timer topic is used$" if part == "body" else
                             "its body is whole and is used$")
            self.assertEqual(self.revived_to(), {0: 2})
            self.doCleanups()
            self.setUp()

    def test_a_check_point_without_a_copy(self) -> None:
        """Its unique key names its first message; the error says that the others are lost."""
        for number in range(4):
            self.send(b"%d" % number)
        self.pop(count=1)
        self.pop(count=3)
        for _ in range(12):
            self.box.now_ms += 500
            self.run_all(TIMER_TURN)
        self.patch(rescue, "_copies", lambda *_: iter(()))
        self.damage("body")
        with capturedLogs() as events:
            self.pass_time(9000)
        self.assertEqual(self.retries(), [b"0", b"1"])
        [line] = error_lines(events)
        self.assertRegex(line, "; message 1 of T-0 is delivered to g again unless it was "
                               "acknowledged; the later messages .* are lost to the group "
                               "unless they were acknowledged$")

    def test_an_acknowledgement(self) -> None:
        """A damaged acknowledgement counts as well."""
        self.send(b"x")
        [popped] = self.pop()
        self.ack(popped)
        for _ in range(14):
            self.box.now_ms += 500
            self.run_all(TIMER_TURN)
        self.assertEqual(len(self.stored(REVIVE_TOPIC)), 2)
        self.damage("body")
        with capturedLogs() as events:
            self.pass_time(9000)
        self.assertEqual(self.retries(), [])
        self.assertEqual(len(error_lines(events)), 1)

    def test_a_record_that_is_not_there(self) -> None:
        """Its content is unknown, and an error says so."""
        self.pop_three()
        store = self.box.kernel.store
        [(place, size, _)] = store.queues.entries(REVIVE_TOPIC, 0, 1, 1)
        path = f"{store.commit_log.directory}/{0:020d}"
        file = self.box.disk.open_file(path)
        file.write_at(place, bytes(size))
        file.close()
        with capturedLogs() as events:
            self.pass_time(9000)
        self.assertEqual(self.retries(), [b"one", b"three"])
        [line] = error_lines(events)
        self.assertIn("not in the commit log; the popped messages that it names are unknown", line)

    def test_an_offset_out_of_range(self) -> None:
        """Existing messages are read, and the others are counted; apache/rocketmq#1869."""
        for saved, least, retries, start in (
                (99, 0, [b"one", b"two", b"three"], f"{REVIVE_TOPIC}-0 is read from its beginning "
                 "at 0, 3 messages: the saved offset 100 "),
                (-1, 2, [b"three"], f"2 messages of {REVIVE_TOPIC}-0 were removed before they")):
            self.pop_three()
            self.service.queues[0].reset()
            self.box.kernel.consumer_offset.commit("", REVIVE_GROUP, REVIVE_TOPIC, 0, saved)
            queue = self.box.kernel.store.queues.find(REVIVE_TOPIC, 0)
            assert queue is not None
            queue.min_offset = least
            with capturedLogs() as events:
                self.pass_time(9000)
            self.assertEqual(self.retries(), retries)
            [line] = error_lines(events)
            self.assertTrue(line.startswith(start), msg=line)
            self.doCleanups()
            self.setUp()

    def test_a_popped_message(self) -> None:
        """One error names it, whatever part is damaged; the others are delivered again."""
        for part in DAMAGED_PARTS:
            self.pop_three()
            place = flip(self.box, "T", 0, 1, part)
            with capturedLogs() as events:
                self.pass_time(9000)
            self.assertEqual(self.retries(), [b"one", b"three"], msg=part)
            [line] = error_lines(events)
            self.assertIn(f"message 1 of T-0 at {place} of the commit log is damaged and is "
                          "not delivered to g again: ", line)
            self.doCleanups()
            self.setUp()


class RoleTests(PopTestCase):
    """A slave revives no messages."""

    settings = {"enablePopBufferMerge": "true"}  # noqa: RUF012

    def test_a_slave_revives_nothing_and_a_new_master_starts_fresh(self) -> None:
        """A slave writes nothing and discards its memory; as a master it starts again."""
        self.send_some(2, 1)
        self.pop(count=1)
        # Its check point has to be written by then.
        self.pass_time(3000)
        self.pop(count=1, invisible_ms=60_000)
        self.assertEqual(len(self.service.state.buffer), 1)
        tried = note_appends(self, self.box.kernel)
        self.box.kernel.set_role("SLAVE", 1)
        self.pass_time(12_000)
        self.assertEqual(([record.topic for record in tried], len(self.service.state.buffer)),
                         ([], 0))
        self.assertEqual(self.revived_to(), {})
        self.box.kernel.set_role("ASYNC_MASTER", 0)
        self.pass_time(12_000)
        self.assertEqual(self.retries(), [b"0"])


    def test_a_broker_that_is_master_again_goes_on_where_the_other_one_was(self) -> None:
        """The slave has copied the progress of the other broker."""
        self.send(b"x")
        self.pop()
        self.pass_time(8000)
        self.assertEqual(self.retries(), [b"x"])
        self.box.kernel.set_role("SLAVE", 1)
        self.pass_time(2000)
        # The other broker had not come as far, so the retry may not be in its log.
        del self.box.kernel.consumer_offset.table[f"{REVIVE_TOPIC}@{REVIVE_GROUP}"]
        self.box.kernel.set_role("ASYNC_MASTER", 0)
        self.pass_time(12_000)
        self.assertEqual(self.retries(), [b"x", b"x"])


class AgreedTests(PopTestCase):
    """Replicas must confirm the log."""

    def setUp(self) -> None:
        super().setUp()
        self.send(b"x")
        self.confirm()

    def confirm(self) -> None:
        """Let the replicas have all of the log."""
        dispatch = self.box.kernel.store.dispatch
        dispatch.advance_confirm_offset(self.box.kernel.store.commit_log.max_offset)

    def test_offsets_wait_for_the_check_point(self) -> None:
        """Until then another master would not deliver the messages again."""
        self.assertEqual([each.body for each in self.pop()], [b"x"])
        self.pass_time(2000)
        self.assertEqual((self.offset(), self.pop()), (0, []))
        self.confirm()
        self.pass_time(500)
        self.assertEqual(self.offset(), 1)

    def test_revived_messages_wait_for_their_retry(self) -> None:
        """The progress of the revive topic counts a retry that replicas have."""
        self.pop()
        self.confirm()
        for _ in range(16):
            self.pass_time(500)
            if not self.box.kernel.topic_config.get(RETRY_TOPIC):
                self.confirm()
        self.assertEqual((self.retries(), self.revived_to()), ([], {}))
        for _ in range(2):
            self.confirm()
            self.pass_time(1000)
        self.assertEqual(self.retries(), [b"x"])
        self.assertNotEqual(self.revived_to(), {})

    def test_a_check_point_that_is_cut(self) -> None:
        """Its messages are delivered again, also by a broker that becomes master again soon."""
        end = self.box.kernel.store.commit_log.max_offset
        self.pop()
        self.box.kernel.step_down(1)
        self.successResultOf(self.box.kernel.store.log_cut.cut_undispatched(end))
        self.box.kernel.set_role("ASYNC_MASTER", 0)
        self.assertEqual([each.body for each in self.pop()], [b"x"])
        self.confirm()
        self.pass_time(1000)
        self.assertEqual(self.offset(), 1)


class RefusedTests(PopTestCase):
    """A message that cannot be stored for its retry."""

    settings = {"reviveQueueNum": "1"}  # noqa: RUF012

    def refuse(self, times: int) -> None:
        """Have a plugin refuse the retry of "bad" so many times."""
        self.refused = 0
        kernel = self.box.kernel
        append = kernel.append

        def refusing(records: list[MessageRecord], owners: object = None
                     ) -> dict[int, BrokerError]:
            bad = {index for index, record in enumerate(records)
                   if record.body == b"bad" and record.topic == RETRY_TOPIC}
            if not bad or self.refused >= times:
                return append(records, owners)  # type: ignore[arg-type]
            self.refused += 1
            left = [record for index, record in enumerate(records) if index not in bad]
            self.assertEqual(append(left), {})
            return {index: RequestRefused(13, "no") for index in bad}

        kernel.append = refusing  # type: ignore[method-assign,assignment]

    def points(self) -> list[dict[str, object]]:
        return [json.loads(each.body) for each in self.stored(TIMER_TOPIC)]

    def test_tried_again(self) -> None:
        """It gets its own check point, with a growing delay; others do not wait for it."""
        self.send(b"bad")
        self.send(b"good")
        self.pop()
        self.refuse(2)
        self.pass_time(8000)
        self.assertEqual(self.retries(), [b"good"])
        again = self.points()[1]
        self.assertEqual((again["so"], again["d"], again["n"], again["rp"]), (0, [0], 1, "1"))
        self.pass_time(12_000)
        self.assertEqual((self.refused, self.points()[2]["rp"]), (2, "2"))
        self.pass_time(23_000)
        self.assertEqual(self.retries(), [b"good", b"bad"])

    def test_a_message_is_given_up_after_17_tries(self) -> None:
        """After 17 times, under skipWhenCKRePutReachMaxTimes; else never."""
        self.restart(skipWhenCKRePutReachMaxTimes="true")
        self.send(b"bad")
        self.refuse(1000)
        now_ms = self.box.now_ms
        point = CheckPoint(PointKey("T", "g", 0, 0, now_ms - 100, "broker-a"), [0], 0, 17)
        self.box.kernel.subscription_group.find("g")
        self.service.state.records.store([self.service.state.records.check_point(point, 0)])
        self.pass_time(3000)
        self.assertEqual((self.refused, self.points()), (1, []))
        self.box.settings.put("skipWhenCKRePutReachMaxTimes", False)
        self.service.state.records.store([self.service.state.records.check_point(point, 0)])
        self.pass_time(3000)
        self.assertEqual([each["rp"] for each in self.points()], ["18"])
