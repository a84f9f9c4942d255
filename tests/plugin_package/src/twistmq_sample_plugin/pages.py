"""A page of the supervisor of several brokers: which of them answer."""

from __future__ import annotations

import json

from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Request

from twistmq.broker.api.observe import BrokerPages, PageAnswer, SupervisorPages

__all__ = ["who_answers"]


class _Who(Resource):
    """GET any path: {"NAME": true}."""

    isLeaf = True

    def __init__(self, brokers: BrokerPages) -> None:
        super().__init__()
        self._brokers = brokers

    def render_GET(self, request: Request) -> int:
        def write(answers: dict[str, PageAnswer]) -> None:
            request.write(json.dumps(
                {name: answer.status > 0 for name, answer in answers.items()}).encode())
            request.finish()

        self._brokers.ask("sample.pages_port", "/").addCallback(write)
        return NOT_DONE_YET


def who_answers(port: int, brokers: BrokerPages) -> SupervisorPages:
    """The page, on the loopback address."""
    return SupervisorPages(_Who(brokers), "sample.pages_port", port, "127.0.0.1")
