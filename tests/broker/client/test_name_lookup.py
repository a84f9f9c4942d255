"""The addresses of a host name."""

from __future__ import annotations

import socket
from threading import Event, get_ident
from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.trial.unittest import SynchronousTestCase, TestCase

from tests.broker.client.name_table import NameTable
from twistmq.broker.client import name_lookup
from twistmq.broker.client.name_lookup import NameLookup, look_up
from twistmq.protocol.errors import RemotingConnectError, RemotingError, RemotingTimeout


class LookUpTests(SynchronousTestCase):
    """The blocking look-up."""

    def setUp(self) -> None:
        self.names = NameTable(ns=["10.0.0.2", "fe80::1%eth0", "10.0.0.1"], gone=[])
        self.patch(socket, "getaddrinfo", self.names)

    def test_all_addresses_are_found_once_ipv4_first(self) -> None:
        """Each address is returned once with the port, IPv4 first, in order."""
        self.assertEqual(look_up("ns:9876"), ["10.0.0.1:9876", "10.0.0.2:9876", "[fe80::1]:9876"])
        self.assertEqual(look_up("127.0.0.1:1"), ["127.0.0.1:1"])
        self.assertEqual(look_up("[::1]:2"), ["[::1]:2"])

    def test_an_unknown_or_invalid_name_is_an_error(self) -> None:
        """The name is unknown or invalid, or the text is not host:port."""
        for name, why in (("gone:9876", "not known"), (f"{'a' * 64}:1", "label"),
                          ("ns:0", "is not host:port"), ("ns", "is not host:port")):
            error = self.assertRaises(RemotingConnectError, look_up, name)
            self.assertIn(f"{name} cannot be resolved: ", str(error))
            self.assertIn(why, str(error))


class NameLookupTests(TestCase):
    """The look-up on a thread."""

    timeout = 30

    def setUp(self) -> None:
        self.lookup = NameLookup(reactor)
        self.threads: list[int] = []
        self.is_over = Event()
        self.addCleanup(self.is_over.set)

    def waits(self, *_: Any, **__: Any) -> list[Any]:
        """Install a resolver that does not answer until the test is over."""
        self.threads.append(get_ident())
        self.is_over.wait()
        return []

    async def test_fetch_answers_like_the_blocking_lookup(self) -> None:
        """It returns the results and raises the errors of the blocking look-up."""
        self.patch(socket, "getaddrinfo", NameTable(ns=["10.0.0.1"], gone=[]))
        self.assertEqual(await self.lookup.fetch("ns:1"), ["10.0.0.1:1"])
        await self.assertFailure(
            Deferred.fromCoroutine(self.lookup.fetch("gone:1")), RemotingConnectError)

    async def test_nobody_is_held_up(self) -> None:
        """A resolver that does not answer has its own thread, and is given up after a time-out."""
        self.patch(name_lookup, "_TIMEOUT_SECONDS", 0.2)
        self.patch(socket, "getaddrinfo", self.waits)
        error = await self.assertFailure(
            Deferred.fromCoroutine(self.lookup.fetch("ns:1")), RemotingTimeout)
        self.assertIn("no answer for ns:1 within 0.2 s", str(error))
        # On a busy machine the thread may begin after the lookup was given up.
        while not self.threads:
            await deferLater(reactor, 0.001)
        self.assertEqual(len(self.threads), 1)
        self.assertNotIn(get_ident(), self.threads)

    async def test_a_stop_fails_the_pending_lookup_at_once(self) -> None:
        """A look-up that waits fails immediately; a stop without a look-up is possible as well."""
        self.lookup.stop()
        self.patch(socket, "getaddrinfo", self.waits)
        asked = Deferred.fromCoroutine(self.lookup.fetch("ns:1"))
        while not self.threads:
            await deferLater(reactor, 0.001)
        self.lookup.stop()
        await self.assertFailure(asked, RemotingError)
