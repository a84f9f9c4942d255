"""Plans a new read, and waits for brokers that are away.

If no name server answers, the read fails at once, because its address may be wrong. If brokers are
registered and no name server knows the topic, the read also fails at once: only a checkpoint could
show that the topic has existed and that its name is not mistyped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from twistmq.client.base.errors import NoRoute
from twistmq.client.blocking.client import Client
from twistmq.integrations.tables.availability import (
    Availability,
    Look,
    Patience,
    Verdict,
    is_passing,
    reach_name_server,
)
from twistmq.integrations.tables.connection import offset_at
from twistmq.integrations.tables.offsets import queue_name
from twistmq.integrations.tables.queue_reader import ReadFailed, ReadPlan
from twistmq.integrations.tables.subscription import TopicMissing
from twistmq.protocol.bodies import MessageQueue
from twistmq.protocol.errors import BrokerError, RemotingError

__all__ = ["brokers_of", "check_brokers", "planned"]

T = TypeVar("T")


def planned(plan: ReadPlan, client: Client,
            work: Callable[[Client], T]) -> T:
    """Run the function that plans a read, and repeat it while brokers that it needs are away.

    :raises RemotingError: when no name server answers at the beginning.
    :raises TopicMissing: when a topic or queue does not exist.
    :raises StillAway: when something is away for too long.
    """
    reach_name_server(client)
    patience = Patience(plan.settings.wait_s, plan.settings.retry_wait_s)
    while True:
        try:
            _check_brokers(plan, client)
            result = work(client)
        except TopicMissing as error:
            reason = _reason_to_wait(plan, client, error)
            if not reason:
                raise
        except BrokerError as error:
            if not is_passing(error):
                raise
            reason = str(error)
        else:
            patience.end()
            return result
        patience.require(reason)


def brokers_of(queues: Iterable[MessageQueue]) -> dict[str, set[str]]:
    """Return the names of the brokers of each topic."""
    broker_names: dict[str, set[str]] = {}
    for queue in queues:
        broker_names.setdefault(queue.topic, set()).add(queue.broker_name)
    return broker_names


def check_brokers(plan: ReadPlan, topic: str, brokers: Iterable[str], planned_ms: int,
                  client: Client) -> None:
    """Check after a read whether a broker that was away during the planning has returned.

    :raises ReadFailed: when it has messages of the topic that are older than the plan.
    """
    patience = Patience(plan.settings.wait_s, plan.settings.retry_wait_s)
    while True:
        try:
            late = [queue for queue in client.read_queues(topic, again=True)
                    if queue.broker_name not in brokers
                    and client.min_offset(queue) < offset_at(client, queue, planned_ms)]
            break
        except BrokerError as error:
            if not is_passing(error):
                # The topic was deleted after its messages had been read.
                return
            if not patience.pause(f"topic {topic}: {error}"):
                raise ReadFailed(f"topic {topic}: it is unknown whether a broker was away during "
                                 f"the read: {error}") from None
    if late:
        raise ReadFailed(f"{queue_name(late[0])}: the broker was away when the read was planned, "
                         "and its messages are missing; read again, and name the brokers in the "
                         "option brokers")


def _check_brokers(plan: ReadPlan, client: Client) -> None:
    """Check the option brokers; :raises NoRoute: when one of its brokers is not registered."""
    if plan.brokers:
        registered = Look(client, plan.group).registered()
        away = [name for name in plan.brokers if name not in registered]
        if away:
            raise NoRoute(f"option brokers: {', '.join(away)}: not registered at a name server")


def _reason_to_wait(plan: ReadPlan, client: Client, error: TopicMissing) -> str:
    """Return the reason why something that is missing may come back; "" if it does not exist."""
    look = Look(client, plan.group)
    try:
        verdict = (_topic_standing(look, error) if error.queue is None
                   else look.standing(error.queue))
    except RemotingError as failure:
        return f"{error}; {failure}"
    if verdict.standing is Availability.THERE:
        # Its broker registered after the route was fetched that did not have it.
        return f"{error}; it has appeared since"
    return f"{error}; {verdict.reason}" if verdict.standing is Availability.AWAY else ""


def _topic_standing(look: Look, error: TopicMissing) -> Verdict:
    """Determine the state of a topic; it is away if options name a queue on an absent broker."""
    for queue in error.named:
        verdict = look.standing(queue)
        if verdict.standing is Availability.AWAY:
            return verdict
    return look.topic_standing(error.topic)
