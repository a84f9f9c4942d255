"""The bodies of a DLedger group, as Apache's members write and read them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from msgspec import UNSET
from twisted.trial.unittest import SynchronousTestCase

from twistmq.protocol.bodies import dledger
from twistmq.protocol.bodies.dledger import (
    ANSWER_CODE,
    DLedgerBody,
    DLedgerEntry,
    PushEntryRequest,
    PushEntryResponse,
    VoteRequest,
    VoteResponse,
)
from twistmq.protocol.codes import DLedgerRequestCode
from twistmq.protocol.command import RemotingCommand, decode_command
from twistmq.protocol.errors import WireError
from twistmq.protocol.frame import FrameDecoder

FRAMES: Final = Path(__file__).resolve().parents[2] / "golden" / "dledger-frames"
#: The types of the request and of the response of each code.
TYPES: Final[dict[int, tuple[type[DLedgerBody], type[DLedgerBody]]]] = {
    DLedgerRequestCode.METADATA: (dledger.MetadataRequest, dledger.MetadataResponse),
    DLedgerRequestCode.APPEND: (dledger.AppendEntryRequest, dledger.AppendEntryResponse),
    DLedgerRequestCode.GET: (dledger.GetEntriesRequest, dledger.GetEntriesResponse),
    DLedgerRequestCode.VOTE: (VoteRequest, VoteResponse),
    DLedgerRequestCode.HEART_BEAT: (dledger.HeartBeatRequest, dledger.HeartBeatResponse),
    DLedgerRequestCode.PUSH: (PushEntryRequest, PushEntryResponse),
    DLedgerRequestCode.LEADERSHIP_TRANSFER: (
        dledger.LeadershipTransferRequest, dledger.LeadershipTransferResponse),
}


def read_frame(path: Path) -> RemotingCommand:
    """Read the only command of a file."""
    (frame,) = FrameDecoder().feed(path.read_bytes())
    return decode_command(frame)


def exchanges(folder: str) -> Iterator[tuple[str, RemotingCommand, RemotingCommand]]:
    """The name of each exchange of a folder, its request and its reply."""
    for path in sorted((FRAMES / folder).glob("*.request.bin")):
        name = path.name.removesuffix(".request.bin")
        yield name, read_frame(path), read_frame(path.with_name(f"{name}.reply.bin"))


class CapturedTests(SynchronousTestCase):
    """The frames of members of 4.9.4 and 5.5.0."""

    def test_every_body_is_written_as_it_was_read(self) -> None:
        """The bytes of the requests and responses of both versions are equal."""
        count = 0
        for version in ("4.9.4", "5.5.0"):
            for name, request, reply in exchanges(version):
                for command, body_type in zip((request, reply), TYPES[request.code], strict=True):
                    self.assertEqual(body_type.decode(command.body).encode(), command.body,
                                     f"{version} {name}")
                    count += 1
                self.assertEqual(reply.code, ANSWER_CODE)
        self.assertGreater(count, 60)

    def test_refusals_are_written_as_they_were_read(self) -> None:
        """A request for another group or member is answered by a body, nonsense is not."""
        for version in ("4.9.4", "5.5.0"):
            for name, request, reply in exchanges(f"{version}/odd"):
                if reply.code != ANSWER_CODE:
                    self.assertIn(name, ("empty", "not-json", "null", "push-unknown-type",
                                         "unknown-code"))
                    continue
                body = TYPES[request.code][1].decode(reply.body)
                self.assertEqual(body.encode(), reply.body, name)

    def test_entries_have_the_size_of_a_data_file(self) -> None:
        """48 bytes and the body; the positions follow each other without a gap."""
        _, request, _ = next(each for each in exchanges("5.5.0") if each[0].endswith(
            "append-batches-200"))
        body = PushEntryRequest.decode(request.body)
        self.assertGreater(len(body.batch_entry), 1)
        place = body.batch_entry[0].pos
        for entry in body.batch_entry:
            self.assertEqual((entry.magic, entry.size, entry.pos),
                             (dledger.ENTRY_MAGIC, dledger.ENTRY_HEAD_SIZE + len(entry.body),
                              place))
            place += entry.size


class ReadingTests(SynchronousTestCase):
    """The forms that Apache's members accept although they do not write them."""

    def test_numbers_as_texts_fractions_and_booleans(self) -> None:
        """Java converts each to an integer."""
        body = VoteRequest.decode(
            b'{"term":"7","ledgerEndIndex":8.9,"ledgerEndTerm":true,"code":200.0}')
        self.assertEqual((body.term, body.ledger_end_index, body.ledger_end_term, body.code),
                         (7, 8, 1, 200))

    def test_nulls_and_unknown_keys(self) -> None:
        """Both are ignored."""
        body = VoteRequest.decode(
            b'{"group":null,"term":null,"leaderId":"n1","localId":null,"new":{"a":[1,null]}}')
        self.assertEqual((body.group, body.term, body.leader_id, body.local_id),
                         (UNSET, -1, "n1", UNSET))

    def test_an_entry_without_numbers(self) -> None:
        """All numbers of Java's entries begin with 0."""
        body = PushEntryRequest.decode(b'{"entry":{"index":null,"body":"AA=="}}')
        self.assertEqual(body.entry, DLedgerEntry(b"\0", index=0, term=0, pos=0))

    def test_enums_as_ordinals(self) -> None:
        """The ordinals count in the order of Apache's enums."""
        for ordinal, name in enumerate(dledger.PUSH_TYPES):
            self.assertEqual(PushEntryRequest.decode(b'{"type":%d}' % ordinal).type, name)
        for ordinal, name in enumerate(dledger.VOTE_RESULTS):
            self.assertEqual(
                VoteResponse.decode(b'{"voteResult":%d}' % ordinal).vote_result, name)
        self.assertEqual(PushEntryRequest.decode(b'{"type":4}').type, "4")
        self.assertEqual(PushEntryRequest.decode(b'{"type":-1}').type, "-1")
        self.assertNotIn(PushEntryRequest.decode(b'{"type":null}').type, dledger.PUSH_TYPES)

    def test_bytes_as_a_list_of_numbers(self) -> None:
        """The bytes of Java are signed."""
        body = PushEntryRequest.decode(
            b'{"batchEntry":[{"body":[0,127,-1,-128,"5"],"index":3},null],"type":"APPEND"}')
        self.assertEqual(body.batch_entry, [DLedgerEntry(body=b"\0\x7f\xff\x80\x05", index=3)])

    def test_what_is_refused(self) -> None:
        """Nonsense, and the two forms that fastjson 2 refuses and fastjson 1 misreads."""
        for data in (
            b"", b"null", b"[]", b"5", b"\x00\x01\x02", b'{"term":', b'{"term":"x"}',
            b'{"term":9223372036854775808}', b'{"term":-9223372036854775809}',
            b'{"code":2147483648}', b'{"group":[]}', b'{"entry":7}', b'{"batchEntry":{}}',
            b'{"entry":{"body":"_-8="}}', b'{"entry":{"body":"a"}}', b'{"entry":{"body":[{}]}}',
            b'{"entry":{"body":["x"]}}', b'{"entry":{"body":[1e400]}}', b'{"group":"\xff"}',
            b'{"group":' + b"[" * 3000 + b"]" * 3000 + b"}", b"[" * 3000,
        ):
            self.assertRaises(WireError, PushEntryRequest.decode, data)

    def test_a_large_body_in_an_unusual_form_is_refused(self) -> None:
        """Reading it would block the reactor; a usual one of the same size is read."""
        usual = b'{"group":"%s","term":1}' % (b"x" * 300_000)
        self.assertEqual(VoteRequest.decode(usual).term, 1)
        error = self.assertRaises(
            WireError, VoteRequest.decode, usual.replace(b"1}", b"1.5}"))
        self.assertIn("of 300", str(error))


class WritingTests(SynchronousTestCase):
    """Bodies that are written."""

    def test_keys_are_in_alphabetical_order_without_nulls(self) -> None:
        """An entry has all its fields."""
        data = PushEntryRequest(group="G", entry=DLedgerEntry(b"\0", index=1, magic=1)).encode()
        keys = list(json.loads(data))
        self.assertEqual(keys, sorted(keys))
        self.assertNotIn("localId", keys)
        self.assertEqual(list(json.loads(data)["entry"]), [
            "body", "bodyCrc", "chainCrc", "channel", "index", "magic", "pos", "size", "term"])
