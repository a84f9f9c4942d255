"""Invented requests after a pop are refused, change nothing, and do not delay other clients."""

from __future__ import annotations

import base64
import json

from tests.hostile.case import HostileCase
from tests.hostile.wire import json_frame
from twistmq.broker.testing.raw_client import RawClient
from twistmq.protocol.codes import RequestCode, ResponseCode

_BATCH_ACK = int(RequestCode.BATCH_ACK_MESSAGE)
_POINT = {"c": "good_topic_group", "t": "good_topic", "r": "0", "so": 0, "q": 0, "rq": 0, "pt": 1,
          "it": 1, "b": "AQ=="}


class PopCase(HostileCase):
    """Attacks beside whom the good client hardly waits."""

    def setUp(self) -> None:
        super().setUp()
        self.attacker = self.connect()

    def assertRefusedAtOnce(self, what: str, frame: bytes, code: int) -> None:
        """A frame is refused in these few words, and others do not wait for that."""
        def attack() -> None:
            self.attacker.says(frame)
            reply = self.attacker.hears()
            self.assertEqual(reply.code, code, msg=f"{what}: {reply.remark}")
            self.assertLess(len(reply.remark or ""), 1000, msg=what)

        self.assertOthersGoOn(what, attack)


class BatchAckTests(PopCase):
    """BATCH_ACK_MESSAGE with all that a frame holds."""

    def test_millions_of_bits(self) -> None:
        """Return millions of bits of one check point."""
        bits = base64.b64encode(b"\xff" * 11_500_000).decode()
        body = json.dumps({"acks": [{**_POINT, "b": bits}]}).encode()
        self.assertRefusedAtOnce("bits", json_frame(_BATCH_ACK, body=body),
                                 ResponseCode.INVALID_PARAMETER)
        bits = base64.b64encode(b"\xff" * 700_000).decode()
        body = json.dumps({"acks": [{**_POINT, "b": bits}]}).encode()
        self.assertRefusedAtOnce("fewer bits", json_frame(_BATCH_ACK, body=body),
                                 ResponseCode.INVALID_PARAMETER)

    def test_check_points(self) -> None:
        """Return thousands of check points, up to the limit."""
        for count, code in ((150_000, ResponseCode.INVALID_PARAMETER),
                            (10_000, ResponseCode.INVALID_PARAMETER),
                            (1024, ResponseCode.SUCCESS)):
            acks = [{**_POINT, "so": -number} for number in range(count)]
            body = json.dumps({"acks": acks}, separators=(",", ":")).encode()
            self.assertRefusedAtOnce(f"{count} check points", json_frame(_BATCH_ACK, body=body),
                                     code)


class AckTests(PopCase):
    """ACK_MESSAGE with an invented receipt."""

    def test_receipt_in_order(self) -> None:
        """A group name of megabytes creates no consumer offset; a real offset does not change."""
        with RawClient(self.broker) as client:
            client.pull("good_topic", group="orderly_victim")
        for group, code in (
            ("g" * 8_000_000, ResponseCode.INVALID_PARAMETER),
            ("g" * 60_000, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
            ("a@b\\n", ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
            ("orderly_victim", ResponseCode.MESSAGE_ILLEGAL),
        ):
            fields = {"consumerGroup": group, "topic": "good_topic", "queueId": "0",
                      "extraInfo": "0 1 1 999 0 b 0 0", "offset": "0"}
            self.assertRefusedAtOnce(
                group[:20], json_frame(int(RequestCode.ACK_MESSAGE), json.dumps(fields)), code)
            fields["extraInfo"] = "0 " * 4_000_000
            self.attacker.says(json_frame(int(RequestCode.ACK_MESSAGE), json.dumps(fields)))
            self.assertNotEqual(self.attacker.hears().code, ResponseCode.SUCCESS)


class LongNameTests(PopCase):
    """Names of megabytes are refused wherever a server keeps names."""

    def test_topics_brokers_and_clients_of_locks(self) -> None:
        """Such names of topics, brokers and clients in locks are refused."""
        for what in ("topic", "broker", "client"):
            for number in range(20):
                name = f"{number}" + "n" * 1_500_000
                queue = {"topic": name if what == "topic" else "good_topic", "queueId": 0,
                         "brokerName": name if what == "broker" else "broker-a"}
                body = {"consumerGroup": "lock_group", "mqSet": [queue],
                        "clientId": name if what == "client" else "one"}
                self.attacker.says(json_frame(int(RequestCode.LOCK_BATCH_MQ),
                                              body=json.dumps(body).encode()))
                reply = self.attacker.hears()
                if what == "client":
                    self.assertEqual(reply.code, ResponseCode.INVALID_PARAMETER)
                else:
                    self.assertEqual(reply.body, b'{"lockOKMQSet":[]}', msg=what)

    def test_assignments_for_names_of_megabytes_are_refused(self) -> None:
        """Such names of topics are refused."""
        for number in range(1000):
            body = {"topic": f"{number}" + "n" * 60_000, "consumerGroup": "g", "clientId": "c",
                    "strategyName": "AVG"}
            self.attacker.says(json_frame(int(RequestCode.QUERY_ASSIGNMENT),
                                          body=json.dumps(body).encode()))
            self.assertEqual(self.attacker.hears().body, b"{}")
