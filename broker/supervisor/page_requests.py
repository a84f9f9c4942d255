"""Requests for the HTTP pages of brokers.

Source: design of twistmq.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from twisted.internet.defer import Deferred, gatherResults
from twisted.web.client import Agent, readBody

from twistmq.broker.observe.supervisor_pages import PageAnswer

__all__ = ["PATIENCE", "ask_pages"]

#: The time for a connection and an answer together, seconds. A broker that hangs must not make the
#: requester lose all pages: Prometheus waits 10 s, and the health check of the image waits 4 s.
PATIENCE: Final = 3


def ask_pages(reactor: Any, urls: Mapping[str, str]) -> Deferred[dict[str, PageAnswer]]:
    """Request several pages at the same time.

    :param urls: the URLs by name.
    :returns: fires with the answers by name, including the requests that got no answer.
    """
    agent = Agent(reactor, connectTimeout=PATIENCE)  # type: ignore[no-untyped-call]
    requests = [Deferred.fromCoroutine(_ask(reactor, agent, url)) for url in urls.values()]
    answers: Deferred[dict[str, PageAnswer]] = gatherResults(requests).addCallback(
        lambda page_answers: dict(zip(urls, page_answers, strict=True)))
    return answers


async def _ask(reactor: Any, agent: Agent, url: str) -> PageAnswer:
    try:
        asking = Deferred.fromCoroutine(_page(agent, url))
        return await asking.addTimeout(PATIENCE, reactor)
    except Exception as error:
        return PageAnswer(0, b"", str(error) or type(error).__name__)


async def _page(agent: Agent, url: str) -> PageAnswer:
    response = await agent.request(b"GET", url.encode())
    return PageAnswer(response.code, await readBody(response))
