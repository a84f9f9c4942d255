"""The HTTP side: it checks a request, makes the page on a worker thread, and writes the answer.

A request goes through these steps: static files and the login page are open; any other address
needs a login. A form also needs the text of its login and an origin in this console. The
page is then made on a thread, so the reactor is free while brokers answer.
"""

from __future__ import annotations

import json
from typing import Any, Final
from urllib.parse import urlencode

from twisted.internet.defer import TimeoutError as DeferredTimeout
from twisted.internet.threads import deferToThreadPool
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.python.threadpool import ThreadPool
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Request, Site

from twistmq.console.access import Login, Logins, is_same_origin
from twistmq.console.page import Page
from twistmq.console.page_session import PageSession
from twistmq.console.query import BadQuery
from twistmq.console.renderer import Renderer, StaticFile, Visit, static_files
from twistmq.console.views import CHANGE_S, View, find_view
from twistmq.console.visitor import ConsoleOptions, Visitor
from twistmq.protocol.codes import ResponseCode
from twistmq.protocol.errors import BrokerError, RemotingTimeout, RequestRefused
from twistmq.tools.admin.session import AdminError

__all__ = ["ConsoleResource", "make_site"]

#: The size of a request's body, bytes: a message of 256 KiB in which each byte is escaped.
REQUEST_BYTES_MAX: Final = 1024 * 1024
#: A page that is not made this long after its deadline is given up, seconds.
_LATE_S: Final = 0.15
#: Pages that are made at one time.
_PAGES_MAX: Final = 8
_HEADERS: Final = {
    b"content-security-policy":
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        b"connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
    b"referrer-policy": b"same-origin",
    b"cross-origin-opener-policy": b"same-origin",
    b"cross-origin-resource-policy": b"same-origin",
    b"server": b"twistmq console",
}
_HTML: Final = b"text/html; charset=utf-8"
_JSON: Final = b"application/json"


class _BoundedRequest(Request):
    """A request whose body is refused above a size before it is in memory."""

    _body_bytes = 0

    def gotLength(self, length: int | None) -> None:
        if length is not None and length > REQUEST_BYTES_MAX:
            self._refuse()
        else:
            super().gotLength(length)  # type: ignore[no-untyped-call]

    def handleContentChunk(self, data: bytes) -> None:
        self._body_bytes += len(data)
        if self._body_bytes <= REQUEST_BYTES_MAX:
            super().handleContentChunk(data)  # type: ignore[no-untyped-call]
        elif self._body_bytes - len(data) <= REQUEST_BYTES_MAX:
            self._refuse()

    def _refuse(self) -> None:
        self._body_bytes = REQUEST_BYTES_MAX
        transport: Any = self.channel.transport
        transport.write(b"HTTP/1.1 413 Content Too Large\r\ncontent-length: 0\r\n"
                        b"connection: close\r\n\r\n")
        transport.loseConnection()


