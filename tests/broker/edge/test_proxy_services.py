"""The PROXY protocol on a real connection: the broker sees the address of the client."""

from __future__ import annotations

from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.testing import running_broker
from twistmq.broker.testing.raw_client import RawClient, send_header
from twistmq.client.blocking.connection import Connection
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.errors import RemotingSendError
from twistmq.protocol.headers.namesrv import GetRouteInfoRequestHeader
from twistmq.protocol.record import host_text

HEADER = b"PROXY TCP4 %s 10.0.0.1 555 10911\r\n"
WHITE, OTHER = b"192.0.2.7", b"198.51.100.1"


def proxied(address: str, client: bytes) -> Connection:
    """Return a connection that comes through a proxy."""
    connection = Connection(address)
    connection._socket.sendall(HEADER % client)
    return connection


class AccountsTests(SynchronousTestCase):
    """A broker with accounts and a list of trusted addresses."""

    def send(self, address: str, client: bytes) -> int:
        with proxied(address, client) as connection:
            return connection.request(RequestCode.SEND_MESSAGE_V2, send_header("t", 1), b"x").code

    def test_white_list(self) -> None:
        """The proxy's word decides where it is trusted; its connections are closed where not."""
        acl = Path(self.mktemp()).absolute()
        (acl / "conf").mkdir(parents=True)
        (acl / "conf" / "plain_acl.yml").write_text(
            "globalWhiteRemoteAddresses:\n- 192.0.2.*\naccounts: []\n")
        settings = {"aclEnable": "true", "rocketmqHome": str(acl)}
        with running_broker({**settings, "proxy.trusted": "127.0.0.1"}) as broker:
            self.assertEqual(self.send(broker.broker_address, WHITE), ResponseCode.SUCCESS)
            self.assertNotEqual(self.send(broker.broker_address, OTHER), ResponseCode.SUCCESS)
        with running_broker(settings) as broker:
            self.assertRaises(RemotingSendError, self.send, broker.broker_address, WHITE)


class AddressTests(SynchronousTestCase):
    """The visible address on all ports."""

    def test_born_host(self) -> None:
        """Messages have the client as born host; the name server accepts such connections, too."""
        with running_broker() as broker:
            for address in (broker.broker_address,
                            f"127.0.0.1:{broker.service.broker.vip_port}"):
                with proxied(address, OTHER) as connection:
                    reply = connection.request(RequestCode.SEND_MESSAGE_V2, send_header("t", 1),
                                               b"x")
                self.assertEqual(reply.code, ResponseCode.SUCCESS)
            with RawClient(broker.broker_address) as client:
                hosts = [host_text(each.born_host) for each in client.pull("t")]
            self.assertEqual(hosts, ["198.51.100.1:555"] * 2)
            with proxied(broker.namesrv_address, OTHER) as connection:
                route = connection.request(RequestCode.GET_ROUTEINFO_BY_TOPIC,
                                           GetRouteInfoRequestHeader(topic="t"))
            self.assertEqual(route.code, ResponseCode.SUCCESS)
