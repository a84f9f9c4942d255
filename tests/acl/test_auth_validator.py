"""The requests that pass by their signature, and the actions that a user's policies allow."""

from __future__ import annotations

from collections.abc import Sequence

from twisted.logger import LogEvent, capturedLogs, formatEvent

from tests.acl.auth_box import ALICE, ROOT, AuthTestCase, policy
from tests.acl.test_access_table import body, served
from twistmq.broker.testing.kernel import Peer
from twistmq.plugins import pop
from twistmq.protocol.bodies import (
    ConsumerData,
    HeartbeatData,
    ProducerData,
    SubscriptionData,
    UserInfo,
)
from twistmq.protocol.codes import RequestCode
from twistmq.protocol.command import VERSION, RemotingCommand
from twistmq.protocol.header import ext_fields_of
from twistmq.protocol.headers.auth import DeleteAclRequestHeader, UserRequestHeader
from twistmq.protocol.headers.send import SendMessageRequestHeaderV2
from twistmq.protocol.signature import request_content, signature_of

_FROM = "from 127.0.0.1, "


def send_header(topic: str, group: str = "P") -> SendMessageRequestHeaderV2:
    return SendMessageRequestHeaderV2(
        producer_group=group, topic=topic, default_topic="TBW102", default_topic_queue_nums=4,
        queue_id=0, sys_flag=0, born_timestamp=0, flag=0, properties="", reconsume_times=0,
        unit_mode=False, batch=False)


def denied(resource: str, reason: str = "no matched policies.", user: str = "alice") -> str:
    return f"User:{user} has no permission to access {resource} {_FROM}{reason}"


class SignedTestCase(AuthTestCase):
    """Requests of alice."""

    def send(
        self, topic: str = "T", keys: tuple[str, str] | None = ALICE, peer: Peer | None = None
    ) -> RemotingCommand:
        return self.ask(keys, RequestCode.SEND_MESSAGE_V2, send_header(topic), b"x", peer=peer)

    def allow(self, resource: str, actions: str = "Pub", *sources: str) -> None:
        self.add_policy("alice", policy(resource, actions, "Allow", *sources))


class AuthenticationTests(SignedTestCase):
    """The signature."""

    def test_each_fault_has_apaches_text(self) -> None:
        """The faults are tried with a code that has a row, one without a row, and one that is not
        served.
        """
        self.ask(ROOT, 3001, UserRequestHeader(username="idle"),
                 UserInfo(password="secret-of-idle", user_status="disable").encode())
        for code in (RequestCode.SEND_MESSAGE_V2, RequestCode.UPDATE_BROKER_CONFIG, 99_999):
            for text, keys in [
                ("username cannot be null.", None), ("username cannot be null.", ("", "x")),
                ("User:nobody is not found.", ("nobody", "secret")),
                ("check signature failed.", ("alice", "another")),
                ("User:idle is disabled.", ("idle", "secret-of-idle")),
            ]:
                self.refused(self.ask_fields(keys, code, {"a": "b"}), text)

    def test_a_signature_of_another_body_is_not_enough(self) -> None:
        """Every field and the body are signed."""
        fields = {**ext_fields_of(send_header("T")), "AccessKey": "root"}
        signature = signature_of(request_content(fields, b"x", VERSION), ROOT[1])
        self.refused(self.ask_fields(None, 310, {**fields, "Signature": signature}, b"y"),
                     "check signature failed.")
        self.refused(self.ask_fields(None, 310, {**fields, "Signature": signature, "z": "1"}, b"x"),
                     "check signature failed.")
        self.accepted(self.ask_fields(None, 310, {**fields, "Signature": signature}, b"x"))

    def test_a_long_name_is_cut_in_the_answer(self) -> None:
        """The broker keeps nothing for the unknown name."""
        with capturedLogs() as events:
            reply = self.ask_fields(("n" * 30_000, "secret"), 310, {})
            self.refused(reply, f"User:{'n' * 255}... is not found.")
            reply = self.ask_fields(("n" * 4_000_000, "secret"), 310, {})
            self.assertIn("bytes, over the limit of", reply.remark or "")
        self.assertLess(len("".join(map(formatEvent, events))), 2000)

    def test_the_answer_does_not_wait_longer_for_a_user_that_exists(self) -> None:
        """A signature is computed for every name."""
        from twistmq.acl import auth_validator
        from twistmq.protocol.signature import Signer

        computed: list[bytes] = []
        original = Signer.signature

        def counted(signer: Signer, content: bytes) -> bytes:
            computed.append(content)
            return original(signer, content)

        self.patch(auth_validator.Signer, "signature", counted)
        for name in ("alice", "nobody"):
            computed.clear()
            self.ask_fields((name, "wrong"), 310, {"a": "b"}, b"body")
            # One of these signatures is the client's own.
            self.assertEqual(len(computed), 2, msg=name)


