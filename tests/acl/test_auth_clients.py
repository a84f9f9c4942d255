"""The client, a slave, and the doctor's requests, with ACL 2.0 switched on."""

from __future__ import annotations

import json

from twisted.trial.unittest import SynchronousTestCase

from tests.acl.auth_box import ROOT, policy
from tests.plugins.ha.pair import wait_until
from tests.plugins.ha.test_pair import PairCase
from twistmq.broker.edge import boot
from twistmq.broker.testing import running_broker
from twistmq.client import Client, Consumer, Credentials, Message, Producer, SendFailed
from twistmq.client.blocking.connection import Connection
from twistmq.protocol.bodies import AclInfo, UserInfo
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.headers.auth import AclRequestHeader, UserRequestHeader
from twistmq.protocol.headers.offset import GetMaxOffsetRequestHeader
from twistmq.tools.doctor.findings import Level
from twistmq.tools.doctor.health_checks import health_findings

INNER = ("inner", "secret-of-inner")
SETTINGS = {
    "authenticationEnabled": "true", "authorizationEnabled": "true",
    "initAuthenticationUser": json.dumps({"username": ROOT[0], "password": ROOT[1]}),
    "innerClientAuthenticationCredentials": json.dumps(
        {"accessKey": INNER[0], "secretKey": INNER[1]})}


class ClientTests(SynchronousTestCase):
    """Clients of a broker that ``twistmq up`` has started."""

    def add(self, client: Client, address: str, name: str, *policies: AclInfo) -> Credentials:
        """Create a user with policies."""
        password = f"secret-of-{name}"
        client.ask(address, 3001, UserRequestHeader(username=name),
                   UserInfo(password=password).encode())
        for each in policies:
            client.ask(address, 3006, AclRequestHeader(subject=f"User:{name}"), each.encode())
        return Credentials(name, password)

    def test_a_producer_and_a_consumer_with_different_rights(self) -> None:
        """Each client may use exactly the resources that its policies allow."""
        with running_broker(SETTINGS) as broker, Client(
                broker.namesrv_address, credentials=Credentials(*ROOT), timeout_s=30) as root:
            address = broker.broker_address
            writer = self.add(root, address, "writer", policy("Topic:T*", "Pub"))
            reader = self.add(root, address, "reader", policy("Topic:T", "Sub"),
                              policy("Group:G", "Sub"))
            Producer(client=root, timeout_s=30).send(Message("T", b"first"))
            with Producer(broker.namesrv_address, credentials=writer, timeout_s=30) as producer:
                producer.send(Message("T", b"second"))
            with Producer(broker.namesrv_address, credentials=reader, timeout_s=5) as producer:
                error = self.assertRaises(SendFailed, producer.send, Message("T", b"refused"))
                self.assertIn("has no permission to access Topic:T", str(error))
            with Consumer(broker.namesrv_address, group="G", topics="T", credentials=reader,
                          start="first", timeout_s=30) as consumer:
                messages = iter(consumer)
                bodies = {next(messages).body for _ in range(2)}
            self.assertEqual(bodies, {b"first", b"second"})
            settings = boot.broker_settings(None, {
                **SETTINGS, "bindAddress": "127.0.0.1",
                "listenPort": address.rpartition(":")[2]})
            [finding] = health_findings(settings)
            self.assertIs(finding.level, Level.OK)


class SlaveTests(PairCase):
    """A slave that signs with the inner user."""

    def test_users_and_policies_follow(self) -> None:
        """The slave decides as its master does, even after a change and after a deletion."""
        settings = {**SETTINGS, "ha.peers": "127.0.0.1"}
        self.start_master(**settings)
        slave = self.slave(**settings)
        address = self.master.broker_address
        with Client(self.master.namesrv_address, credentials=Credentials(*ROOT),
                    timeout_s=30) as root:
            root.ask(address, 3001, UserRequestHeader(username="alice"),
                     UserInfo(password="secret").encode())
            root.ask(address, 3006, AclRequestHeader(subject="User:alice"),
                     policy("Topic:T", "Get").encode())

            def is_let_in() -> bool:
                with Connection(slave.address, 10.0,
                                credentials=Credentials("alice", "secret")) as connection:
                    reply = connection.request(
                        RequestCode.GET_MAX_OFFSET, GetMaxOffsetRequestHeader("T", 0))
                return reply.code != ResponseCode.NO_PERMISSION

            wait_until(is_let_in, "the slave has alice and her policy")
            root.ask(address, 3003, UserRequestHeader(username="alice"))
            wait_until(lambda: not is_let_in(), "the slave has her no longer")
        saved = slave.data / "config/users.json"
        wait_until(lambda: "alice" not in saved.read_text(), "the change is saved")
        self.assertIn("root", saved.read_text())
