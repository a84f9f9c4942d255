"""The conversion between the messages of the core and the bodies of requests."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from twisted.trial.unittest import SynchronousTestCase

from tests.protocol.bodies.test_dledger import exchanges
from twistmq.plugins.dledger.translation import (
    READERS,
    OtherVersion,
    read_request,
    read_response,
    write_refusal,
    write_request,
    write_response,
)
from twistmq.protocol.bodies.dledger import PUSH_TYPES, VOTE_RESULTS
from twistmq.protocol.codes import DLedgerRequestCode
from twistmq.protocol.errors import WireError
from twistmq.raft.messages import (
    Entry,
    HeartbeatRequest,
    HeartbeatResponse,
    PushRequest,
    PushResponse,
    PushType,
    Request,
    Response,
    ResponseCode,
    TransferRequest,
    TransferResponse,
    VoteRequest,
    VoteResponse,
    VoteResult,
)

BASE: Final = ("G0", "n1", "n0", 7, "n1")
ENTRY: Final = {"body": "AAE=", "index": 4, "magic": 1, "pos": 100, "size": 50, "term": 6}
VERSIONS: Final = ("4.9.4", "5.5.0")


def push(**fields: Any) -> bytes:
    """Return the body of a push."""
    return json.dumps({"group": "G0", "leaderId": "n1", "remoteId": "n0", "term": 7,
                       "type": "APPEND", "commitIndex": 3, **fields}).encode()


class CapturedTests(SynchronousTestCase):
    """The frames of Apache's members."""

    def test_requests_and_responses_come_back_to_the_same_bytes(self) -> None:
        """Bodies of Apache's members do not change on their way through the core's messages."""
        kinds = set()
        for version in VERSIONS:
            for name, asked, replied in exchanges(version):
                if asked.code not in READERS:
                    continue
                request = read_request(asked.code, asked.body)
                code, body = write_request(request)
                if "-batch-" not in name:
                    # A batch of one entry is written as a single entry.
                    self.assertEqual((code, self.without_sender(body, asked.body)),
                                     (asked.code, asked.body), name)
                response = read_response(request, replied.body)
                body = write_response(request, response)
                self.assertEqual(self.without_sender(body, replied.body), replied.body, name)
                kinds.add((type(request), type(response)))
        self.assertEqual(kinds, {
            (VoteRequest, VoteResponse), (HeartbeatRequest, HeartbeatResponse),
            (PushRequest, PushResponse), (TransferRequest, TransferResponse)})

    def without_sender(self, body: bytes, captured: bytes) -> bytes:
        """Leave out the sender, which 4.9.4 does not write into votes and pushes."""
        if b'"localId"' in captured:
            return body
        return re.sub(rb'"localId":"n[0-2]",', b"", body)

    def test_refusals_are_those_of_apache(self) -> None:
        """A member of another group and one with another id are answered as Apache does."""
        count = 0
        for version in VERSIONS:
            for _, asked, replied in exchanges(f"{version}/odd"):
                refusal = json.loads(replied.body or b"{}")
                if refusal.get("code") not in (400, 401) or "group" not in refusal:
                    continue
                request = read_request(asked.code, asked.body)
                self.assertEqual(
                    write_refusal(request, ResponseCode(refusal["code"]),
                                  refusal.get("leaderId", "")), replied.body)
                count += 1
        self.assertEqual(count, 8)


