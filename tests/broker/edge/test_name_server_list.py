"""The name servers of a broker, from settings, an address server and DNS."""

from __future__ import annotations

import socket
from typing import Any, ClassVar

from twisted.internet import reactor
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import deferLater
from twisted.trial.unittest import SynchronousTestCase, TestCase

from tests.broker.client.http_page import HttpPage
from tests.broker.client.name_table import NameTable
from tests.broker.edge.test_broker_service import make_service
from twistmq.broker.config.setting_rows import broker_rows
from twistmq.broker.config.settings import Settings
from twistmq.broker.edge.address_server_url import address_server_url
from twistmq.broker.edge.boot import broker_settings, notices
from twistmq.broker.edge.name_server_list import NameServerList
from twistmq.broker.errors import SettingsError
from twistmq.broker.testing import BrokerTestCase

ON = {"fetchNamesrvAddrByAddressServer": "true"}
LOOKUP = {"fetchNameSrvAddrByDnsLookup": "true"}


def settings_with(**texts: str) -> Settings:
    return Settings.load(broker_rows(), overrides={"namesrvAddr": "", **ON, **texts})


class UrlTests(SynchronousTestCase):
    """The address of an address server."""

    def test_the_url_has_port_8080_by_default(self) -> None:
        """As with Apache, the port is 8080 if the domain has none."""
        for texts, url in (
            ({}, "http://jmenv.tbsite.net:8080/rocketmq/nsaddr"),
            ({"rmqAddressServerDomain": "a.example"}, "http://a.example:8080/rocketmq/nsaddr"),
            ({"rmqAddressServerDomain": "a.example:80", "rmqAddressServerSubGroup": "b-unit?x=1"},
             "http://a.example:80/rocketmq/b-unit?x=1"),
            ({"rmqAddressServerDomain": "[::1]"}, "http://[::1]:8080/rocketmq/nsaddr"),
            ({"rmqAddressServerDomain": "[::1]:81"}, "http://[::1]:81/rocketmq/nsaddr"),
        ):
            self.assertEqual(address_server_url(settings_with(**texts)), url)

    def test_no_urls(self) -> None:
        """If the settings give no address, the start is refused, unless no server
        is to be asked.
        """
        for name, text in (("rmqAddressServerDomain", "http://a"), ("rmqAddressServerDomain", ""),
                           ("rmqAddressServerDomain", "a/b"), ("rmqAddressServerDomain", "a:b"),
                           ("rmqAddressServerSubGroup", ""), ("rmqAddressServerSubGroup", "a b"),
                           ("rmqAddressServerSubGroup", "a\r\nHost: b")):
            error = self.assertRaises(SettingsError, broker_settings, None, {**ON, name: text})
            self.assertIn(name, str(error))
            broker_settings(None, {name: text})

    def test_an_address_server_needs_no_name_server_setting(self) -> None:
        """With an address server the settings need no name servers."""
        texts = {"bindAddress": "127.0.0.1", "brokerIP1": "127.0.0.1", "namesrvAddr": ""}
        self.assertEqual(len(notices("broker", broker_settings(None, texts))), 1)
        self.assertEqual(notices("broker", broker_settings(None, {**texts, **ON})), [])


class ListTestCase(TestCase):
    """A test with the list by itself, and a real HTTP server."""

    timeout = 30

    def setUp(self) -> None:
        self.page = HttpPage("h:1;i:2")
        self.addCleanup(self.page.stop)
        self.changes: list[list[str]] = []
        self.lines: list[str] = []
        self.make()

    def make(self, **texts: str) -> None:
        self.settings = settings_with(**{"rmqAddressServerDomain": self.page.address, **texts})
        self.list = NameServerList(
            reactor, self.settings, lambda: self.changes.append(self.list.addresses))

        def say(text: str, **fields: Any) -> None:
            self.lines.append(text.format(**fields))

        self.patch(self.list, "log", type("Log", (), {
            "warn": staticmethod(say), "info": staticmethod(say)}))

    async def fetch(self) -> None:
        asked = self.list.fetch()
        assert asked is not None
        await asked