class ConsoleResource(Resource):
    """All addresses of a console."""

    isLeaf = True
    log = Logger()

    def __init__(self, reactor: Any, options: ConsoleOptions) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._reactor = reactor
        self._options = options
        self._files = static_files()
        self._renderer = Renderer(options.base, tuple(options.clusters), self._files,
                                  readonly=options.readonly)
        self.logins = Logins(options.token, reactor.seconds)
        self._sessions: dict[str, PageSession] = {}
        self._threads = ThreadPool(0, _PAGES_MAX, "twistmq-console-pages")
        self._threads.start()

    def close(self) -> None:
        """End the threads and the connections."""
        for session in self._sessions.values():
            session.close()
        self._threads.stop()

    # --- the steps of a request

    def render(self, request: Any) -> Any:
        for name, value in _HEADERS.items():
            request.setHeader(name, value)
        visitor = Visitor(request, self._options)
        if visitor.parts[:1] == ["static"]:
            return self._static(request, visitor.parts[1:])
        request.setHeader(b"cache-control", b"no-store")
        if request.method not in (b"GET", b"HEAD", b"POST"):
            request.setHeader(b"allow", b"GET, HEAD, POST")
            return self._refuse(visitor, 405, "The console answers GET, HEAD and POST.")
        if visitor.is_change and not is_same_origin(
                visitor.header("origin"), visitor.header("sec-fetch-site"), visitor.host):
            return self._refuse(visitor, 403, "This form was not sent by a page of the console.")
        if visitor.parts == ["login"]:
            return self._log_in(visitor)
        login = self._login_of(visitor)
        if login is None:
            return self._ask_to_log_in(visitor)
        if visitor.is_change and not (visitor.has_bearer or login.accepts(
                visitor.query.text("csrf"))):
            return self._refuse(visitor, 403, "This form has expired: load its page again.", login)
        if visitor.parts == ["logout"] and visitor.is_change:
            self.logins.leave(login)
            return visitor.redirect_to(f"{self._options.base}/login")
        return self._view(visitor, login)

    def _static(self, request: Any, parts: list[str]) -> bytes:
        file: StaticFile | None = self._files.get(parts[0]) if len(parts) == 1 else None
        if file is None:
            request.setResponseCode(404)
            request.setHeader(b"content-type", b"text/plain; charset=utf-8")
            return b"There is no such file.\n"
        request.setHeader(b"content-type", file.content_type)
        request.setHeader(b"cache-control", b"max-age=31536000, immutable")
        return file.content

    def _login_of(self, visitor: Visitor) -> Login | None:
        bearer = visitor.bearer_token
        if not visitor.has_bearer:
            return self.logins.find(visitor.login_id)
        if not (self.logins.throttle.allows(visitor.address)
                and self.logins.accepts(bearer, visitor.address)):
            return None
        return Login("token", 0.0)

    def _ask_to_log_in(self, visitor: Visitor) -> bytes:
        if visitor.wants_json or visitor.has_bearer:
            visitor.request.setHeader(b"www-authenticate", b'Bearer realm="twistmq console"')
            return self._refuse(visitor, 401, "Log in, or send Authorization: Bearer TOKEN.")
        after = visitor.local_address if visitor.request.method == b"GET" else ""
        return visitor.redirect_to(f"{self._options.base}/login"
                                + (f"?{urlencode({'next': after})}" if after else ""))

    def _log_in(self, visitor: Visitor) -> bytes:
        token = visitor.query.text("token")
        if not token:
            return self._login_page(visitor, 200, "")
        if not self.logins.throttle.allows(visitor.address):
            return self._login_page(visitor, 429, "There were too many attempts: wait a minute.")
        login = self.logins.enter(token, visitor.address)
        if login is None:
            self.log.warn("login with a wrong token from {address}", address=visitor.address)
            return self._login_page(visitor, 403, "This token is not valid.")
        self.log.info("login from {address}", address=visitor.address)
        visitor.set_cookie(login.id)
        after = visitor.safe_path(visitor.query.text("next"))
        return visitor.redirect_to(self._options.base + after)

    def _login_page(self, visitor: Visitor, status: int, text: str) -> bytes:
        page = Page("login", "Log in", facts={
            "fault": text, "next": visitor.query.text("next")}, status=status)
        return self._written(visitor, page, Visit())

    def _view(self, visitor: Visitor, login: Login) -> Any:
        match = find_view(visitor.parts)
        if match is None or (visitor.is_change and match[0].change is None):
            return self._refuse(visitor, 404, "The console has no such page.", login)
        if visitor.is_change and self._options.readonly:
            return self._refuse(visitor, 403, "The console was started read-only.", login)
        cluster = visitor.query.text("at") or next(iter(self._options.clusters))
        if cluster not in self._options.clusters:
            return self._refuse(visitor, 404, "The console has no such cluster.", login)
        visitor.query.values.update(match[1])
        self._run(visitor, login, match[0], cluster)
        return NOT_DONE_YET

    # --- pages on threads

    def _session(self, cluster: str) -> PageSession:
        session = self._sessions.get(cluster)
        if session is None:
            session = self._sessions[cluster] = self._options.clusters[cluster]()
        return session

    def _run(self, visitor: Visitor, login: Login, view: View, cluster: str) -> None:
        """Make a page, or carry out a form, on a thread; write the answer on the reactor."""
        request = visitor.request
        disconnects: list[object] = []
        request.notifyFinish().addErrback(disconnects.append)
        message = "" if visitor.is_change or visitor.wants_json else login.take_message()
        visit = Visit(tuple(visitor.parts), visitor.address_values, cluster, login.csrf, message)
        is_change, wants_json = visitor.is_change, visitor.wants_json
        page_s = self._options.page_s + view.extra_s

        def work() -> tuple[int, bytes]:
            if is_change:
                assert view.change is not None
                session = self._session(cluster).for_page(CHANGE_S)
                return 200, view.change(session, visitor.query).encode()
            session = self._session(cluster).for_page(page_s)
            page = view.read(session, visitor.query)
            page.unanswered += session.unanswered
            page.notes += session.failures
            return page.status, (page.as_json(cluster) if wants_json
                                 else self._renderer.as_html(page, visit))

        def done(answer: tuple[int, bytes]) -> None:
            status, content = answer
            if is_change:
                content = self._changed(visitor, login, content.decode())
            else:
                request.setResponseCode(status)
                request.setHeader(b"content-type", _JSON if wants_json else _HTML)
            finish(content)

        def fail(failure: Failure) -> None:
            status, text = self._fault(failure, visitor)
            if is_change and not wants_json and status != 500:
                login.message = f"Nothing was changed: {text}" if status == 400 else text
                finish(visitor.redirect_to(self._options.base + visitor.local_address))
            else:
                finish(self._refuse(visitor, status, text, login))

        def finish(content: bytes) -> None:
            if not disconnects:
                request.write(content)
                request.finish()

        deferred = deferToThreadPool(self._reactor, self._threads, work)
        deferred.addTimeout((CHANGE_S if is_change else page_s) + _LATE_S, self._reactor)
        deferred.addCallbacks(done, fail).addErrback(
            lambda failure: self.log.failure("the answer was not written", failure))

    def _changed(self, visitor: Visitor, login: Login, result: str) -> bytes:
        self.log.info("change by {account} from {address}: {result}", account=login.account,
                      address=visitor.address, result=result)
        if visitor.wants_json:
            visitor.request.setHeader(b"content-type", _JSON)
            return json.dumps({"result": result}).encode() + b"\n"
        login.message = result
        return visitor.redirect_to(self._options.base + visitor.next_path)

    def _fault(self, failure: Failure, visitor: Visitor) -> tuple[int, str]:
        """Return the status and the text for an error."""
        error = failure.value
        if isinstance(error, BadQuery):
            return 400, str(error)
        if isinstance(error, AdminError):
            return 404, str(error)
        if isinstance(error, RequestRefused):
            is_unknown = error.response_code in (ResponseCode.TOPIC_NOT_EXIST,
                                                 ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST)
            return (404 if is_unknown else 502), str(error)
        if isinstance(error, DeferredTimeout | RemotingTimeout):
            return 504, "The name server or a broker did not answer in time."
        if isinstance(error, BrokerError | ValueError):
            return 502, str(error)
        self.log.failure("no page for {path}", failure, path="/".join(visitor.parts))
        return 500, "The console could not make this page; its log has the reason."

    # --- answers

    def _refuse(
        self, visitor: Visitor, status: int, text: str, login: Login | None = None
    ) -> bytes:
        page = Page("error", str(status), facts={"text": text}, status=status)
        return self._written(visitor, page, Visit(csrf=login.csrf if login else ""))

    def _written(self, visitor: Visitor, page: Page, visit: Visit) -> bytes:
        visitor.request.setResponseCode(page.status)
        visitor.request.setHeader(b"content-type", _JSON if visitor.wants_json else _HTML)
        return page.as_json("") if visitor.wants_json else self._renderer.as_html(page, visit)


def make_site(reactor: Any, options: ConsoleOptions) -> tuple[Any, ConsoleResource]:
    """Return the site to listen with, and its resource, which the owner closes."""
    resource = ConsoleResource(reactor, options)
    site: Any = Site(  # type: ignore[no-untyped-call]
        resource, requestFactory=_BoundedRequest)
    site.displayTracebacks = False
    site.noisy = False
    # Twisted's access log would contain the token of the login address.
    site.log = lambda request: None
    return site, resource
