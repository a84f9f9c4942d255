"""Pages of a supervisor, which a plugin joins from the pages of several brokers.

Source: design of twistmq.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from twisted.internet.defer import Deferred

__all__ = ["BrokerPages", "PageAnswer", "SupervisorPages"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PageAnswer:
    """The answer of one broker to a request for a page.

    :param status: the HTTP status; 0 if there was no answer.
    :param body: the page.
    :param fault: the reason why there was no answer; empty if there was one.
    """

    status: int
    body: bytes
    fault: str = ""


class BrokerPages(Protocol):
    """The pages of all brokers of a supervisor."""

    def ask(self, port_setting: str, path: str) -> Deferred[dict[str, PageAnswer]]:
        """Request a page from each broker, and from the name server under ``twistmq up``.

        :param port_setting: the setting of the port; its row is an ``inner_port``.
        :param path: the path of the page, such as "/metrics".
        :returns: fires with the answers by broker name, in the order of the brokers' numbers.
        """

    @property
    def restarts(self) -> Mapping[str, int]:
        """Return how often the process of each broker was restarted, by the name of the broker."""

    def on_thread(self, call: Callable[[], T]) -> Deferred[T]:
        """Run a long call on a thread, such as joining pages of several megabytes."""


@dataclass(frozen=True, slots=True)
class SupervisorPages:
    """The pages that a supervisor serves.

    :param resource: a resource of twisted.web.
    :param port_setting: the setting of the port, for an error message.
    :param port: the port to listen on.
    :param interface: the address to bind to.
    """

    resource: Any
    port_setting: str
    port: int
    interface: str
