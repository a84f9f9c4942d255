"""The leading sends of a read that certainly pass: each of them would also pass alone."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from tests.acl.box import PREFIX
from tests.draw import examples
from twistmq.acl.accounts import PlainAccessConfig, account_of
from twistmq.acl.errors import AccessDenied
from twistmq.acl.validator import PlainAccessValidator
from twistmq.broker.remoting.request import Request
from twistmq.broker.remoting.request_runs import read_run
from twistmq.protocol.binary_header import encode_binary_header
from twistmq.protocol.codes import RequestCode
from twistmq.protocol.frame import JSON, ROCKETMQ, Frame
from twistmq.protocol.headers.send import SendMessageRequestHeaderV2
from twistmq.protocol.request_reader import SignedRequestReader
from twistmq.protocol.signature import ACCESS_KEY, SIGNATURE, Credentials, signed_fields

SEND = RequestCode.SEND_MESSAGE_V2
CAROL, DAVE = Credentials("carol-key", "secret-of-carol"), Credentials("dave-key", "secret-of-dave")
PLAIN = {"a": "group", "b": "open", "c": "TBW102", "d": "4", "e": "3", "f": "0", "g": "17",
         "h": "0", "i": "KEYS\x01k\x02", "j": "0", "k": "false", "l": "0", "m": "false"}
CHANNEL: Any = SimpleNamespace(remote_address="10.9.9.9:1", remote_host=b"\x0a\x09\x09\x09")
#: The changes to a plain send, and whether the account may send the changed one.
ODD: dict[str, tuple[dict[str, str], bool]] = {
    "plain": ({}, True), "other group": ({"a": "other"}, True),
    "other topic": ({"b": "open_too"}, True), "forbidden topic": ({"b": "closed"}, False),
    "takes back": ({"i": "TIMER_DEL_UNIQKEY\x01closed+key\x02"}, False),
    "takes back its own": ({"i": "TIMER_DEL_UNIQKEY\x01open+key\x02"}, True),
    "light queues": ({"i": "INNER_MULTI_DISPATCH\x01open,closed\x02"}, False),
    "light queues of its own": ({"i": "INNER_MULTI_DISPATCH\x01open\x02"}, True),
    "batch": ({"m": "true"}, True), "retry topic": ({"b": "%RETRY%group"}, False)}


def frame(change: dict[str, str], who: Credentials | None = CAROL, *, in_json: bool = False,
          forged: dict[str, str] | None = None, body: bytes = b"body") -> Frame:
    """Return the frame of a send; :param forged: fields that are changed after the signature."""
    fields = {**PLAIN, **change}
    if who is not None:
        fields = signed_fields(fields, b"body", 479, who)
    fields = {**fields, **(forged or {})}
    if in_json:
        text = json.dumps({"code": 310, "extFields": fields, "flag": 0, "language": "JAVA",
                           "opaque": 7, "version": 479}, separators=(",", ":"))
        return JSON, text.encode(), body
    return ROCKETMQ, encode_binary_header(SEND, "JAVA", 479, 7, 0, None, fields), body


class PassingTests(SynchronousTestCase):
    """Two accounts: one may send to all topics but one, and the other one to no topic."""

    def setUp(self) -> None:
        self.table: Any = SimpleNamespace(has_white=False, accounts={
            "carol-key": account_of(PlainAccessConfig(
                "carol-key", "secret-of-carol", default_topic_perm="PUB",
                default_group_perm="DENY", topic_perms=["closed=DENY"])),
            "dave-key": account_of(PlainAccessConfig("dave-key", "secret-of-dave"))})
        self.validator = PlainAccessValidator(self.table)
        self.reader = SignedRequestReader({SEND: SendMessageRequestHeaderV2})

    def requests(self, *frames: Frame) -> list[Request[Any]]:
        """Return the requests of one read, with their texts if their headers were scanned."""
        found: list[Request[Any]] = []
        for each in frames:
            self.reader.passed(self.reader.read_without_texts(each)[0])
            run, _ = read_run(self.reader, [each], {SEND}, 10**6, CHANNEL, 9)
            found += run
        self.assertEqual(len(found), len(frames))
        return found

    def refusal(self, request: Request[Any]) -> str:
        """Return the text of the validator's refusal; empty if the request passes."""
        try:
            self.validator.validate(request)
        except AccessDenied as error:
            return str(error).removeprefix(PREFIX)
        return ""

    def passing(self, *frames: Frame) -> int:
        """Count the requests that pass together, and check that each of them also passes alone."""
        requests = self.requests(*frames)
        count = self.validator.passing(requests)
        self.assertEqual([self.refusal(each) for each in requests[:count]], [""] * count)
        return count

    def test_what_has_passed_once_passes(self) -> None:
        """This holds in either encoding, as long as only the message changes."""
        for in_json in (False, True):
            plain = frame({}, in_json=in_json)
            self.table.accounts["carol-key"].passed.clear()
            self.assertEqual(self.passing(plain, plain), 0)
            self.assertEqual(self.refusal(self.requests(plain)[0]), "")
            other = frame({"e": "1", "i": "KEYS\x01other\x02"}, in_json=in_json)
            self.assertEqual(self.passing(plain, other, plain), 3)

    def test_a_run_ends_before_what_is_not_signed(self) -> None:
        """The run ends at a forged value or body, another key, a missing key, or an unknown
        account.
        """
        plain = frame({})
        self.refusal(self.requests(plain)[0])
        for in_json in (False, True):
            for bad in (
                frame({}, forged={"e": "2"}, in_json=in_json),
                frame({}, forged={"b": "open_too"}, in_json=in_json),
                frame({}, forged={SIGNATURE: "x"}, in_json=in_json),
                frame({}, forged={ACCESS_KEY: "nobody"}, in_json=in_json),
                frame({}, forged={ACCESS_KEY: "dave-key"}, in_json=in_json),
                frame({}, body=b"Body", in_json=in_json), frame({}, DAVE, in_json=in_json),
            ):
                self.assertEqual(self.passing(plain, plain, bad, plain), 2)
                self.assertNotEqual(self.refusal(self.requests(bad)[0]), "")
        self.assertEqual(self.passing(plain, frame({}, None)), 1)

    def test_an_address_that_is_white_is_looked_at_by_itself(self) -> None:
        """A white address of all accounts, or of one account, is left to the validator."""
        plain = frame({})
        self.refusal(self.requests(plain)[0])
        self.table.has_white = True
        self.table.is_white = lambda host: False
        self.assertEqual(self.passing(plain), 0)
        self.table.has_white = False
        self.table.accounts["carol-key"] = account_of(PlainAccessConfig(
            "carol-key", "secret-of-carol", "10.1.1.1", default_topic_perm="PUB"))
        self.assertEqual(self.refusal(self.requests(plain)[0]), "")
        self.assertEqual(self.passing(plain), 0)

    @settings(max_examples=examples(60), deadline=None)
    @given(st.lists(st.tuples(st.sampled_from(sorted(ODD)), st.booleans()), max_size=12))
    def test_no_run_has_what_would_be_refused(self, kinds: list[tuple[str, bool]]) -> None:
        """The sends come in any order, and each of them was sent before."""
        frames = [frame(ODD[kind][0], in_json=in_json) for kind, in_json in kinds]
        requests = self.requests(*frames)
        for request, (kind, _) in zip(requests, kinds, strict=True):
            self.assertEqual(self.refusal(request) == "", ODD[kind][1], kind)
        count = self.validator.passing(requests)
        usual = ("plain", "other group", "other topic")
        expected = next((index for index, (kind, _) in enumerate(kinds) if kind not in usual),
                        len(kinds))
        self.assertEqual(count, expected)