class ListTests(ListTestCase):
    """The list of an address server."""

    async def test_only_another_list_is_a_change(self) -> None:
        """Only a different list is a change."""
        self.assertEqual(self.list.addresses, [])
        await self.fetch()
        await self.fetch()
        self.page.text = "j:3"
        await self.fetch()
        self.assertEqual(self.changes, [["h:1", "i:2"], ["j:3"]])
        self.assertEqual(self.list.addresses, ["j:3"])
        self.assertEqual(len(self.lines), 2)

    async def test_the_old_list_stays(self) -> None:
        """The old list is kept; one line gives the reason, and another reports the recovery."""
        await self.fetch()
        self.page.text = "nothing"
        for _ in range(3):
            await self.fetch()
        self.assertEqual((self.list.addresses, len(self.changes)), (["h:1", "i:2"], 1))
        self.assertEqual(len(self.lines), 2)
        self.assertIn("the answer cannot be used", self.lines[1])
        self.assertIn(self.page.address, self.list.fault)
        self.page.status = 500
        await self.fetch()
        self.assertEqual(len(self.lines), 3, msg="another reason")
        self.page.status, self.page.text = 200, "h:1;i:2"
        await self.fetch()
        self.assertEqual((len(self.lines), self.list.fault, len(self.changes)), (4, "", 1))

    async def test_one_question_at_a_time(self) -> None:
        """A second caller waits for the answer of the first request."""
        first, second = self.list.fetch(), self.list.fetch()
        assert first is not None and second is not None
        await first
        await second
        self.assertEqual(len(self.page.requests), 1)

    async def test_a_question_that_ends_at_once(self) -> None:
        """A request that ends immediately does not prevent the next one."""
        self.patch(self.list, "_ask_server", lambda: succeed((["k:4"], "")))
        await self.fetch()
        self.patch(self.list, "_ask_server", lambda: succeed((["l:5"], "")))
        await self.fetch()
        self.assertEqual(self.list.addresses, ["l:5"])

    async def test_settings_come_first(self) -> None:
        """While the settings have name servers, the address server is not asked."""
        self.make(namesrvAddr="k:4")
        self.assertIsNone(self.list.fetch())
        self.assertEqual(self.list.addresses, ["k:4"])
        self.make(fetchNamesrvAddrByAddressServer="false")
        self.assertIsNone(self.list.fetch())
        self.assertEqual((self.list.addresses, self.page.requests), ([], []))

    async def test_settings_that_change_while_a_question_waits(self) -> None:
        """A waiting request is not sent if the settings no longer need it.

        They may name any place then, and the next start does not look at it.
        """
        first: Deferred[tuple[list[str], str]] = Deferred()
        self.patch(self.list, "_ask_server", lambda: first)
        begun = self.list.fetch()
        second = self.list.fetch(again=True)
        assert begun is not None and second is not None
        del self.list._ask_server
        self.settings.update({"fetchNamesrvAddrByAddressServer": "false"})
        self.settings.update({"rmqAddressServerDomain": "a|b"})
        first.callback((["h:1"], ""))
        await begun
        await second
        self.assertEqual((self.list.addresses, self.list.fault, self.page.requests), ([], "", []))

    async def test_settings_change(self) -> None:
        """A new address server is asked immediately; name servers in the settings
        take precedence.
        """
        await self.fetch()
        self.page.text = "other:1"
        self.settings.update({"rmqAddressServerSubGroup": "other"})
        await self.fetch()
        self.assertEqual(self.page.requests, ["/rocketmq/nsaddr", "/rocketmq/other"])
        self.assertEqual(self.changes[-1], ["other:1"])
        self.settings.update({"namesrvAddr": "k:4"})
        self.assertEqual(self.changes[-1], ["k:4"])
        self.settings.update({"brokerPermission": "4"})
        self.assertEqual(len(self.page.requests), 2)

    async def test_this_processs_own_is_in_front(self) -> None:
        """This process's own is in front, whoever names it once more."""
        self.list.keep("127.0.0.1:9876", "h:1")
        self.assertEqual(self.changes, [["127.0.0.1:9876"]])
        await self.fetch()
        self.assertEqual(self.list.addresses, ["127.0.0.1:9876", "i:2"])

    async def test_the_address_server_is_asked_each_period(self) -> None:
        """It is asked again after each fetchNamesrvAddrInterval."""
        task, _ = self.list.tasks()
        assert callable(task.period_ms)
        self.assertEqual((task.first_ms, task.period_ms()), (10_000, 10_000))
        self.settings.update({"fetchNamesrvAddrInterval": "120000"})
        self.assertEqual(task.period_ms(), 120_000)
        await task.run(0)  # type: ignore[misc]
        self.assertEqual(self.list.addresses, ["h:1", "i:2"])
        self.make(namesrvAddr="k:4")
        self.assertEqual([each.run(0) for each in self.list.tasks()], [None, None])


