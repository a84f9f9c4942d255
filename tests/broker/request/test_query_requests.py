"""Messages that are found by key and by position: requests 12 and 33."""

from __future__ import annotations

import struct
from collections.abc import Generator
from typing import Any
from unittest import mock

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.scheduling.scheduler import SLICE_MS
from twistmq.broker.store import index_files
from twistmq.broker.testing.kernel import KernelBox
from twistmq.broker.testing.raw_client import records_of, send_header
from twistmq.broker.testing.store import message
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import RemotingCommand
from twistmq.protocol.headers.query import (
    QueryMessageRequestHeader,
    QueryMessageResponseHeader,
    ViewMessageRequestHeader,
)
from twistmq.protocol.record import decode_record


class QueryCase(SynchronousTestCase):
    """A broker with nine messages: three keys, each message with a unique key."""

    def setUp(self) -> None:
        self.box = KernelBox(settings={"defaultQueryMaxNum": "2"})
        self.addCleanup(self.box.stop)
        self.begin_ms = self.box.now_ms
        self.records = []
        for number in range(9):
            record = message("T", b"%d" % number, keys=f"k{number % 3}", unique_key=f"u{number}")
            self.box.kernel.append([record])
            self.records.append(record)
            self.box.now_ms += 1000


class KeyTests(QueryCase):
    """The request 12."""

    def query(self, key: str, max_num: int = 32, **fields: Any) -> RemotingCommand:
        unique = fields.pop("unique", None)
        header = QueryMessageRequestHeader(**{
            "topic": "T", "key": key, "max_num": max_num, "begin_timestamp": 0,
            "end_timestamp": self.box.now_ms, **fields})
        reply = self.box.send(
            self.box.peer(), RequestCode.QUERY_MESSAGE, header,
            extra_fields=None if unique is None else {"_UNIQUE_KEY_QUERY": unique})
        assert reply is not None
        return reply

    def found(self, key: str, max_num: int = 32, **fields: Any) -> list[bytes]:
        reply = self.query(key, max_num, **fields)
        self.assertEqual(reply.code, ResponseCode.SUCCESS, reply.remark)
        return sorted(record.body for record in records_of(reply.body))

    def test_a_query_by_key_finds_all_messages_with_the_key(self) -> None:
        """The response has all messages with the key, and the progress of the index."""
        self.assertEqual(self.found("k1"), [b"1", b"4", b"7"])
        header = self.query("k1").header(QueryMessageResponseHeader)
        self.assertEqual(header, QueryMessageResponseHeader(
            index_last_update_timestamp=self.begin_ms + 8000,
            index_last_update_phyoffset=self.records[-1].physical_offset))

    def test_as_many_as_asked_for(self) -> None:
        """The newest ones are returned."""
        self.assertEqual(self.found("k1", 2), [b"4", b"7"])

    def test_within_a_time(self) -> None:
        """Both ends of the time span belong to it."""
        self.assertEqual(self.found("k1", begin_timestamp=self.begin_ms + 4000,
                                    end_timestamp=self.begin_ms + 6000), [b"4"])

    def test_by_unique_key(self) -> None:
        """The broker decides how many are returned."""
        self.assertEqual(self.found("u5", 0, unique="true"), [b"5"])
        self.assertEqual(len(self.found("k1", 32, unique="true")), 2)
        self.assertEqual(self.found("u5", 1, unique="false"), [b"5"])

    def test_nothing_found(self) -> None:
        """The code, remark and header are Apache's; a limit of 0 finds nothing."""
        for key, max_num, fields in (
            ("none", 32, {}), ("k1", 0, {}), ("k1", -1, {}), ("", 32, {}),
            ("k1", 32, {"topic": "U"}), ("k1", 32, {"end_timestamp": 5}),
            ("k1", 32, {"begin_timestamp": 2**62, "end_timestamp": 2**63 - 1}),
        ):
            reply = self.query(key, max_num, **fields)
            self.assertEqual((reply.code, reply.remark), (
                ResponseCode.QUERY_NOT_FOUND,
                "can not find message, maybe time range not correct"), (key, max_num, fields))
            self.assertEqual(reply.header(QueryMessageResponseHeader), QueryMessageResponseHeader(
                index_last_update_timestamp=0, index_last_update_phyoffset=0))


