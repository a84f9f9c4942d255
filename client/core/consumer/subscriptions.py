"""Subscriptions: the messages of a topic that a group wants.

Source: FilterAPI.buildSubscriptionData, SubscriptionData, ExpressionType @5.3.3.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from twistmq.client.base.errors import OptionError
from twistmq.protocol.bodies import SubscriptionData
from twistmq.protocol.properties import java_string_hash
from twistmq.protocol.topic_names import topic_fault

if TYPE_CHECKING:
    from twistmq.client.core.connection.tasks import Clock

__all__ = ["ALL", "Sql", "Subscription", "SubscriptionTable", "Topics", "sql", "subscription",
           "subscriptions"]

#: The expression that matches all messages.
ALL: Final = "*"
TAG: Final = "TAG"
SQL92: Final = "SQL92"


@dataclass(frozen=True, slots=True)
class Sql:
    """A filter in SQL92; see :func:`sql`."""

    expression: str


def sql(expression: str) -> Sql:
    """A filter over properties, such as ``sql("level > 3 and region = 'eu'")``.

    Brokers need ``enablePropertyFilter=true`` for it. A broker checks the expression when it is
    first used: if it is wrong, the log has the broker's refusal.

    :raises OptionError: when the expression is not a text.
    """
    if not isinstance(expression, str):
        raise OptionError(f"the SQL92 expression is {expression!r}: give a text")
    return Sql(expression)


@dataclass(frozen=True, slots=True)
class Subscription:
    """The subscription of a group to one topic.

    :param topic: the topic's name at brokers.
    :param expression: "*", tags separated by ``||``, or SQL92.
    :param tags: the tags of the expression; empty for all messages and for SQL92.
    """

    topic: str
    expression: str = ALL
    kind: str = TAG
    tags: frozenset[str] = frozenset()

    def data(self, version: int) -> SubscriptionData:
        """Return the part of a heartbeat; ``version`` is the Unix ms when it was made."""
        return SubscriptionData(
            topic=self.topic, sub_string=self.expression, tags_set=set(self.tags),
            code_set={java_string_hash(tag) for tag in self.tags}, sub_version=version,
            expression_type=self.kind)


def subscription(topic: str, expression: str | Sql | None) -> Subscription:
    """Read a subscription.

    :param topic: the topic's name at brokers.
    :param expression: None, "" or "*" for all messages; "a || b" for messages with one of these
        tags; or SQL92.
    :raises OptionError: when the subscription is invalid.
    """
    fault = topic_fault(topic)
    if fault is not None:
        raise OptionError(f"topic {topic!r}: {fault}")
    if not isinstance(expression, str | Sql | None):
        raise OptionError(f"topic {topic!r}: the expression is {expression!r}; give tags as in "
                          "'eu || us', or sql(...)")
    if isinstance(expression, Sql):
        if not expression.expression.strip():
            raise OptionError(f"topic {topic!r}: the SQL92 expression is empty")
        return Subscription(topic, expression.expression, SQL92)
    text = (expression or ALL).strip()
    if text in ("", ALL):
        return Subscription(topic)
    tags = [tag.strip() for tag in text.split("||") if tag.strip()]
    if not tags:
        raise OptionError(f"topic {topic!r}: {text!r} has no tag")
    return Subscription(topic, text, TAG, frozenset(tags))


class SubscriptionTable(dict[str, Subscription]):
    """The subscriptions of one member by topic, with the names at brokers.

    :param clock: its wall clock gives the versions.
    """

    def __init__(self, clock: Clock, subscriptions: Mapping[str, Subscription]) -> None:
        super().__init__(subscriptions)
        self._clock = clock
        #: The time of the newest change, in Unix ms: brokers filter by the newest version.
        self.version = clock.wall_ms()

    def renew(self) -> None:
        """Give the subscriptions a new version."""
        self.version = self._clock.wall_ms()

    def data(self) -> tuple[SubscriptionData, ...]:
        """Return the part of a heartbeat."""
        return tuple(each.data(self.version) for each in self.values())


#: The topics of a consumer: one name, several names, or a table of expressions by name.
Topics = str | Sequence[str] | Mapping[str, str | Sql | None]


def subscriptions(topics: Topics) -> dict[str, str | Sql | None]:
    """Return the argument ``topics`` of a consumer as a table of expressions by topic.

    :raises OptionError: when it does not consist of names.
    """
    if isinstance(topics, str):
        return {topics: None}
    if not isinstance(topics, Iterable) or not all(isinstance(topic, str) for topic in topics):
        raise OptionError(f"topics are {topics!r}: give a name, a list of names, or a table of "
                          "expressions by name")
    if isinstance(topics, Mapping):
        return dict(topics)
    return dict.fromkeys(topics)
