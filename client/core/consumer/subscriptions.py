"""Subscriptions: the messages of a topic that a group wants.

Source: FilterAPI.buildSubscriptionData, SubscriptionData, ExpressionType @5.3.3.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from twistmq.client.base.errors import OptionError
from twistmq.protocol.bodies import SubscriptionData
from twistmq.protocol.properties import java_string_hash
from twistmq.protocol.topic_names import BLANKS, subscription_tags, tag_fault, topic_fault

if TYPE_CHECKING:
    from twistmq.client.core.connection.tasks import Clock

__all__ = ["ALL", "Expression", "Sql", "Subscription", "SubscriptionTable", "Topics",
           "looks_like_sql", "sql", "subscription", "subscriptions"]

#: The expression that matches all messages.
ALL: Final = "*"
TAG: Final = "TAG"
SQL92: Final = "SQL92"

#: The operators of SQL92, and its words where they can only be operators.
_SQL: Final = re.compile(
    r"[<>=']|^\s*not\s|\s(?:and|or|not|is|between|contains|startswith|endswith)\s|\sin\s*\(",
    re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Sql:
    """A filter in SQL92, which :func:`sql` makes; ``expression`` is its text."""

    expression: str


#: The messages of a topic that a consumer gets: None for all, "eu || us" for messages with one of
#: these tags, the same tags as a list, or ``sql(...)``.
Expression = str | Sequence[str] | Sql | None


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


def looks_like_sql(text: str) -> bool:
    """Whether a text for tags was probably meant as SQL92.

    A producer may set almost any text as a tag, so such a text can be a tag, but hardly ever is
    one. As a tag it matches nothing, and a consumer would wait for messages forever.
    """
    return _SQL.search(text) is not None


def subscription(topic: str, expression: Expression) -> Subscription:
    """Read a subscription.

    :param topic: the topic's name at brokers.
    :param expression: None, "" or "*" for all messages; "a || b", or a list of tags, for messages
        with one of these tags; or SQL92.
    :raises OptionError: when the subscription is invalid, or a text looks like SQL92. Each tag of a
        list is taken literally, whatever it looks like.
    """
    fault = topic_fault(topic)
    if fault is not None:
        raise OptionError(f"topic {topic!r}: {fault}")
    if isinstance(expression, list | tuple | set | frozenset):
        return Subscription(topic, *_joined_tags(topic, expression))
    if not isinstance(expression, str | Sql | None):
        raise OptionError(f"topic {topic!r}: the expression is {expression!r}; give tags as in "
                          "'eu || us', a list of tags, or sql(...)")
    if isinstance(expression, Sql):
        if not expression.expression.strip():
            raise OptionError(f"topic {topic!r}: the SQL92 expression is empty")
        return Subscription(topic, expression.expression, SQL92)
    text = (expression or ALL).strip(BLANKS)
    if text in ("", ALL):
        return Subscription(topic)
    tags = subscription_tags(text)
    if not tags:
        raise OptionError(f"topic {topic!r}: {text!r} has no tag")
    if looks_like_sql(text):
        raise OptionError(f"topic {topic!r}: {text!r} looks like SQL92, but a text names tags: "
                          f"give sql({text!r}), or the list {tags!r} if these are tags")
    return Subscription(topic, text, TAG, frozenset(tags))


def _joined_tags(topic: str, tags: Iterable[object]) -> tuple[str, str, frozenset[str]]:
    """Return the expression for a list of tags, its kind, and the tags.

    :raises OptionError: when the list is empty, or no message can have one of the tags.
    """
    texts = []
    for tag in tags:
        if not isinstance(tag, str):
            raise OptionError(f"topic {topic!r}: the tag is {tag!r}; give a text")
        fault = tag_fault(tag)
        # A producer of another language may have set a tag with white space around it.
        if fault is not None and (tag == ALL or subscription_tags(tag) != [tag]):
            raise OptionError(f"topic {topic!r}: tag {tag!r}: {fault}")
        texts.append(tag)
    if not texts:
        raise OptionError(f"topic {topic!r}: the list of tags is empty; give None for all messages")
    return " || ".join(texts), TAG, frozenset(texts)


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
Topics = str | Sequence[str] | Mapping[str, Expression]


def subscriptions(topics: Topics) -> dict[str, Expression]:
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