class AuthorizationTests(SignedTestCase):
    """The policies."""

    plugins = (("pop", pop.Plugin),)

    def test_a_send_needs_pub_on_its_topic(self) -> None:
        """A changed policy counts for the next send on the same connection."""
        peer = self.peer()
        self.refused(self.send(peer=peer), denied("Topic:T"))
        self.allow("Topic:T", "Sub")
        self.refused(self.send(peer=peer), denied("Topic:T"))
        self.allow("Topic:T", "Pub")
        for _ in range(3):
            self.accepted(self.send(peer=peer))
        self.add_policy("alice", policy("Topic:T", "Pub", "Deny"))
        self.refused(self.send(peer=peer), denied("Topic:T", "the decision is deny."))
        self.accepted(self.ask(ROOT, 3008, DeleteAclRequestHeader(
            subject="User:alice", resource="Topic:T")))
        self.refused(self.send(peer=peer), denied("Topic:T"))

    def test_a_changed_user_counts_for_the_next_request(self) -> None:
        """A disabled user, another password and a deletion count on an existing connection."""
        self.allow("*")
        peer = self.peer()
        self.accepted(self.send(peer=peer))
        for values, text in [({"user_status": "disable"}, "User:alice is disabled."),
                             ({"user_status": "enable"}, None),
                             ({"password": "another"}, "check signature failed.")]:
            self.accepted(self.ask(ROOT, 3002, UserRequestHeader(username="alice"),
                                   UserInfo(**values).encode()))
            reply = self.send(peer=peer)
            self.assertEqual(reply.remark, text)
        self.accepted(self.ask(ROOT, 3003, UserRequestHeader(username="alice")))
        self.refused(self.send(peer=peer), "User:alice is not found.")

    def test_sends_of_one_read_are_refused_one_by_one(self) -> None:
        """The sends before and after a refused one are stored."""
        self.allow("Topic:T")
        self.accepted(self.send("T"))
        codes = [self.send(topic).code for topic in ("T", "U", "T")]
        self.assertEqual(codes, [0, 16, 0])

    def test_the_address_counts_at_each_request(self) -> None:
        """A permission for one network is not remembered for another one."""
        self.allow("Topic:T", "Pub", "10.0.0.0/8", "2001:db8::/32")
        inside, inside6 = self.peer("10.1.1.1:5"), self.peer("[2001:db8::1]:5")
        outside = self.peer("11.1.1.1:5")
        for peer, code in [(inside, 0), (outside, 16), (inside6, 0), (outside, 16), (inside, 0)]:
            self.assertEqual(self.send(peer=peer).code, code, msg=peer.remote_address)
        self.refused(self.send(peer=outside),
                     "User:alice has no permission to access Topic:T from 11.1.1.1, "
                     "no matched policies.")

    def test_a_consumer_needs_sub_on_topic_and_group(self) -> None:
        """The heartbeat is refused for the first missing permission."""
        heartbeat = HeartbeatData("c", consumer_data_set=(ConsumerData(
            "G", subscription_data_set=(SubscriptionData("T"),)),)).encode()
        self.refused(self.ask(ALICE, 34, None, heartbeat), denied("Group:G"))
        self.allow("Group:G", "Sub")
        self.refused(self.ask(ALICE, 34, None, heartbeat), denied("Topic:T"))
        self.allow("Topic:*", "Sub")
        self.accepted(self.ask(ALICE, 34, None, heartbeat))

    def test_a_heartbeat_that_names_nothing_is_let_in(self) -> None:
        """The group of a producer belongs to no user."""
        heartbeat = HeartbeatData("c", producer_data_set=(ProducerData("P"),)).encode()
        self.accepted(self.ask(ALICE, 34, None, heartbeat))

    def test_what_apache_lets_everybody_do_is_refused(self) -> None:
        """The codes 25, 200 and 200151 have no annotation in 5.3.3."""
        self.assertEqual(self.ask(ALICE, 25, None, b"fileReservedTime=1").code, 16)
        self.assertEqual(self.ask(ALICE, 200, None, b'{"groupName":"G"}').code, 16)
        self.assertEqual(self.ask(ALICE, 200151, None, b'{"acks":[{"t":"T","c":"G"}]}').code, 16)
        self.accepted(self.ask(ROOT, 25, None, b"fileReservedTime=1"))

    def test_a_code_without_a_row_is_for_super_users(self) -> None:
        """This includes codes that are not served, so a user cannot tell them apart."""
        self.add_policy("alice", policy("*"))
        self.refused(self.ask(ALICE, 99_999), denied(
            "Cluster:DefaultCluster", "its code is for super users."))
        self.assertEqual(self.ask(ROOT, 99_999).code, 3)

    def test_a_user_without_policies_is_refused_every_served_code(self) -> None:
        """The exceptions are a code that names nothing, and codes whose handlers find the
        resources.
        """
        fields = {"topic": "B", "b": "B", "a": "P", "producerGroup": "P", "consumerGroup": "GB",
                  "group": "GB", "groupName": "GB", "srcGroup": "GB", "destGroup": "GB",
                  "compareGroup": "GB"}
        bodies = {18: b'{"topicConfigList":[{"topicName":"B"}]}', 200: b'{"groupName":"GB"}',
                  225: b'{"groupConfigList":[{"groupName":"GB"}]}'}
        let_in = {code for code in served() if self.ask_fields(
            ALICE, code, fields, bodies.get(code) or body(code)).code != 16}
        # The answer to 305 has only system topics, and the handlers of the others find the
        # resources.
        self.assertEqual(let_in, {33, 37, 305, 324, 325})

    def test_a_body_that_cannot_be_read_is_refused(self) -> None:
        """The body is read after the signature was checked."""
        self.assertEqual(self.ask(ALICE, 34, None, b"{").code, 16)
        self.refused(self.ask(("alice", "wrong"), 34, None, b"{"), "check signature failed.")