class LongChainTests(QueryCase):
    """A key with many items."""

    def test_others_have_their_turn(self) -> None:
        """The items are examined in slices, while others are served."""
        kernel = self.box.kernel
        for number in range(60):
            kernel.append([message("T", b"%d" % number, keys="long", unique_key=f"l{number}")])
        self.patch(index_files, "_ITEMS_AT_ONCE", 1)
        querying = kernel.store.reader.querying

        def slow(*arguments: Any) -> Generator[None, None, Any]:
            work = querying(*arguments)
            while True:
                try:
                    next(work)
                except StopIteration as done:
                    return done.value
                self.box.now_ms += 1
                yield

        reader = mock.Mock(wraps=kernel.store.reader)
        reader.querying = slow
        self.patch(kernel.store, "reader", reader)
        peer, header = self.box.peer(), QueryMessageRequestHeader(
            topic="T", key="long", max_num=64, begin_timestamp=0, end_timestamp=2**62)
        self.assertIsNone(self.box.send(peer, RequestCode.QUERY_MESSAGE, header))
        place = self.box.ask(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader(
            offset=self.records[0].physical_offset))
        self.assertEqual(place.code, ResponseCode.SUCCESS)
        while not peer.written:
            before_ms = self.box.now_ms
            kernel.background.step(before_ms)
            self.assertLessEqual(self.box.now_ms - before_ms, SLICE_MS)
        reply, = self.box.late_replies(peer)
        found = records_of(reply.body)
        self.assertEqual([record.body for record in found], [b"%d" % n for n in range(60)])


class PlaceTests(QueryCase):
    """The request 33."""

    def view(self, offset: int) -> RemotingCommand:
        return self.box.ask(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader(offset=offset))

    def test_only_the_record_at_the_offset_is_returned(self) -> None:
        """The response has only the record at the position."""
        for number in (0, 4, 8):
            reply = self.view(self.records[number].physical_offset)
            self.assertEqual(reply.code, ResponseCode.SUCCESS, reply.remark)
            record = decode_record(reply.body)
            self.assertEqual((record.body, record.size), (b"%d" % number, len(reply.body)))

    def test_no_message_there(self) -> None:
        """Between messages, behind them, before the log: refused with Apache's remark."""
        end = self.records[-1].next_offset
        for offset in (3, self.records[1].physical_offset - 1, end, 2**40, -1, -2**63):
            reply = self.view(offset)
            self.assertEqual((reply.code, reply.remark, reply.body), (
                ResponseCode.SYSTEM_ERROR,
                f"can not find message by the offset, {offset}", b""), offset)

    def test_record_in_a_body(self) -> None:
        """A record that a client put into a body is not found."""
        copy = self.view(self.records[0].physical_offset).body
        short = struct.pack(">i", 5) + copy[4:]
        for forged in (copy, short):
            end = self.box.kernel.store.dispatch.confirm_offset
            reply = self.box.ask(RequestCode.SEND_MESSAGE_V2,
                                 send_header("T", self.box.now_ms), forged)
            self.assertEqual(reply.code, ResponseCode.SUCCESS)
            stored = self.view(end).body
            self.assertIn(forged, stored)
            self.assertEqual(self.view(end + stored.index(forged)).code,
                             ResponseCode.SYSTEM_ERROR)

    def test_short_record(self) -> None:
        """A record that claims to be shorter than any record is refused."""
        place = self.records[0].physical_offset
        log = self.box.kernel.store.commit_log
        self.patch(log, "read_record", lambda offset: struct.pack(">i", 5) + b"\xda")
        self.assertEqual(self.view(place).code, ResponseCode.SYSTEM_ERROR)
