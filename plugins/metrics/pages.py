"""The pages of an exporter: /metrics and /health, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web.pages import notFound
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET

__all__ = ["HealthChecks", "MadePage", "joined_root_page", "root_page"]

#: The number of requests that may wait for the metrics page; further ones are refused. It is half
#: of the possible connections, so that the health page can still be requested.
_SCRAPES_MAX: Final = 32
_METRICS_TYPE: Final = b"text/plain; version=0.0.4; charset=utf-8"
_HEALTH_TYPE: Final = b"application/json"

#: Checks by name; each returns a description of the fault, or an empty text.
HealthChecks: TypeAlias = Mapping[str, Callable[[], str]]


def root_page(
    scrape: Callable[[], Deferred[bytes]], name: Mapping[str, Callable[[], str]],
    checks: Callable[[], HealthChecks],
) -> Resource:
    """The pages of a port.

    :param scrape: makes the page of metrics.
    :param name: how the health page names the server: a key, and a function that gives its value.
    :param checks: the conditions that must hold now.
    """
    root = _Root()  # type: ignore[no-untyped-call]
    root.putChild(b"metrics", MadePage(
        _METRICS_TYPE, lambda: scrape().addCallback(lambda page: (200, page))))
    root.putChild(b"health", _HealthPage(name, checks))
    return root


def joined_root_page(
    metrics: Callable[[], Deferred[tuple[int, bytes]]],
    health: Callable[[], Deferred[tuple[int, bytes]]],
) -> Resource:
    """The pages of a port that joins the pages of several servers.

    :param metrics: makes the page of metrics; fires with its status and text.
    :param health: makes the page of health, as JSON; fires with its status and text.
    """
    root = _Root()  # type: ignore[no-untyped-call]
    root.putChild(b"metrics", MadePage(_METRICS_TYPE, metrics))
    root.putChild(b"health", MadePage(_HEALTH_TYPE, health))
    return root


class _Root(Resource):
    """The root of the port; any other path is not found."""

    def getChild(self, path: bytes, request: object) -> Any:
        return notFound()


class _Page(Resource):
    """A page that can only be read."""

    isLeaf = True

    def render(self, request: Any) -> Any:
        if request.method in (b"GET", b"HEAD"):
            return super().render(request)  # type: ignore[no-untyped-call]
        request.setResponseCode(405)
        request.setHeader(b"allow", b"GET, HEAD")
        return b""


class MadePage(_Page):
    """A page that takes some time to make.

    :param content_type: the header.
    :param make: fires with the status and the text.
    """

    log = Logger()

    def __init__(
        self, content_type: bytes, make: Callable[[], Deferred[tuple[int, bytes]]]
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._content_type = content_type
        self._make = make
        self._waiting = 0

    def render_GET(self, request: Any) -> Any:
        request.setHeader(b"content-type", self._content_type)
        if self._waiting >= _SCRAPES_MAX:
            request.setResponseCode(503)
            return b"as many as may wait for this page do already\n"
        self._waiting += 1
        disconnects: list[object] = []
        request.notifyFinish().addErrback(disconnects.append).addBoth(self._ended)

        def write(answer: tuple[int, bytes]) -> None:
            if not disconnects:
                status, page = answer
                request.setResponseCode(status)
                request.write(page)
                request.finish()

        def fail(failure: Failure) -> None:
            self.log.error("there is no page {path}: {why}", path=request.path.decode(),
                           why=failure.getErrorMessage())
            if not disconnects:
                request.setResponseCode(500)
                request.finish()

        self._make().addCallbacks(write, fail)
        return NOT_DONE_YET

    def _ended(self, _: object) -> None:
        """Called when a request is answered or its connection is lost."""
        self._waiting -= 1


class _HealthPage(_Page):
    """GET /health."""

    def __init__(
        self, name: Mapping[str, Callable[[], str]], checks: Callable[[], HealthChecks]
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._name = name
        self._checks = checks

    def render_GET(self, request: Any) -> bytes:
        faults = {name: check() for name, check in self._checks().items()}
        is_well = not any(faults.values())
        request.setResponseCode(200 if is_well else 503)
        request.setHeader(b"content-type", _HEALTH_TYPE)
        return json.dumps({
            "status": "ok" if is_well else "broken",
            **{key: value() for key, value in self._name.items()},
            "reasons": [f"{name}: {fault}" for name, fault in faults.items() if fault],
            "checks": {name: fault or "ok" for name, fault in faults.items()},
        }).encode() + b"\n"
