"""What the tests of the console share: a broker, a console, and a browser without a screen."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode

from twisted.trial.unittest import SynchronousTestCase

from tests.tools.admin.case import AdminCase
from twistmq.broker.testing.in_process_broker import ReactorThread
from twistmq.console.page_session import PageSession
from twistmq.console.site import ConsoleResource, make_site
from twistmq.console.visitor import ConsoleOptions
from twistmq.protocol.bodies import MessageQueue
from twistmq.tools.admin.offsets import commit_offset

__all__ = ["PATIENCE_S", "TOKEN", "Answer", "Browser", "ConsoleCase", "start_console"]

TOKEN: Final = "a-token-for-tests-0123456789"
#: The deadline of pages in tests that are not about it, seconds: the machine may be busy.
PATIENCE_S: Final = 30.0


@dataclass(frozen=True)
class Answer:
    """What a browser got."""

    status: int
    headers: dict[str, str]
    content: bytes

    @property
    def text(self) -> str:
        """The content of a page."""
        return self.content.decode()

    @property
    def rows(self) -> dict[str, list[dict[str, Any]]]:
        """The tables of the JSON form."""
        tables: dict[str, list[dict[str, Any]]] = json.loads(self.text)["tables"]
        return tables


class Browser:
    """Sends requests with the cookie that it was given.

    :param base: the path before all addresses.
    """

    def __init__(self, port: int, base: str = "") -> None:
        self.port = port
        self.base = base
        self.cookie = ""
        self.csrf = ""

    def request(
        self, method: str, path: str, headers: Mapping[str, str] | None = None,
        body: bytes | str | None = None,
    ) -> Answer:
        """Send a request; redirects are not followed."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, self.base + path, body, {
                **({"Cookie": self.cookie} if self.cookie else {}), **(headers or {})})
            response = connection.getresponse()
            content = response.read()
        finally:
            connection.close()
        names = {name.lower(): value for name, value in response.getheaders()}
        if "set-cookie" in names:
            self.cookie = names["set-cookie"].partition(";")[0]
        return Answer(response.status, names, content)

    def get(self, path: str, **headers: str) -> Answer:
        """Load a page."""
        return self.request("GET", path, headers)

    def json(self, path: str) -> Answer:
        """Load the JSON form of a page."""
        return self.request("GET", path, {"Accept": "application/json"})

    def post(self, path: str, fields: Mapping[str, str], **headers: str) -> Answer:
        """Send a form of the console, with the text of the login."""
        return self.request("POST", path, {
            "Content-Type": "application/x-www-form-urlencoded", **headers},
            urlencode({"csrf": self.csrf, **fields}))

    def log_in(self) -> None:
        """Log in by the address that the console prints, and learn the text for forms."""
        self.get(f"/login?token={TOKEN}")
        self.csrf = self.get("/brokers").text.partition('name="csrf" value="')[2].partition('"')[0]


def start_console(
    case: SynchronousTestCase, options: ConsoleOptions
) -> tuple[Browser, ReactorThread, ConsoleResource]:
    """Start a console that ends with a test.

    :returns: a browser that is not logged in, the thread of the console, and its resource.
    """
    thread = ReactorThread()
    case.addCleanup(thread.stop)

    def start() -> tuple[Any, ConsoleResource]:
        site, resource = make_site(thread.reactor, options)
        return thread.reactor.listenTCP(0, site, interface="127.0.0.1"), resource

    port, resource = thread.call(start)
    case.addCleanup(thread.call, resource.close)
    case.addCleanup(thread.call, port.stopListening)
    return Browser(port.getHost().port, options.base), thread, resource


class ConsoleCase(AdminCase):
    """A name server, a broker and a console, started for each test."""

    readonly = False
    base = ""
    accounts = False

    def setUp(self) -> None:
        super().setUp()
        self.browser, self.thread, self.resource = start_console(self, ConsoleOptions(
            {"default": self.make_session}, TOKEN, self.base, self.readonly, page_s=PATIENCE_S,
            accounts=self.accounts))

    def make_session(self) -> PageSession:
        """Make the session of the console."""
        return PageSession(self.running.namesrv_address, timeout_s=PATIENCE_S)

    def topic(self, name: str, queues: int = 2) -> None:
        """Create a topic."""
        status, _, err = self.call("updateTopic", "-t", name, "-b", self.broker,
                                   "-r", str(queues), "-w", str(queues))
        self.assertEqual((status, err), (0, ""))

    def send(self, topic: str, body: str = "hello", *options: str) -> None:
        """Send a message."""
        status, _, err = self.call("sendMessage", "-t", topic, "-p", body, *options)
        self.assertEqual((status, err), (0, ""))

    def commit(self, group: str, topic: str, queue: int, offset: int) -> None:
        """Create a group, and commit an offset as one of its clients would."""
        self.rows("updateSubGroup", "-b", self.broker, "-g", group)
        with PageSession(self.running.namesrv_address, timeout_s=PATIENCE_S) as session:
            commit_offset(session, self.broker, group, MessageQueue(topic, "broker-a", queue),
                          offset)