class LookupTests(ListTestCase):
    """The look-up of names in the settings by DNS."""

    def setUp(self) -> None:
        super().setUp()
        self.names = NameTable(ns=["10.0.0.2", "10.0.0.1"], other=["10.0.1.1"])
        self.patch(socket, "getaddrinfo", self.names)

    def use(self, names: str) -> None:
        self.make(namesrvAddr=names, **LOOKUP)

    async def test_dns_addresses_in_another_order_are_no_change(self) -> None:
        """All addresses of a name are used; another order is not a change."""
        self.use("ns:9876")
        self.assertEqual(self.list.addresses, [])
        await self.fetch()
        found = ["10.0.0.1:9876", "10.0.0.2:9876"]
        self.assertEqual(self.list.addresses, found)
        self.names.addresses["ns"].reverse()
        await self.fetch()
        self.assertEqual(self.changes, [found])
        self.names.addresses["ns"] = ["10.0.0.3"]
        await self.fetch()
        self.assertEqual(self.changes, [found, ["10.0.0.3:9876"]])
        self.assertEqual((len(self.lines), self.page.requests), (2, []))

    async def test_the_old_addresses_of_a_name_stay(self) -> None:
        """A line reports the failure, and another one its end."""
        self.use("ns:1;other:2")
        await self.fetch()
        self.names.addresses.update(ns=[], other=["10.0.1.2"])
        for _ in range(3):
            await self.fetch()
        self.assertEqual(self.list.addresses, ["10.0.0.1:1", "10.0.0.2:1", "10.0.1.2:2"])
        self.assertIn("ns:1 cannot be resolved", self.list.fault)
        self.assertEqual((len(self.lines), len(self.changes)), (3, 2))
        self.names.addresses["other"] = []
        await self.fetch()
        self.assertIn("other:2", self.list.fault)
        self.assertEqual(len(self.list.addresses), 3)
        self.names.addresses.update(ns=["10.0.0.1", "10.0.0.2"], other=["10.0.1.2"])
        await self.fetch()
        self.assertEqual((len(self.lines), self.list.fault, len(self.changes)), (5, "", 2))

    async def test_lookup_settings_change(self) -> None:
        """A new name is looked up immediately; without the flag the name is used as it is."""
        self.use("ns:1")
        first = self.list.fetch()
        self.settings.update({"namesrvAddr": "other:2"})
        assert first is not None
        await first
        await self.fetch()
        self.assertEqual((self.list.addresses, self.names.asked), (["10.0.1.1:2"], ["ns", "other"]))
        self.settings.update({"fetchNameSrvAddrByDnsLookup": "false"})
        self.assertEqual((self.list.addresses, self.changes[-1]), (["other:2"], ["other:2"]))
        self.settings.update({"fetchNameSrvAddrByDnsLookup": "true", "namesrvAddr": "ns:1"})
        await self.fetch()
        self.assertEqual(self.changes[-1], ["10.0.0.1:1", "10.0.0.2:1"])

    async def test_lookup_own(self) -> None:
        """The address of the process's own name server is not looked up, and not used twice."""
        self.use("here:1;ns:1")
        self.list.keep("10.0.0.1:1", "here:1")
        await self.fetch()
        self.assertEqual(self.list.addresses, ["10.0.0.1:1", "10.0.0.2:1"])
        self.assertEqual(self.names.asked, ["ns"])
        self.settings.update({"namesrvAddr": "here:1"})
        await self.fetch()
        self.assertEqual(self.list.addresses, ["10.0.0.1:1"])

    async def test_lookup_task(self) -> None:
        """The first look-up is after ten seconds, the next ones after
        updateNameServerAddrPeriod.
        """
        self.use("ns:1")
        server, task = self.list.tasks()
        assert callable(task.period_ms)
        self.assertEqual((task.first_ms, task.period_ms()), (10_000, 120_000))
        self.settings.update({"updateNameServerAddrPeriod": "5000"})
        self.assertEqual(task.period_ms(), 5000)
        self.assertIsNone(server.run(0))
        await task.run(0)  # type: ignore[misc]
        self.assertEqual(self.list.addresses, ["10.0.0.1:1", "10.0.0.2:1"])


