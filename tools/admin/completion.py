"""Shell completion of the names of topics, groups and clusters that the servers know.

The servers are taken from the options already typed, or from NAMESRV_ADDR. All servers together
have half a second, and the names found by then are offered. Failures are silent, because an error
message would disturb typing.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

import click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    from twistmq.tools.admin.rows import Option
    from twistmq.tools.admin.session import Session

__all__ = ["completer"]

#: The time that all servers together may take, seconds.
_SECONDS: Final = 0.5
_NAME_SERVERS: Final = "127.0.0.1:9876"
#: Asks the servers for names and adds them to the set.
Find = Callable[["Session", "set[str]"], None]


def _topics(session: Session, names: set[str]) -> None:
    """Add all topics; the names of retry and dead-letter topics begin with %."""
    names.update(session.topics())


def _groups(session: Session, names: set[str]) -> None:
    """Add consumer groups with a retry topic, then those with settings on brokers."""
    from twistmq.protocol.bodies import SubscriptionGroupWrapper
    from twistmq.protocol.codes import RequestCode
    from twistmq.protocol.topic_names import RETRY_GROUP_TOPIC_PREFIX

    names.update(topic.removeprefix(RETRY_GROUP_TOPIC_PREFIX) for topic in session.topics()
                 if topic.startswith(RETRY_GROUP_TOPIC_PREFIX))
    for broker in session.brokers():
        reply = session.ask(broker.address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        names.update(SubscriptionGroupWrapper.decode_reply(reply.body).subscription_group_table)


def _clusters(session: Session, names: set[str]) -> None:
    names.update(session.cluster_names())


#: The functions by the name of the option.
_FINDS: Final[Mapping[str, Find]] = {
    "topic": _topics, "route_topic": _topics, "group": _groups, "source": _groups,
    "destination": _groups, "cluster": _clusters,
}
#: Producer groups are known only while producers are connected, so they are not completed.
_NOT: Final = "--producerGroup"


def completer(
    option: Option, session: Callable[[Mapping[str, Any], float], Session]
) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]] | None:
    """Return the completion of an option's value; None if there is no completion for it.

    :param session: makes a client from the options already typed; its requests end after the given
        seconds.
    """
    find = _FINDS.get(option.name)
    if find is None or option.kind != "text" or _NOT in option.flags:
        return None

    def complete(
        context: click.Context, _: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        names = _ask(lambda: session(_given(context.params), _SECONDS), find)
        return [CompletionItem(name) for name in _fitting(names, incomplete)]

    return complete


def _given(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of the line; while it is incomplete, click does not add defaults."""
    servers = params.get("name_servers") or os.environ.get("NAMESRV_ADDR") or _NAME_SERVERS
    return {**params, "name_servers": servers}


def _ask(make: Callable[[], Session], find: Find) -> list[str]:
    """Return the names that arrived in time."""
    names: set[str] = set()

    def ask() -> None:
        with contextlib.suppress(Exception), session:
            find(session, names)

    # Every error is ignored, because the user did not ask for a request. Imports happen here,
    # before the time limit starts.
    with contextlib.suppress(Exception):
        session = make()
        asking = threading.Thread(target=ask, daemon=True)
        asking.start()
        asking.join(_SECONDS)
    return list(names.copy())


def _fitting(names: Iterable[str], incomplete: str) -> list[str]:
    """Return the names that begin with the typed text; names with % only if % was typed."""
    return sorted(name for name in names if name.startswith(incomplete)
                  and ("%" in incomplete or not name.startswith("%")))
