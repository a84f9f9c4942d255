"""Pages of a supervisor: the pages of several brokers of one command, joined by a plugin.

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
    """The answer of one broker's page.

    :param status: of HTTP; 0: there was no answer.
    :param body: the page.
    :param fault: why there was no answer; empty: there was one.
    """

    status: int
    body: bytes
    fault: str = ""


class BrokerPages(Protocol):
    """The pages of all brokers of a supervisor."""

    def ask(self, port_setting: str, path: str) -> Deferred[dict[str, PageAnswer]]:
        """Ask each broker, and the name server under ``twistmq up``.

        :param port_setting: the setting of the port, whose row is an ``inner_port``.
        :param path: "/metrics".
        :returns: fires with the answers by the broker's name, in the order of their numbers.
        """

    @property
    def restarts(self) -> Mapping[str, int]:
        """How often each broker's process ended and was started again, by the broker's name."""

    def on_thread(self, call: Callable[[], T]) -> Deferred[T]:
        """Make a call that takes long, such as to join pages of megabytes, on a thread."""


@dataclass(frozen=True, slots=True)
class SupervisorPages:
    """Pages that the supervisor serves.

    :param resource: of twisted.web.
    :param port_setting: the setting of the port, for an error message.
    :param port: to listen on.
    :param interface: the address to bind to.
    """

    resource: Any
    port_setting: str
    port: int
    interface: str