class RequestTests(SynchronousTestCase):
    """The conversion of requests."""

    def test_the_leader_sends_what_has_no_sender(self) -> None:
        """Members of 4.9.4 do not write the sender of a push, and of a vote request."""
        request = read_request(DLedgerRequestCode.PUSH, push(type="COMMIT"))
        self.assertEqual(request, PushRequest(*BASE, PushType.COMMIT, 3, ()))
        request = read_request(DLedgerRequestCode.PUSH, push(type="COMMIT", localId="n2"))
        self.assertEqual(request.sender, "n2")
        self.assertIn(b'"localId":"n2"', write_request(request)[1])

    def test_one_entry_and_several(self) -> None:
        """One entry is sent alone, and several are sent as a batch."""
        one = Entry(4, 6, b"\0\1", 100)
        other = Entry(5, 7, b"", 150)
        for entries in ((one,), (one, other)):
            request = PushRequest(*BASE, PushType.APPEND, 3, entries)
            code, body = write_request(request)
            self.assertEqual(read_request(code, body), request)
            fields = json.loads(body)
            self.assertEqual(("entry" in fields, fields["batch"], fields["count"],
                              fields["totalSize"]),
                             (True, False, 1, 0) if len(entries) == 1 else (False, True, 2, 98))

    def test_enums_have_the_names_of_the_wire(self) -> None:
        """The core and the bodies use the same names."""
        self.assertEqual({each.value for each in PushType}, set(PUSH_TYPES))
        self.assertEqual({each.value for each in VoteResult}, set(VOTE_RESULTS))

    def test_what_makes_no_sense(self) -> None:
        """The error gives the reason."""
        for body, text in (
            (push(type="INSTALL_SNAPSHOT"), "INSTALL_SNAPSHOT"),
            (push(type=None), "the type"),
            (push(), "0 entries"),
            (push(type="COMMIT", entry=ENTRY), "1 entries"),
            (push(type="COMPARE", batchEntry=[ENTRY, ENTRY]), "2 entries"),
            (push(type="TRUNCATE", batchEntry=[ENTRY, ENTRY]), "2 entries"),
            (push(type="COMMIT", commitIndex=-2), "committed index -2"),
            (push(entry={**ENTRY, "size": 51}), "the size 51"),
            (push(entry={**ENTRY, "index": -1}), "index -1"),
            (push(entry={**ENTRY, "term": -1}), "term -1"),
            (push(entry={**ENTRY, "pos": -1}), "position -1"),
            (push(entry={**ENTRY, "channel": 1}), "channel 1"),
        ):
            error = self.assertRaises(WireError, read_request, DLedgerRequestCode.PUSH, body)
            self.assertIn(text, str(error))
            self.assertNotIsInstance(error, OtherVersion)
        for fields in ({"ledgerEndIndex": -2}, {"ledgerEndTerm": -2}, {"term": -2}):
            self.assertRaises(WireError, read_request, DLedgerRequestCode.VOTE,
                              json.dumps({"group": "G0", **fields}).encode())

    def test_dledger_0_4(self) -> None:
        """Pushes of DLedger 0.4 and entries without content are not refused as invalid."""
        for body in (push(type="COMPARE", preLogIndex=3, preLogTerm=1),
                     push(entries=[], preLogIndex=3), push(entry={**ENTRY, "magic": 2})):
            self.assertRaises(OtherVersion, read_request, DLedgerRequestCode.PUSH, body)

    def test_a_message_of_another_kind(self) -> None:
        """The caller has made an error."""
        self.assertRaises(TypeError, write_request, Request(*BASE))
        self.assertRaises(TypeError, read_response, Request(*BASE), b"{}")
        self.assertRaises(TypeError, write_response, Request(*BASE), Response())


class ResponseTests(SynchronousTestCase):
    """The conversion of responses."""

    def test_codes_and_results_that_are_not_known(self) -> None:
        """An unknown code or result becomes UNKNOWN, as in Apache's members."""
        vote = read_response(VoteRequest(*BASE), b'{"code":599,"voteResult":"REJECT_NEW"}')
        self.assertEqual(vote, VoteResponse(ResponseCode.UNKNOWN, -1, "", VoteResult.UNKNOWN))

    def test_a_push_of_an_older_member(self) -> None:
        """A response without a count has the last index."""
        response = read_response(PushRequest(*BASE), b'{"code":200,"index":9,"term":7}')
        self.assertEqual(response, PushResponse(ResponseCode.SUCCESS, 7, "", 9, 0, 0, 0))

    def test_no_body(self) -> None:
        """A server that is not a member answers without a body, and this counts as no answer."""
        for data in (b"", b"null", b"<html>"):
            self.assertRaises(WireError, read_response, HeartbeatRequest(*BASE), data)