class RegistrationTests(BrokerTestCase):
    """Brokers that find their name server only by an address server."""

    settings: ClassVar[dict[str, str]] = {"brokerName": "a"}

    def setUp(self) -> object:  # type: ignore[override]
        self.page = HttpPage()
        self.addCleanup(self.page.stop)
        return super().setUp()

    def known(self) -> set[str]:
        """Return the brokers that the name server knows."""
        return set(self.service.namesrv.name_server.routes.tables.brokers)

    async def start(self, **texts: str) -> Any:
        broker = make_service(brokerName="b", rmqAddressServerDomain=self.page.address,
                              fetchNamesrvAddrInterval="1000", **ON, **texts)
        self.addCleanup(broker.stopService)
        broker.startService()
        await broker.started
        return broker

    async def test_at_the_start(self) -> None:
        """The broker registers after the answer, and unregisters when it stops."""
        self.page.text = self.namesrv_address
        broker = await self.start()
        self.assertEqual(self.known(), {"a", "b"})
        self.assertEqual(broker.name_servers.unreached, {})
        await broker.stopService()
        self.assertEqual(self.known(), {"a"})

    async def test_a_broker_runs_and_registers_once_the_address_server_answers(self) -> None:
        """Without an answer the broker runs, and its health gives the reason."""
        self.page.status = 503
        broker = await self.start()
        self.assertEqual(self.known(), {"a"})
        fault = broker.kernel.health_checks["name servers"]
        self.assertIn("HTTP status 503", fault())
        self.page.status, self.page.text = 200, self.namesrv_address
        while self.known() != {"a", "b"}:
            await deferLater(reactor, 0.001)
        self.assertEqual(fault(), "")
        self.page.text = "nothing"
        asked = len(self.page.requests)
        while len(self.page.requests) < asked + 2:
            await deferLater(reactor, 0.001)
        self.assertEqual(broker.name_servers.addresses, [self.namesrv_address])

    async def test_a_broker_registers_once_dns_knows_the_name_server(self) -> None:
        """The name of the name server is unknown first, and then known."""
        names = NameTable(ns=[])
        self.patch(socket, "getaddrinfo", names)
        _, _, port = self.namesrv_address.rpartition(":")
        broker = make_service(brokerName="b", namesrvAddr=f"ns:{port}", **LOOKUP)
        self.addCleanup(broker.stopService)
        broker.startService()
        await broker.started
        self.assertEqual(self.known(), {"a"})
        fault = broker.kernel.health_checks["name servers"]
        self.assertIn(f"ns:{port} cannot be resolved", fault())
        names.addresses["ns"] = ["127.0.0.1"]
        await broker.name_server_list.fetch()
        while self.known() != {"a", "b"}:
            await deferLater(reactor, 0.001)
        self.assertEqual((fault(), broker.name_servers.addresses), ("", [self.namesrv_address]))
        await broker.stopService()
        self.assertEqual(self.known(), {"a"})

    async def test_stopped_while_it_asks(self) -> None:
        """A stop does not wait for a silent address server."""
        self.page.answer = lambda handler: self.page.is_over.wait() and None
        broker = make_service(brokerName="b", rmqAddressServerDomain=self.page.address, **ON)
        broker.startService()
        while not self.page.requests:
            await deferLater(reactor, 0.001)
        failed: list[object] = []
        broker.started.addErrback(failed.append)
        await broker.stopService()
        self.assertEqual((len(failed), self.known()), (1, {"a"}))
