"""The HTTP side: it checks a request, makes the page on a worker thread, and writes the answer.

A request goes through these steps: static files and the login page are open; any other address
needs a login. A form also needs the text of its login and an origin in this console. The
page is then made on a thread, so the reactor is free while brokers answer.

Where visitors have accounts, a login first asks the brokers, also on a thread, and the pages of
this login are made with its own sessions.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import urlencode

from twisted.internet.defer import Deferred
from twisted.internet.defer import TimeoutError as DeferredTimeout
from twisted.internet.threads import deferToThreadPool
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.python.threadpool import ThreadPool
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET

from twistmq.client.base.errors import Closed
from twistmq.console.access import Login, Logins, is_same_origin
from twistmq.console.account_session import AccountSession, KeysRefused
from twistmq.console.bounded_site import BoundedSite
from twistmq.console.cluster_sessions import ClusterSessions
from twistmq.console.page import Page
from twistmq.console.page_session import PageSession, is_denial
from twistmq.console.query import BadQuery, Query
from twistmq.console.renderer import Renderer, StaticFile, Visit, static_files
from twistmq.console.shared_parts import SharedParts
from twistmq.console.tail_limit import TooManyTails
from twistmq.console.views import CHANGE_S, View, find_view
from twistmq.console.visitor import ConsoleOptions, Visitor
from twistmq.protocol.codes import ResponseCode
from twistmq.protocol.errors import BrokerError, RemotingTimeout, RequestRefused
from twistmq.protocol.printable import one_line
from twistmq.protocol.signature import Credentials
from twistmq.tools.admin.session import AdminError

__all__ = ["ConsoleResource", "make_site"]

#: A page that is not made this long after its deadline is given up, seconds. A page with the
#: answers that have arrived is better than none, also on a busy machine that renders it slowly.
_LATE_S: Final = 1.0
#: Pages that are made at one time.
_PAGES_MAX: Final = 8
#: The time between two looks for logins that have been idle for too long, seconds.
_IDLE_CHECK_S: Final = 60.0
#: Keys that are longer are not sent to a broker.
_KEY_MAX: Final = 1_024
#: An access key is logged and shown up to this length.
_ACCOUNT_MAX: Final = 64
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
_TOO_MANY: Final = "There were too many attempts: wait a minute."
_NO_ANSWER: Final = "The name server or a broker did not answer in time."
_HTML: Final = b"text/html; charset=utf-8"
_JSON: Final = b"application/json"


class _Finisher:
    """Writes the answer to a request at a later time, unless its client has disconnected."""

    def __init__(self, request: Any) -> None:
        self._request = request
        self._disconnects: list[object] = []
        request.notifyFinish().addErrback(self._disconnects.append)

    def __call__(self, answer: Any) -> None:
        """Write an answer; NOT_DONE_YET: another finisher will."""
        if answer is not NOT_DONE_YET and not self._disconnects:
            self._request.write(answer)
            self._request.finish()


def _read(view: View, session: PageSession, query: Query) -> Page:
    """Make a page, with the servers that did not answer."""
    page = view.read(session, query)
    page.unanswered += session.unanswered
    page.notes += session.failures
    return page


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
        self.logins = Logins("" if options.accounts else options.token, reactor.seconds,
                             self._end_login)
        self._sessions = ClusterSessions(options.clusters)
        self._shared_parts = SharedParts(reactor.seconds)
        self._threads = ThreadPool(0, _PAGES_MAX, "twistmq-console-pages")
        self._threads.start()
        self._idle_check = reactor.callLater(_IDLE_CHECK_S, self._end_idle)

    def close(self) -> None:
        """End the logins, the threads and the connections."""
        self._idle_check.cancel()
        self.logins.end_all()
        self._sessions.close()
        self._threads.stop()

    def warm_up(self) -> None:
        """Prepare on a thread what the first page would otherwise wait for."""
        def work() -> None:
            self._renderer.compile_templates()
            self._sessions.session_of(next(iter(self._options.clusters)))

        deferToThreadPool(self._reactor, self._threads, work).addErrback(
            lambda failure: failure.trap(Closed)).addErrback(
            lambda failure: self.log.failure("the console was not warmed up", failure))

    def _end_idle(self) -> None:
        self.logins.end_idle()
        self._idle_check = self._reactor.callLater(_IDLE_CHECK_S, self._end_idle)

    def _end_login(self, login: Login) -> None:
        """Forget the keys of an account, and close its connections."""
        sessions, login.sessions = login.sessions, None
        if sessions is not None:
            self._threads.callInThread(sessions.close)

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
        if self._options.accounts and visitor.has_bearer:
            return self._log_in_program(visitor)
        login = self._login_of(visitor)
        if login is None:
            return self._ask_to_log_in(visitor)
        return self._admitted(visitor, login)

    def _admitted(self, visitor: Visitor, login: Login) -> Any:
        """Answer the request of a visitor who is logged in."""
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
            return self._refuse(visitor, 401, "Log in, or send Authorization: Bearer "
                                + ("ACCESS_KEY:SECRET_KEY." if self._options.accounts
                                   else "TOKEN."))
        after = visitor.local_address if visitor.request.method == b"GET" else ""
        return visitor.redirect_to(f"{self._options.base}/login"
                                + (f"?{urlencode({'next': after})}" if after else ""))

    def _log_in(self, visitor: Visitor) -> Any:
        if self._options.accounts:
            return self._log_in_account(visitor)
        token = visitor.query.text("token")
        if not token:
            return self._login_page(visitor, 200, "")
        if not self.logins.throttle.allows(visitor.address):
            return self._login_page(visitor, 429, _TOO_MANY)
        login = self.logins.enter(token, visitor.address)
        if login is None:
            self.log.warn("login with a wrong token from {address}", address=visitor.address)
            return self._login_page(visitor, 403, "This token is not valid.")
        self.log.info("login from {address}", address=visitor.address)
        return self._entered(visitor, login)

    def _entered(self, visitor: Visitor, login: Login) -> bytes:
        """Give a browser the cookie of its login instead of a former one, and send it on."""
        former = self.logins.find(visitor.login_id)
        if former is not None:
            self.logins.leave(former)
        visitor.set_cookie(login.id)
        after = visitor.safe_path(visitor.query.text("next"))
        return visitor.redirect_to(self._options.base + after)

    def _login_page(self, visitor: Visitor, status: int, text: str) -> bytes:
        page = Page("login", "Log in", facts={
            "fault": text, "next": visitor.query.text("next"), "accounts": self._options.accounts,
            "at": visitor.query.text("at")}, status=status)
        return self._written(visitor, page, Visit())

    # --- accounts

    def _log_in_account(self, visitor: Visitor) -> Any:
        """Log in a browser with the keys of an account, which only a form may send."""
        if not visitor.is_change:
            return self._login_page(visitor, 200, "")
        login = Login("", 0.0)
        return self._check_keys(
            visitor, login, visitor.query.text("access_key"),
            visitor.query.values.get("secret_key", ""),
            lambda: self._entered(visitor, login),
            lambda status, text: self._login_page(visitor, status, text))

    def _log_in_program(self, visitor: Visitor) -> Any:
        """Answer a program, which sends its keys each time; they are checked at the first time."""
        login_id = self.logins.id_of(visitor.bearer_token)
        known_login = self.logins.find(login_id)
        if known_login is not None:
            return self._admitted(visitor, known_login)
        login = Login("", 0.0, id=login_id)
        access_key, _, secret_key = visitor.bearer_token.partition(":")
        return self._check_keys(
            visitor, login, access_key, secret_key, lambda: self._admitted(visitor, login),
            lambda status, text: self._refuse(visitor, status, text))

    def _check_keys(
        self, visitor: Visitor, login: Login, access_key: str, secret_key: str,
        accepted: Callable[[], Any], refused: Callable[[int, str], bytes],
    ) -> Any:
        """Ask the brokers whether keys are right.

        The attempt counts as a failure until it has succeeded, so that attempts at the same time
        are throttled too.

        :param login: is completed and added when the keys are right.
        :param accepted: answers the request then.
        :param refused: answers it otherwise, with a status and a text.
        """
        if not (0 < len(access_key) <= _KEY_MAX and 0 < len(secret_key) <= _KEY_MAX):
            return refused(400, "Enter the access key and the secret key of your account.")
        cluster = self._cluster_of(visitor)
        if cluster is None:
            return refused(404, "The console has no such cluster.")
        if not self.logins.throttle.allows(visitor.address):
            return refused(429, _TOO_MANY)
        self.logins.throttle.count(visitor.address)
        sessions = self._account_sessions(Credentials(access_key, secret_key))
        finish = _Finisher(visitor.request)

        def work() -> None:
            session = sessions.session_of(cluster)
            assert isinstance(session, AccountSession)
            session.for_page(self._options.page_s).check_keys()

        def done(_: None) -> None:
            self.logins.throttle.take_back(visitor.address)
            login.account = one_line(access_key)[:_ACCOUNT_MAX]
            login.sessions = sessions
            self.logins.add(login)
            self.log.info("login of {account} from {address}", account=login.account,
                          address=visitor.address)
            finish(accepted())

        def fail(failure: Failure) -> None:
            self._threads.callInThread(sessions.close)
            if failure.check(KeysRefused):
                self.log.warn("login with wrong keys from {address}", address=visitor.address)
                finish(refused(403, "These keys are not valid."))
                return
            self.logins.throttle.take_back(visitor.address)
            finish(refused(*self._fault(failure, visitor, login)))

        deferred = deferToThreadPool(self._reactor, self._threads, work)
        deferred.addTimeout(self._options.page_s + _LATE_S, self._reactor)
        deferred.addCallbacks(done, fail).addErrback(
            lambda failure: self.log.failure("the login was not answered", failure))
        return NOT_DONE_YET

    def _account_sessions(self, credentials: Credentials) -> ClusterSessions:
        """Return sessions that sign with the keys of an account."""
        def maker(cluster: str) -> Callable[[], PageSession]:
            return lambda: AccountSession(self._sessions.session_of(cluster), credentials)

        return ClusterSessions({cluster: maker(cluster) for cluster in self._options.clusters})

    # --- pages

    def _cluster_of(self, visitor: Visitor) -> str | None:
        """Return the name of the cluster of a request; None if the console does not have it."""
        cluster = visitor.query.text("at") or next(iter(self._options.clusters))
        return cluster if cluster in self._options.clusters else None

    def _view(self, visitor: Visitor, login: Login) -> Any:
        match = find_view(visitor.parts)
        if match is None or (visitor.is_change and match[0].change is None):
            return self._refuse(visitor, 404, "The console has no such page.", login)
        if visitor.is_change and self._options.readonly:
            return self._refuse(visitor, 403, "The console was started read-only.", login)
        cluster = self._cluster_of(visitor)
        if cluster is None:
            return self._refuse(visitor, 404, "The console has no such cluster.", login)
        # A request without the sessions of its account must not be sent by the sessions of the
        # console.
        sessions = login.sessions if self._options.accounts else self._sessions
        if sessions is None:
            return self._ask_to_log_in(visitor)
        visitor.query.values.update(match[1])
        self._run(visitor, login, match[0], sessions, cluster)
        return NOT_DONE_YET

    # --- pages on threads

    def _run(
        self, visitor: Visitor, login: Login, view: View, sessions: ClusterSessions, cluster: str
    ) -> None:
        """Make a page, or carry out a form, on a thread; write the answer on the reactor."""
        if view.is_live and visitor.wants_part:
            self._run_part(visitor, login, view, sessions, cluster)
            return
        request = visitor.request
        finish = _Finisher(request)
        message = "" if visitor.is_change or visitor.wants_json else login.take_message()
        visit = Visit(tuple(visitor.parts), visitor.address_values, cluster, login.csrf, message,
                      login.account if self._options.accounts else "",
                      is_refused=login.is_refused)
        is_change, wants_json = visitor.is_change, visitor.wants_json
        page_s = self._options.page_s + view.extra_s

        def work() -> tuple[int, Mapping[bytes, bytes], bytes]:
            if is_change:
                assert view.change is not None
                session = sessions.session_of(cluster).for_page(CHANGE_S, is_change=True)
                return 200, {}, view.change(session, visitor.query).encode()
            page = _read(view, sessions.session_of(cluster).for_page(page_s), visitor.query)
            if wants_json:
                return page.status, {b"content-type": _JSON}, page.as_json(cluster)
            if page.file is not None:
                return page.status, page.file.file_headers, page.file.content
            return page.status, {b"content-type": _HTML}, self._renderer.as_html(page, visit)

        def done(answer: tuple[int, Mapping[bytes, bytes], bytes]) -> None:
            status, headers, content = answer
            if is_change:
                self._shared_parts.forget()
                content = self._changed(visitor, login, content.decode())
            else:
                request.setResponseCode(status)
                for name, value in headers.items():
                    request.setHeader(name, value)
            finish(content)

        def fail(failure: Failure) -> None:
            if is_change:
                self._shared_parts.forget()
            status, text = self._fault(failure, visitor, login)
            if is_change and not wants_json and status != 500:
                login.message = f"Nothing was changed: {text}" if status == 400 else text
                login.is_refused = True
                finish(visitor.redirect_to(self._options.base + visitor.local_address))
            else:
                finish(self._refuse(visitor, status, text, login))

        deferred = deferToThreadPool(self._reactor, self._threads, work)
        deferred.addTimeout((CHANGE_S if is_change else page_s) + _LATE_S, self._reactor)
        deferred.addCallbacks(done, fail).addErrback(
            lambda failure: self.log.failure("the answer was not written", failure))

    def _run_part(
        self, visitor: Visitor, login: Login, view: View, sessions: ClusterSessions, cluster: str
    ) -> None:
        """Answer a refresh with the live part of a page, which contains nothing of the login."""
        finish = _Finisher(visitor.request)
        visit = Visit(tuple(visitor.parts), visitor.address_values, cluster)
        page_s = self._options.page_s + view.extra_s

        def work() -> tuple[int, bytes]:
            page = _read(view, sessions.session_of(cluster).for_page(page_s), visitor.query)
            return page.status, self._renderer.as_html(page, visit, is_part=True)

        def make() -> Deferred[tuple[int, bytes]]:
            return deferToThreadPool(self._reactor, self._threads, work).addTimeout(
                page_s + _LATE_S, self._reactor)

        def done(part: tuple[int, bytes]) -> None:
            status, content = part
            visitor.request.setResponseCode(status)
            visitor.request.setHeader(b"content-type", _HTML)
            finish(content)

        def fail(failure: Failure) -> None:
            finish(self._refuse(visitor, *self._fault(failure, visitor, login), login))

        # The sessions stand for the rights of the visitor.
        key = (sessions.serial, cluster, visit.parts, tuple(sorted(visitor.query.values.items())))
        self._shared_parts.get(key, make).addCallbacks(done, fail).addErrback(
            lambda failure: self.log.failure("the answer was not written", failure))

    def _changed(self, visitor: Visitor, login: Login, result: str) -> bytes:
        text, *details = result.split("\n")
        self.log.info("change by {account} from {address}: {result}", account=login.account,
                      address=visitor.address, result=text)
        if visitor.wants_json:
            visitor.request.setHeader(b"content-type", _JSON)
            return json.dumps({"result": text, **({"details": details} if details else {})}
                              ).encode() + b"\n"
        login.message, login.is_refused = result, False
        return visitor.redirect_to(self._options.base + visitor.next_path)

    def _fault(self, failure: Failure, visitor: Visitor, login: Login) -> tuple[int, str]:
        """Return the status and the text for an error."""
        error = failure.value
        if isinstance(error, Closed):
            return 401, "This login has ended."
        if isinstance(error, BrokerError) and is_denial(error):
            account = f"account {login.account}" if self._options.accounts else (
                "account of the console")
            return 403, f"The {account} may not do this: {error}"
        if isinstance(error, BadQuery):
            return 400, str(error)
        if isinstance(error, TooManyTails):
            return 429, str(error)
        if isinstance(error, AdminError):
            return 404, str(error)
        if isinstance(error, RequestRefused):
            is_unknown = error.response_code in (ResponseCode.TOPIC_NOT_EXIST,
                                                 ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST)
            return (404 if is_unknown else 502), str(error)
        if isinstance(error, DeferredTimeout | RemotingTimeout):
            return 504, _NO_ANSWER
        if isinstance(error, BrokerError | ValueError):
            return 502, str(error)
        self.log.failure("no page for {path}", failure, path="/".join(visitor.parts))
        return 500, "The console could not make this page; its log has the reason."

    # --- answers

    def _refuse(
        self, visitor: Visitor, status: int, text: str, login: Login | None = None
    ) -> bytes:
        page = Page("error", str(status), facts={"text": text}, status=status)
        visit = Visit() if login is None else Visit(
            csrf=login.csrf, account=login.account if self._options.accounts else "")
        return self._written(visitor, page, visit)

    def _written(self, visitor: Visitor, page: Page, visit: Visit) -> bytes:
        visitor.request.setResponseCode(page.status)
        visitor.request.setHeader(b"content-type", _JSON if visitor.wants_json else _HTML)
        return page.as_json("") if visitor.wants_json else self._renderer.as_html(page, visit)


def make_site(reactor: Any, options: ConsoleOptions) -> tuple[Any, ConsoleResource]:
    """Return the site to listen with, and its resource, which the owner closes."""
    resource = ConsoleResource(reactor, options)
    return BoundedSite(resource, reactor), resource
