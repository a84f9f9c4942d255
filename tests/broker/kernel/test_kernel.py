"""The parts of the kernel that plugins use; one class for each part."""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any
from unittest import mock

from twisted.internet.defer import Deferred, ensureDeferred
from twisted.logger import capturedLogs, formatEvent
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker import hookimpl
from twistmq.broker.remoting.messages import Reply, Request, RequestHandler
from twistmq.broker.request import pull_hold
from twistmq.broker.request.acknowledgement import Stage
from twistmq.broker.store import queue_files
from twistmq.broker.store.message_store import MessageStore
from twistmq.broker.testing.disk import FaultyDisk
from twistmq.broker.testing.kernel import KernelBox, Peer
from twistmq.broker.testing.raw_client import pull_header, records_of, send_header
from twistmq.protocol.batch import encode_batch
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import RemotingCommand, encode_request
from twistmq.protocol.errors import BrokerError, MessageIllegal, RequestRefused, StoreError
from twistmq.protocol.frame import FrameDecoder
from twistmq.protocol.headers.send import SendMessageResponseHeader
from twistmq.protocol.properties import format_properties, tags_code
from twistmq.protocol.record import MessageRecord


def send(box: KernelBox, topic: str = "T", body: bytes = b"x", **fields: Any) -> RemotingCommand:
    """Send a message; :returns: the reply."""
    return box.ask(RequestCode.SEND_MESSAGE_V2, send_header(topic, box.now_ms, **fields), body)


def pull(box: KernelBox, topic: str = "T", offset: int = 0, **fields: Any) -> RemotingCommand:
    """Pull without waiting; :returns: the reply."""
    return box.ask(RequestCode.PULL_MESSAGE, pull_header(topic, offset, **fields))


def bodies(box: KernelBox, topic: str = "T", **fields: Any) -> list[bytes]:
    """Return the bodies of a queue's messages."""
    return [message.body for message in records_of(pull(box, topic, **fields).body)]


def hold(box: KernelBox, topic: str = "T", offset: int = 0, **fields: Any) -> Peer:
    """Begin a pull that waits; :returns: its connection."""
    peer = box.peer()
    header = pull_header(topic, offset, hold_ms=fields.pop("hold_ms", 15_000), **fields)
    reply = box.send(peer, RequestCode.PULL_MESSAGE, header)
    assert reply is None, "the pull does not wait"
    return peer


def record(
    box: KernelBox, topic: str = "T", body: bytes = b"x", **properties: str
) -> MessageRecord:
    """Return a record as a plugin creates it."""
    return MessageRecord(
        topic, 0, body, format_properties(properties), box.now_ms, box.kernel.store_host,
        box.kernel.store_host, [], tags_code(properties.get("TAGS")))


class Plugin:
    """A plugin whose hooks the test gives."""

    def __init__(self, **implementations: Callable[..., Any]) -> None:
        for name, function in implementations.items():
            setattr(self, name, hookimpl(function))


class KernelTestCase(SynchronousTestCase):
    """A test with a kernel that has a topic T."""

    def make_box(self, *, plugin: object = None, **arguments: Any) -> KernelBox:
        plugins = [] if plugin is None else [("plugin", plugin)]
        box = KernelBox(plugins, **arguments)
        self.addCleanup(box.stop)
        return box

    def setUp(self) -> None:
        self.box = self.make_box()