class WhitelistTests(SignedTestCase):
    """authenticationWhitelist, authorizationWhitelist."""

    def test_a_code_that_needs_no_policy(self) -> None:
        """The code still needs a signature."""
        self.box = self.start(authorizationWhitelist="310,25")
        self.add_user(*ALICE)
        self.accepted(self.send())
        self.refused(self.send(keys=None), "username cannot be null.")
        self.assertEqual(self.ask(ALICE, 26).code, 16)

    def test_a_code_that_needs_no_signature(self) -> None:
        """The policies of the named user count, as in Apache's broker."""
        self.box = self.start(authenticationWhitelist="310")
        self.add_user(*ALICE)
        self.allow("Topic:T")
        self.accepted(self.send(keys=("alice", "anything")))
        self.refused(self.send("U", keys=("alice", "anything")), denied("Topic:U"))
        self.refused(self.send(keys=None), "Authorization failed. Please verify your access rights "
                                           "and try again.")
        self.refused(self.send(keys=("nobody", "x")), "User:nobody not found.")

    def test_neither_is_needed(self) -> None:
        """A code on both lists needs neither a signature nor a policy."""
        self.box = self.start(authenticationWhitelist="310", authorizationWhitelist="310")
        self.accepted(self.send(keys=None))


class UnauthorizedTests(SignedTestCase):
    """authorizationEnabled=false."""

    settings = {**AuthTestCase.settings, "authorizationEnabled": "false"}  # noqa: RUF012

    def test_every_user_may_do_everything(self) -> None:
        """A signature is still needed, and only a super user can create another one."""
        self.accepted(self.send())
        self.accepted(self.ask(ALICE, 26))
        self.refused(self.send(keys=None), "username cannot be null.")
        self.refused(self.ask(ALICE, 3001, UserRequestHeader(username="bob"), UserInfo(
            password="secret", user_type="Super").encode()),
            "The super user can only be create by super user", 1)


class LogTests(SignedTestCase):
    """One line for each refusal."""

    def test_the_line_says_why(self) -> None:
        """The line contains the user, the action, the resource, the address, the code and the
        deciding entry.
        """
        self.add_policy("alice", policy("Topic:*", "All", "Deny", "127.0.0.0/8"))
        with capturedLogs() as events:
            self.send()
            self.send(keys=("alice", "wrong"))
        self.assertEqual(texts(events), [
            "access denied: user=alice action=Pub resource=Topic:T address=127.0.0.1 code=310: the "
            "decision is deny. The entry is Topic:* from 127.0.0.0/8.",
            "access denied: user=alice action=- resource=- address=127.0.0.1 code=310: check "
            "signature failed."])

    def test_equal_refusals_are_one_line_a_minute(self) -> None:
        """The next line contains their number."""
        with capturedLogs() as events:
            for _ in range(5):
                self.send()
            self.box.now_ms += 60_000
            self.send()
        lines = texts(events)
        self.assertEqual(len(lines), 2)
        self.assertTrue(lines[1].endswith("no matched policies. (4 more before)"), lines[1])

    def test_all_refusals_together_are_limited(self) -> None:
        """A client that tries one name after another fills neither the log nor the memory."""
        with capturedLogs() as events:
            for number in range(1200):
                self.ask_fields((f"user{number}", "x"), 310, {})
        self.assertEqual(len(texts(events)), 100)

    def test_no_line_has_a_secret(self) -> None:
        """A line contains neither a password nor a signature."""
        with capturedLogs() as events:
            self.send(keys=("alice", "wrong"))
            self.ask(ROOT, 3001, UserRequestHeader(username="b"), UserInfo(password="").encode())
            self.add_user("bob", "sesame")
        for event in events:
            self.assertNotIn("sesame", str(event))
            self.assertNotIn(ALICE[1], str(event))
            self.assertNotIn("ignature", formatEvent(event).replace("check signature", ""))


def texts(events: Sequence[LogEvent]) -> list[str]:
    """Return the lines about refusals."""
    lines = [formatEvent(event) for event in events]
    return [line for line in lines if line.startswith("access denied")]