class NoPluginTests(KernelTestCase):
    """A kernel without plugins."""

    def test_send_store_pull(self) -> None:
        """It accepts, stores and delivers a message."""
        self.assertEqual(self.box.kernel.hooks.plugin_names, [])
        self.assertEqual(send(self.box, body=b"1").code, ResponseCode.SUCCESS)
        self.assertEqual(bodies(self.box), [b"1"])

    def test_transactions_are_refused(self) -> None:
        """A half message needs a plugin."""
        reply = send(self.box, properties={"TRAN_MSG": "true"})
        self.assertEqual(reply.code, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
        self.assertEqual(bodies(self.box), [])


class ConfirmOffsetTests(KernelTestCase):
    """A confirm offset apart from the maximum offset bounds dispatch and visibility."""

    def test_bounds_what_is_seen(self) -> None:
        """Messages behind it are stored and acknowledged, but not read, held pulls sleep on."""
        store = self.box.kernel.store
        send(self.box, body=b"1")
        seen: list[bytes] = []
        store.dispatch.on_dispatch.append(lambda records: seen.extend(r.body for r in records))
        store.dispatch.advance_confirm_offset(store.commit_log.max_offset)
        waiting = hold(self.box, offset=1)
        confirmed = store.commit_log.max_offset
        for body in (b"2", b"3"):
            self.assertEqual(send(self.box, body=body).code, ResponseCode.SUCCESS)
        self.assertEqual((store.dispatch.confirm_offset, seen), (confirmed, []))
        self.assertGreater(store.commit_log.max_offset, confirmed)
        self.assertEqual(bodies(self.box), [b"1"])
        self.assertEqual(store.queues.max_offset("T", 0), 1)
        self.assertEqual(self.box.late_replies(waiting), [])
        store.dispatch.advance_confirm_offset(store.commit_log.max_offset)
        self.assertEqual(seen, [b"2", b"3"])
        self.assertEqual(bodies(self.box), [b"1", b"2", b"3"])
        # Each append is dispatched by itself, and the first one answers the pull.
        [reply] = self.box.late_replies(waiting)
        self.assertEqual([m.body for m in records_of(reply.body)], [b"2"])


class RawAppendTests(KernelTestCase):
    """Raw append of another broker's commit log, at a given offset."""

    def test_a_slave_that_copies(self) -> None:
        """A slave that appends the master's bytes serves the same messages and wakes its pulls."""
        slave = self.make_box(settings={"brokerRole": "SLAVE", "brokerId": "1"})
        slave.kernel.topic_config.create_in_send("T", "TBW102", "master", 4, 0)
        send(self.box, body=b"1", tag="a", keys="k")
        send(self.box, body=b"2", tag="b")
        master = self.box.kernel.store
        header = pull_header("T", 0, hold_ms=0)
        self.assertEqual(slave.ask(RequestCode.PULL_MESSAGE, header).body, b"")
        data = b"".join(message for message in (
            master.look_message(offset) for offset in self.offsets()) if message is not None)
        slave.kernel.store.raw.append(0, data)
        slave.kernel.store.dispatch.step()
        self.assertEqual(slave.kernel.store.commit_log.max_offset, master.commit_log.max_offset)
        self.assertEqual(bodies(slave), [b"1", b"2"])
        self.assertEqual(bodies(slave, expression="b"), [b"2"])
        self.assertRaises(BrokerError, slave.kernel.store.raw.append, 0, data)

    def offsets(self) -> list[int]:
        """Return the positions of the master's messages."""
        return [m.physical_offset for m in records_of(pull(self.box).body)]


class SlaveRefusesWritesTests(KernelTestCase):
    """The role and the broker id; a slave refuses writes."""

    def test_sends_and_a_plugins_own_appends_are_refused_with_code_14(self) -> None:
        """Sends and a plugin's own appends are refused with code 14 and Apache's words."""
        box = self.make_box(settings={"brokerRole": "SLAVE", "brokerId": "1"})
        self.assertEqual((box.kernel.is_slave, box.kernel.broker_id), (True, 1))
        reply = send(box)
        self.assertEqual(reply.code, ResponseCode.SERVICE_NOT_AVAILABLE)
        self.assertEqual(
            reply.remark, "service not available now. It may be caused by one of the following "
            "reasons: the broker's disk is full [CL:  0.10 CQ:  0.10 INDEX:  0.10], messages are "
            "put to the slave, message store has been shut down, etc.")
        refusals = box.kernel.append([record(box), record(box)])
        self.assertEqual([refusals[index].response_code for index in (0, 1)],
                         [ResponseCode.SERVICE_NOT_AVAILABLE] * 2)

    def test_change_of_role(self) -> None:
        """A slave that becomes master accepts writes; plugins are informed, also at the start."""
        roles: list[tuple[str, int]] = []
        plugin = Plugin(on_role_change=lambda role, broker_id: roles.append((role, broker_id)))
        box = self.make_box(plugin=plugin)
        box.kernel.set_role("SLAVE", 2)
        self.assertEqual(send(box).code, ResponseCode.SERVICE_NOT_AVAILABLE)
        box.kernel.set_role("SYNC_MASTER", 2)
        self.assertEqual(send(box).code, ResponseCode.SUCCESS)
        self.assertEqual(roles, [("ASYNC_MASTER", 0), ("SLAVE", 2), ("SYNC_MASTER", 0)])

    def test_a_slave_is_promoted_over_half_a_record(self) -> None:
        """The incomplete record is cut; a message that is sent afterwards survives a kill."""
        send(self.box, body=b"1")
        send(self.box, body=b"2")
        data = self.box.kernel.store.raw.read(0, 10_000)
        disk = FaultyDisk()
        slave = self.make_box(settings={"brokerRole": "SLAVE", "brokerId": "1"}, disk=disk)
        slave.kernel.topic_config.create_in_send("T", "TBW102", "master", 4, 0)
        slave.kernel.store.raw.append(0, data[:-5])
        self.assertRaises(StoreError, slave.kernel.set_role, "ASYNC_MASTER", 0)
        self.assertTrue(slave.kernel.is_slave)
        told: list[str] = []
        slave.host.on_topic_change.append(lambda: told.append(slave.kernel.role))
        self.change_role(slave, "ASYNC_MASTER", 0)
        self.assertEqual(told, ["ASYNC_MASTER"])
        self.assertEqual(bodies(slave), [b"1"])
        self.assertEqual(send(slave, body=b"3").code, ResponseCode.SUCCESS)
        slave.kernel.store.close()
        disk.forget_locks()
        again = self.make_box(disk=disk)
        self.assertEqual(bodies(again), [b"1", b"3"])

    def test_a_slave_that_cannot_read_its_log_takes_nothing_more(self) -> None:
        """It logs the fault once, is unhealthy, and is not a master before a start has cut the log.

        Otherwise it would acknowledge messages that the next start cuts.
        """
        ends = []
        for body in (b"1", b"2", b"3"):
            send(self.box, body=body)
            ends.append(self.box.kernel.store.commit_log.max_offset)
        data = bytearray(self.box.kernel.store.raw.read(0, 10_000))
        # A bit of the body's length, as a disk may flip it: the sizes do not add up then.
        data[data.index(b"\0\0\0\x012") + 3] ^= 0x10
        disk = FaultyDisk()
        slave = self.make_box(settings={"brokerRole": "SLAVE", "brokerId": "1"}, disk=disk)
        slave.kernel.topic_config.create_in_send("T", "TBW102", "master", 4, 0)
        store = slave.kernel.store
        # They were whole when they came: others are refused.
        with mock.patch.object(store.raw, "_require_sound"):
            store.raw.append(0, bytes(data[:ends[1]]))
        with capturedLogs() as lines:
            for _ in range(5):
                store.dispatch.step()
        fault = slave.kernel.health_checks["store"]()
        self.assertEqual([formatEvent(line) for line in lines], [fault])
        self.assertIn(f"the message at {ends[0]} of the commit log cannot be read: ", fault)
        self.assertRaises(StoreError, store.raw.append, ends[1], bytes(data[ends[1]:]))
        change = ensureDeferred(slave.kernel.change_role("ASYNC_MASTER", 0))
        self.assertIn(fault, str(self.failureResultOf(change, StoreError).value))
        self.assertTrue(slave.kernel.is_slave)
        store.close()
        disk.forget_locks()
        again = self.make_box(disk=disk)
        self.assertEqual(bodies(again), [b"1"])
        self.assertEqual(send(again, body=b"4").code, ResponseCode.SUCCESS)
        self.assertEqual(bodies(again), [b"1", b"4"])

    def test_a_slave_whose_disk_cannot_be_read_takes_nothing_more(self) -> None:
        """It logs the fault once; otherwise it would acknowledge messages that cannot be read."""
        send(self.box)
        data = self.box.kernel.store.raw.read(0, 10_000)
        slave = self.make_box(settings={"brokerRole": "SLAVE", "brokerId": "1"})
        slave.kernel.topic_config.create_in_send("T", "TBW102", "master", 4, 0)
        store = slave.kernel.store
        store.raw.append(0, data)

        def peek(offset: int, size: int) -> bytes:
            raise OSError(errno.EIO, "input/output error", "commitlog")

        self.patch(store.commit_log, "peek", peek)
        with capturedLogs() as lines:
            for _ in range(5):
                store.dispatch.step()
        fault = slave.kernel.health_checks["store"]()
        self.assertEqual([formatEvent(line) for line in lines], [fault])
        self.assertIn("the commit log cannot be read at 0: ", fault)
        self.assertIn("input/output error", fault)
        self.assertRaises(StoreError, store.raw.append, len(data), data)

    def test_a_slave_whose_disk_failed_is_not_healthy(self) -> None:
        """It is not made a master either."""
        disk = FaultyDisk()
        slave = self.make_box(settings={"brokerRole": "SLAVE", "brokerId": "1"}, disk=disk)
        check = slave.kernel.health_checks["store"]
        self.assertEqual(check(), "")
        slave.kernel.store.flush.failure = StoreError("the commit log cannot be flushed")
        self.assertEqual(check(), "the commit log cannot be flushed")
        change = ensureDeferred(slave.kernel.change_role("ASYNC_MASTER", 0))
        self.failureResultOf(change, StoreError)
        self.assertTrue(slave.kernel.is_slave)

    def test_a_master_flushes_before_it_is_a_slave(self) -> None:
        """If the flush fails, it remains a master."""
        disk = FaultyDisk()
        box = self.make_box(disk=disk)
        send(box)
        self.change_role(box, "SLAVE", 2)
        store = box.kernel.store
        self.assertEqual((box.kernel.broker_id, store.writable), (2, False))
        self.assertEqual(store.commit_log.flushed_offset, store.commit_log.max_offset)
        self.change_role(box, "SYNC_MASTER", 2)
        self.assertEqual((box.kernel.broker_id, send(box).code), (0, ResponseCode.SUCCESS))
        disk.fail_sync_in = 1
        changed = ensureDeferred(box.kernel.change_role("SLAVE", 2))
        self.failureResultOf(changed, StoreError)
        self.flushLoggedErrors(OSError)
        self.assertEqual((box.kernel.role, store.writable), ("SYNC_MASTER", True))
        disk.fail_sync_in = None

    def test_stepping_down_takes_one_turn(self) -> None:
        """A sync that hangs or fails neither delays it nor makes the broker a master again."""
        syncs: list[Callable[[Failure | None], None]] = []
        roles: list[tuple[str, int, bool]] = []

        def run_sync(job: Callable[[], object], done: Callable[[Failure | None], None]) -> None:
            job()
            syncs.append(done)

        for error in (None, StoreError("the commit log cannot be flushed")):
            box = self.make_box()
            store = box.kernel.store

            def role_changed(role: str, broker_id: int, store: MessageStore = store) -> None:
                roles.append((role, broker_id, store.writable))

            self.patch(box.kernel.hooks, "role_changed", role_changed)
            self.patch(store.flush, "_run_sync", run_sync)
            send(box)
            slow = ensureDeferred(box.kernel.change_role("SLAVE", 3))
            registered: list[None] = []
            box.host.on_topic_change.append(partial(registered.append, None))
            box.kernel.step_down(2)
            self.assertEqual((box.kernel.broker_id, roles.pop()), (2, ("SLAVE", 2, False)))
            self.assertEqual(send(box).code, ResponseCode.SERVICE_NOT_AVAILABLE)
            if error is None:
                syncs.pop()(None)
            else:
                store.flush.give_up(error)
            self.failureResultOf(slow, StoreError)
            self.assertEqual((box.kernel.broker_id, store.writable, registered), (2, False, []))

    def test_a_promotion_ends_when_the_broker_steps_down(self) -> None:
        """It remains a slave, even if the promotion was cutting its log."""
        box = self.make_box(settings={"brokerRole": "SLAVE", "brokerId": "1"})
        cut: Deferred[None] = Deferred()
        self.patch(box.kernel.store.log_cut, "cut_tail", lambda: cut)
        change = ensureDeferred(box.kernel.change_role("ASYNC_MASTER", 0))
        box.kernel.step_down(1)
        cut.callback(None)
        self.failureResultOf(change, StoreError)
        self.assertEqual((box.kernel.role, box.kernel.store.writable), ("SLAVE", False))

    def change_role(self, box: KernelBox, role: str, broker_id: int) -> None:
        self.successResultOf(ensureDeferred(box.kernel.change_role(role, broker_id)))


class InternalAppendTests(KernelTestCase):
    """The internal append for plugins; ``before_append`` may redirect or refuse records."""

    def test_a_plugins_append_is_readable_and_gets_its_offsets(self) -> None:
        """An appended record can be read as a sent one; its offsets are filled in."""
        send(self.box, body=b"1")
        own = record(self.box, body=b"2", TAGS="a")
        self.assertEqual(self.box.kernel.append([own]), {})
        self.assertEqual((own.queue_offset, own.size > 0), (1, True))
        self.assertGreater(own.next_offset, own.physical_offset)
        self.assertEqual(bodies(self.box), [b"1", b"2"])
        self.assertEqual(bodies(self.box, expression="a"), [b"2"])
        self.assertEqual(self.box.kernel.append([]), {})

    def test_a_record_whose_topic_and_queue_a_plugin_changes_goes_there(self) -> None:
        """The record is stored there; its sender does not learn of it."""
        def redirect(records: Sequence[MessageRecord]) -> None:
            for each in records:
                if "DELAY" in each.properties:
                    each.topic, each.queue_id = "SCHEDULE", 3

        box = self.make_box(plugin=Plugin(before_append=redirect,
                                          claim_properties=lambda: ("DELAY",)))
        box.kernel.topic_config.create_in_send("SCHEDULE", "TBW102", "here", 8, 0)
        send(box, body=b"now")
        reply = send(box, body=b"later", properties={"DELAY": "3"})
        self.assertEqual(reply.header(SendMessageResponseHeader).queue_id, 0)
        own = record(box, body=b"own", DELAY="1")
        box.kernel.append([own])
        self.assertEqual(bodies(box), [b"now"])
        self.assertEqual(bodies(box, "SCHEDULE", queue_id=3), [b"later", b"own"])
        self.assertEqual(own.queue_offset, 1)

    def test_a_plugins_refusal_concerns_its_record_alone(self) -> None:
        """A plugin's refusal concerns its record alone, whoever appends."""
        def refuse(records: Sequence[MessageRecord]) -> Mapping[int, BrokerError]:
            return {index: RequestRefused(ResponseCode.NO_PERMISSION, "not this one")
                    for index, each in enumerate(records) if each.body == b"bad"}

        box = self.make_box(plugin=Plugin(before_append=refuse))
        reply = send(box, body=b"bad")
        self.assertEqual((reply.code, reply.remark), (ResponseCode.NO_PERMISSION, "not this one"))
        records = [record(box, body=body) for body in (b"1", b"bad", b"2")]
        refusals = box.kernel.append(records)
        self.assertEqual(list(refusals), [1])
        self.assertEqual(bodies(box), [b"1", b"2"])

    def test_one_bad_record(self) -> None:
        """An invalid record does not affect the others of its batch."""
        records = [record(self.box, body=b"1"), record(self.box, body=b"2", long="x" * 40_000),
                   record(self.box, body=b"3")]
        refusals = self.box.kernel.append(records)
        self.assertEqual(list(refusals), [1])
        self.assertIsInstance(refusals[1], MessageIllegal)
        send(self.box, body=b"4")
        self.assertEqual(bodies(self.box), [b"1", b"3", b"4"])

    def test_records_of_one_owner_are_stored_all_or_none(self) -> None:
        """If one record is refused, by whatever cause, the others of its owner are refused too."""
        def refuse(records: Sequence[MessageRecord]) -> Mapping[int, BrokerError]:
            return {index: RequestRefused(ResponseCode.NO_PERMISSION, "no")
                    for index, each in enumerate(records) if each.body == b"bad"}

        box = self.make_box(plugin=Plugin(before_append=refuse))
        long = "x" * 40_000
        rows = [(0, b"1", ""), (1, b"2", ""), (1, b"bad", ""), (2, b"3", long), (2, b"4", ""),
                (3, b"5", "")]
        refusals = box.kernel.append([record(box, body=body, p=text) for _, body, text in rows],
                                     [owner for owner, _, _ in rows])
        self.assertEqual(sorted(refusals), [1, 2, 3, 4])
        send(box, body=b"6")
        self.assertEqual(bodies(box), [b"1", b"5", b"6"])

    def test_full_disk(self) -> None:
        """A full disk refuses all records, and reads continue."""
        disk = FaultyDisk()
        box = self.make_box(disk=disk)
        send(box, body=b"1")
        disk.room_bytes = 0
        refusals = box.kernel.append([record(box), record(box)])
        self.assertEqual({error.response_code for error in refusals.values()},
                         {ResponseCode.SERVICE_NOT_AVAILABLE})
        self.assertEqual(bodies(box), [b"1"])
        disk.room_bytes = None


class DispatchFilterTests(KernelTestCase):
    """The dispatch asks whether a record enters a queue."""

    def test_a_record_that_does_not_enter_is_stored(self) -> None:
        """Such a record is stored, gets no queue offset, and wakes no pull."""
        arrived: list[bytes] = []
        dispatched: list[bytes] = []
        box = self.make_box(plugin=Plugin(
            on_dispatch=lambda records: dispatched.extend(r.body for r in records),
            on_message_arrival=lambda records: arrived.extend(r.body for r in records)))
        box.kernel.store.dispatch.filter = lambda each: "HIDDEN" not in each.properties
        send(box, body=b"1")
        waiting = hold(box, offset=1)
        hidden = record(box, body=b"hidden", HIDDEN="1")
        self.assertEqual(box.kernel.append([hidden]), {})
        self.assertEqual(box.late_replies(waiting), [])
        send(box, body=b"2")
        self.assertEqual(bodies(box), [b"1", b"2"])
        self.assertEqual(dispatched, [b"1", b"hidden", b"2"])
        self.assertEqual(arrived, [b"1", b"2"])
        stored = box.kernel.store.look_message(hidden.physical_offset)
        assert stored is not None
        self.assertEqual(records_of(stored)[0].body, b"hidden")


class FilterSeamTests(KernelTestCase):
    """A filter on both sides of a read: the queue entry, then the record."""

    def test_both_sides(self) -> None:
        """The entry is filtered first; the record is read only if the entry passes."""
        class Watching:
            entries: list[int] = []  # noqa: RUF012
            records: list[bytes] = []  # noqa: RUF012

            def match_queue_entry(
                self, tags_code: int, store_time: int | None = None, bitmap: bytes | None = None
            ) -> bool:
                self.entries.append(tags_code)
                return tags_code != tags_code_of["skip"]

            def match_record(self, data: bytes | memoryview) -> bool:
                [message] = records_of(bytes(data))
                self.records.append(message.body)
                return message.body != b"no"

        tags_code_of = {tag: tags_code(tag) for tag in ("skip", "look")}
        for body, tag in ((b"1", "skip"), (b"no", "look"), (b"yes", "look")):
            send(self.box, body=body, tag=tag)
        watching = Watching()
        result = self.box.kernel.store.get_message("T", 0, 0, 32, watching)
        self.assertEqual([records_of(bytes(m))[0].body for m in result.messages], [b"yes"])
        self.assertEqual(watching.entries, [tags_code_of[tag] for tag in ("skip", "look", "look")])
        self.assertEqual(watching.records, [b"no", b"yes"])
        self.assertEqual(result.next_begin_offset, 3)


class AcknowledgementChainTests(KernelTestCase):
    """An acknowledgement that waits for the flush, and for a replica behind it."""

    def test_replica_stage(self) -> None:
        """A send is answered when the replica has it; others are not held back meanwhile."""
        waiting: list[tuple[int, Deferred[None]]] = []

        def replica(offset: int) -> Deferred[None]:
            waiting.append((offset, Deferred()))
            return waiting[-1][1]

        kernel = self.box.kernel
        kernel.acknowledgement.stages.append(Stage(replica, ResponseCode.FLUSH_SLAVE_TIMEOUT))
        peer = self.box.peer()
        header = send_header("T", self.box.now_ms)
        self.assertIsNone(self.box.send(peer, RequestCode.SEND_MESSAGE_V2, header, b"1"))
        self.assertGreater(peer.held_bytes, 0)
        unsafe = send(self.box, body=b"2", properties={"WAIT": "false"})
        self.assertEqual(unsafe.code, ResponseCode.SUCCESS)
        self.assertEqual(bodies(self.box), [b"1", b"2"])
        [(offset, done)] = waiting
        self.assertEqual(offset, records_of(pull(self.box).body)[1].physical_offset)
        done.callback(None)
        [reply] = self.box.late_replies(peer)
        self.assertEqual(reply.code, ResponseCode.SUCCESS)
        self.assertEqual(peer.held_bytes, 0)

    def test_sends_of_one_read_wait_for_the_last_of_them(self) -> None:
        """Sends with and without WAIT wait for the end of the last record of their read."""
        asked: list[int] = []

        def replica(offset: int) -> Deferred[None]:
            asked.append(offset)
            return Deferred()

        kernel = self.box.kernel
        send(self.box)
        kernel.acknowledgement.stages.append(Stage(replica, ResponseCode.FLUSH_SLAVE_TIMEOUT))
        for properties in ({"UNIQ_KEY": "U"}, {"UNIQ_KEY": "U", "WAIT": "true"}):
            header = send_header("T", self.box.now_ms, properties=properties)
            frames = b"".join(encode_request(RequestCode.SEND_MESSAGE_V2, number, header, b"x")
                              for number in range(3))
            ready = kernel.dispatcher.execute(
                self.box.peer(), FrameDecoder().feed(frames), self.box.now_ms)
            self.assertEqual((ready, asked.pop(), asked),
                             ([], kernel.store.commit_log.max_offset, []))

    def test_a_mandatory_stage(self) -> None:
        """Messages with WAIT=false wait for it alone, single ones as well as batches."""
        majority: Deferred[None] = Deferred()
        self.box.kernel.acknowledgement.stages += [
            Stage(lambda offset: majority, ResponseCode.SYSTEM_ERROR, is_mandatory=True),
            Stage(lambda offset: Deferred(), ResponseCode.FLUSH_SLAVE_TIMEOUT)]
        hurried = {"WAIT": "false"}
        for code, body in ((RequestCode.SEND_MESSAGE_V2, b"1"),
                           (RequestCode.SEND_BATCH_MESSAGE, encode_batch([(0, b"2", "")]))):
            majority, peer = Deferred(), self.box.peer()
            waits, does_not = (send_header("T", 1, properties=properties)
                               for properties in ({}, hurried))
            does_not.batch = code is RequestCode.SEND_BATCH_MESSAGE
            self.box.send(peer, RequestCode.SEND_MESSAGE_V2, waits, b"0")
            self.assertIsNone(self.box.send(peer, code, does_not, body))
            self.assertEqual(self.box.late_replies(peer), [])
            majority.callback(None)
            [reply] = self.box.late_replies(peer)
            self.assertEqual(reply.code, ResponseCode.SUCCESS)

    def test_a_mandatory_stage_that_refuses(self) -> None:
        """The refusal is the reply also to a message with WAIT=false."""
        refusal: Deferred[None] = Deferred()
        self.box.kernel.acknowledgement.stages.append(
            Stage(lambda offset: refusal, ResponseCode.SYSTEM_ERROR, is_mandatory=True))
        peer = self.box.peer()
        header = send_header("T", 1, properties={"WAIT": "false"})
        self.box.send(peer, RequestCode.SEND_MESSAGE_V2, header, b"1")
        refusal.errback(RequestRefused(ResponseCode.SYSTEM_ERROR, "no majority"))
        [reply] = self.box.late_replies(peer)
        self.assertEqual((reply.code, reply.remark), (ResponseCode.SYSTEM_ERROR, "no majority"))

    def test_late_replica(self) -> None:
        """After the time-out the client gets an error; the message is stored."""
        kernel = self.box.kernel
        kernel.acknowledgement.stages.append(
            Stage(lambda offset: Deferred(), ResponseCode.FLUSH_SLAVE_TIMEOUT))
        peer = self.box.peer()
        self.box.send(peer, RequestCode.SEND_MESSAGE_V2, send_header("T", 1), b"1")
        self.box.now_ms += kernel.store.settings.sync_flush_timeout_ms
        kernel.acknowledgement.expire(self.box.now_ms)
        [reply] = self.box.late_replies(peer)
        self.assertEqual(reply.code, ResponseCode.FLUSH_SLAVE_TIMEOUT)
        self.assertEqual(reply.header(SendMessageResponseHeader).queue_offset, 0)
        self.assertEqual(bodies(self.box), [b"1"])

    def test_sync_flush(self) -> None:
        """Under SYNC_FLUSH an acknowledged message is on the disk."""
        box = self.make_box(settings={"flushDiskType": "SYNC_FLUSH"})
        peer = box.peer()
        replies = [box.send(peer, RequestCode.SEND_MESSAGE_V2, send_header("T", 1), b"1")]
        replies = [r for r in replies if r is not None] + box.late_replies(peer)
        self.assertEqual([reply.code for reply in replies], [ResponseCode.SUCCESS])
        log = box.kernel.store.commit_log
        self.assertEqual(log.flushed_offset, log.max_offset)


class LiveChannelTests(KernelTestCase):
    """The registry of live channels as handlers and plugins use it."""

    def test_a_plugin_asks_clients(self) -> None:
        """A handler of a plugin relays a request to another client and answers with its reply."""
        def relay(request: Request[Any]) -> Deferred[Reply]:
            other = box.kernel.channels.get(int(request.body))
            assert other is not None
            reply = other.call(RequestCode.GET_CONSUMER_RUNNING_INFO, None, timeout_ms=1000)
            return reply.addCallback(lambda command: Reply(command.code, body=command.body))

        box = self.make_box(plugin=Plugin(
            register_request_handlers=lambda: [RequestHandler(31_000, relay)]))
        tool, consumer = box.peer(), box.peer()
        self.assertEqual(len(box.kernel.channels), 2)
        self.assertIsNone(box.send(tool, 31_000, None, str(consumer.channel_id).encode()))
        [asked] = consumer.requests
        assert asked.reply is not None
        asked.reply.callback(RemotingCommand(ResponseCode.SUCCESS, body=b"running"))
        [reply] = box.late_replies(tool)
        self.assertEqual((reply.code, reply.body), (ResponseCode.SUCCESS, b"running"))


class HeldPollsCappedTests(KernelTestCase):
    """The number of waiting pulls is limited."""

    def test_one_pull_beyond_the_cap_is_answered_at_once(self) -> None:
        """It gets the response of a pull whose time is up; when one ends, another may wait."""
        self.patch(pull_hold, "HELD_PULLS_MAX", 2)
        self.patch(pull_hold, "HELD_PULLS_FREE", 0)
        send(self.box)
        first = hold(self.box, offset=1)
        hold(self.box, offset=1)
        reply = self.box.ask(RequestCode.PULL_MESSAGE, pull_header("T", 1, hold_ms=15_000))
        self.assertEqual(reply.code, ResponseCode.PULL_NOT_FOUND)
        first.active = False
        self.box.kernel.pull_hold.check(self.box.now_ms)
        hold(self.box, offset=1)
        self.assertEqual(self.box.kernel.pull_hold.count, 2)


class SlidingWindowStatisticsTests(KernelTestCase):
    """Statistics in windows of 10, 60 and 600 s, by topic and by group."""

    def sample_for(self, seconds: int, messages_a_second: int) -> None:
        """Let time pass with traffic."""
        [task] = [t for t in self.box.kernel.periodic_tasks if t.name == "sample statistics"]
        for _ in range(seconds):
            for _ in range(messages_a_second):
                send(self.box)
            self.box.now_ms += 1000
            task.run(self.box.now_ms)

    def test_each_window_forgets_older_counts(self) -> None:
        """Each window forgets the counts that are older than itself."""
        stats = self.box.kernel.stats
        self.sample_for(20, 5)
        self.sample_for(100, 1)
        now = self.box.now_ms
        per_second = {seconds: stats.window(seconds, now, "TOPIC_PUT", "T").tps
                      for seconds in (10, 60, 600)}
        self.assertApproximates(per_second[10], 1, 0.2)
        self.assertApproximates(per_second[60], 1, 0.2)
        self.assertApproximates(per_second[600], 200 / 120, 0.2)
        self.assertEqual(stats.put_total, 200)

    def test_by_group(self) -> None:
        """The messages and bytes that a group gets are counted for it."""
        self.sample_for(2, 3)
        reply = pull(self.box, group="G")
        self.sample_for(1, 0)
        window = self.box.kernel.stats.window(10, self.box.now_ms, "GROUP_GET", "T", "G")
        self.assertEqual((window.count, window.size), (6, len(reply.body)))
        self.assertEqual(self.box.kernel.stats.window(
            10, self.box.now_ms, "GROUP_GET", "T", "other").count, 0)


class DataVersionTests(KernelTestCase):
    """A data version for each table, and files that are replaced whole."""

    def test_a_change_of_a_table_counts_its_version_up(self) -> None:
        """A change of a table counts its version up, of that table alone."""
        kernel = self.box.kernel
        before = [kernel.topic_config.data_version.counter,
                  kernel.subscription_group.data_version.counter]
        send(self.box, "new topic".replace(" ", "_"))
        pull(self.box, "new_topic", group="new_group")
        pull(self.box, "new_topic", group="new_group")
        after = [kernel.topic_config.data_version.counter,
                 kernel.subscription_group.data_version.counter]
        self.assertEqual(after, [before[0] + 1, before[1] + 1])

    def test_tables_are_found_again_after_a_restart(self) -> None:
        """Tables are loaded again after a restart; a damaged file is replaced by its backup."""
        disk = self.box.disk
        saves, now_ms = self.box.kernel.saves, self.box.now_ms
        send(self.box, "T1")
        pull(self.box, "T1", group="G1")
        saves.step(now_ms)
        send(self.box, "T2")
        self.box.kernel.consumer_offset.commit("host", "G", "T1", 0, 7)
        pull(self.box, "T1", group="G2")
        saves.step(now_ms)
        folder = "/store/config"
        for name in ("topics.json", "subscriptionGroup.json"):
            self.assertTrue(disk.exists(f"{folder}/{name}.bak"), msg=name)
        disk.write_file(f"{folder}/topics.json", b"{torn")
        disk.write_file(f"{folder}/subscriptionGroup.json", b"")
        disk.forget_locks()  # type: ignore[attr-defined]
        again = KernelBox(disk=disk)
        self.assertIn("T1", again.kernel.topic_config.table)
        self.assertNotIn("T2", again.kernel.topic_config.table)
        self.assertIn("G1", again.kernel.subscription_group.table)

    def test_a_clean_stop_saves_every_table(self) -> None:
        """Each table has its own file in the folder ``config``, and the next start reads it."""
        box = self.make_box()
        send(box, "T")
        pull(box, "T", group="G")
        box.kernel.consumer_offset.commit("host", "G", "T", 0, 7)
        box.stop()
        for name, key in (("topics.json", b'"T"'), ("subscriptionGroup.json", b'"G"'),
                          ("consumerOffset.json", b'"T@G"')):
            self.assertIn(key, box.disk.read_file(f"/store/config/{name}"), msg=name)
        again = self.make_box(disk=box.disk).kernel
        self.assertIn("T", again.topic_config.table)
        self.assertIn("G", again.subscription_group.table)
        self.assertEqual(again.consumer_offset.query("G", "T", 0), 7)

    def test_full_disk(self) -> None:
        """A change that cannot be saved takes effect, and is saved later."""
        disk = FaultyDisk()
        box = self.make_box(disk=disk)
        send(box)
        disk.room_bytes = 0
        box.kernel.consumer_offset.commit("host", "G", "T", 0, 1)
        self.assertEqual(bodies(box, group="new"), [b"x"])
        self.save_offsets(box)
        box.kernel.saves.step(box.now_ms)
        self.assertEqual(len(box.kernel.tables.unsaved), 2)
        disk.room_bytes = None
        self.save_offsets(box)
        self.assertEqual(box.kernel.tables.unsaved, [])
        self.assertIn(b'"T@G"', disk.read_file("/store/config/consumerOffset.json"))
        self.assertIn(b'"new"', disk.read_file("/store/config/subscriptionGroup.json"))

    @staticmethod
    def save_offsets(box: KernelBox) -> None:
        [task] = [t for t in box.kernel.periodic_tasks if t.name == "save consumer offsets"]
        task.run(box.now_ms)


class OpenQueueFilesTests(KernelTestCase):
    """Queue files behind an LRU of open ones, so that many topics work."""

    def test_more_queues_than_open_files(self) -> None:
        """Queues whose files were closed can be written and read as the others."""
        self.patch(queue_files, "OPEN_QUEUE_FILES_MAX", 8)
        box = self.make_box()
        for turn in range(3):
            for number in range(50):
                send(box, f"T{number}", f"{number}-{turn}".encode())
            box.now_ms += 60_000
            for _ in range(20):
                box.kernel.store.flush_step(box.now_ms)
        for number in range(50):
            self.assertEqual(bodies(box, f"T{number}"),
                             [f"{number}-{turn}".encode() for turn in range(3)])
