"""Filters that decide which messages a consumer gets, made from its subscriptions.

A read asks a filter twice: with the consume-queue entry before the record is read, and then with
the record. A ``TAG`` filter decides with the entry alone, by the hash of the tag. A message with
another tag of the same hash reaches the client, which compares the text. Other filter languages
are provided by plugins and look at the properties.

Source: ExpressionMessageFilter, FilterAPI, FilterFactory @5.3.3.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from twistmq.broker.constants import EXPRESSION_LENGTH_MAX
from twistmq.broker.plugin.interfaces import IConsumerFilters, IFilterLanguage
from twistmq.broker.store.message_store import MessageFilter
from twistmq.protocol.bodies import SubscriptionData
from twistmq.protocol.codes import ResponseCode
from twistmq.protocol.errors import RequestRefused
from twistmq.protocol.lazy_properties import LazyProperties
from twistmq.protocol.properties import java_string_hash
from twistmq.protocol.record import MessageRecord, properties_text
from twistmq.protocol.topic_names import subscription_tags

__all__ = ["MATCH_ALL", "TAG", "FilterLanguages", "MadeFilters", "Matches", "PropertyFilter",
           "TagFilter", "UnknownLanguage", "is_tag_type", "tag_filter", "tags_of", "wants_any"]

#: The expression type that the kernel itself supports.
TAG = "TAG"
#: The expression that every message matches.
MATCH_ALL = "*"
#: The number of compiled expressions that are cached: clients send theirs with each pull.
#: Source: SelectorParser.PARSE_CACHE.
_COMPILED_MAX: Final = 100

#: The number of tags up to which a set is both small and fast.
_SET_TAGS_MAX: Final = 16
#: The size of a number in a set, bytes.
_NUMBER_BYTES: Final = 32

#: A group's TAG subscription to each topic, and the filter that was made from it.
MadeFilters = dict[str, tuple[SubscriptionData, "MessageFilter | None"]]
#: Returns whether properties match.
Matches = Callable[[Mapping[str, str]], bool]


def is_tag_type(expression_type: str | None) -> bool:
    return not expression_type or expression_type == TAG


def tags_of(expression: str | None) -> list[str]:
    """Return the tags of a TAG expression ``a || b``; the list is empty if all messages match.

    :raises ValueError: when all parts between the bars are empty.
    """
    if not expression or expression == MATCH_ALL:
        return []
    tags = subscription_tags(expression)
    if not tags:
        raise ValueError("subString split error")
    return tags


def _check_length(expression: str | None) -> None:
    """:raises RequestRefused: when an expression is too long."""
    if expression and len(expression) > EXPRESSION_LENGTH_MAX:
        raise RequestRefused(ResponseCode.SUBSCRIPTION_PARSE_FAILED,
                             f"the expression is longer than {EXPRESSION_LENGTH_MAX} characters")


class TagFilter:
    """Matches the tag hashes of a TAG expression.

    Many codes are kept as a sorted array, because a waiting pull keeps its filter. The array is
    not larger than the text of the tags.

    :param codes: the Java hash codes of the tags.
    """

    __slots__ = ("_codes", "_sorted", "size_bytes")

    def __init__(self, codes: frozenset[int]) -> None:
        is_set = len(codes) <= _SET_TAGS_MAX
        self._codes = codes if is_set else frozenset()
        self._sorted = None if is_set else array("i", sorted(codes))
        #: See MessageFilter.
        self.size_bytes: int = (sys.getsizeof(codes) + _NUMBER_BYTES * len(codes)
                                if self._sorted is None else sys.getsizeof(self._sorted))

    @property
    def tag_count(self) -> int:
        """The number of tags with different hashes."""
        return len(self._codes) if self._sorted is None else len(self._sorted)

    def tags_codes(self) -> Iterable[int]:
        """The hashes of the tags."""
        return self._codes if self._sorted is None else self._sorted

    def match_queue_entry(
        self, tags_code: int, store_time: int | None = None, bitmap: bytes | None = None
    ) -> bool:
        codes = self._sorted
        if codes is None:
            return tags_code in self._codes
        at = bisect_left(codes, tags_code)
        return at < len(codes) and codes[at] == tags_code

    def match_record(self, record: bytes) -> bool:
        return True

    def match_properties(self, properties: str) -> bool:
        return True


def tag_filter(expression: str | None) -> TagFilter | None:
    """Make the filter of a TAG expression; None if it matches every message.

    :raises ValueError: when the expression is invalid.
    """
    tags = tags_of(expression)
    return TagFilter(frozenset(map(java_string_hash, tags))) if tags else None


class PropertyFilter:
    """Matches the record's properties with an expression in a plugin's language.

    :param matches: the compiled expression. It is called with a mapping that finds properties only
        when they are requested, because for most messages the first property decides.
    """

    __slots__ = ("_matches", "cost", "size_bytes")
    #: See MessageFilter.
    asks_entries = False

    def __init__(self, matches: Matches) -> None:
        self._matches = matches
        #: See MessageFilter.
        self.cost: int = max(1, getattr(matches, "cost", 1))
        self.size_bytes: int = getattr(matches, "size_bytes", 0)

    def match_queue_entry(
        self, tags_code: int, store_time: int | None = None, bitmap: bytes | None = None
    ) -> bool:
        return True

    def match_record(self, record: bytes) -> bool:
        return self.match_properties(properties_text(record))

    def match_properties(self, properties: str) -> bool:
        return self._matches(LazyProperties(properties))  # type: ignore[arg-type]


def wants_any(message_filter: MessageFilter | None, records: Sequence[MessageRecord]) -> bool:
    """Whether a waiting request wants one of the messages that were just stored.

    The properties decide, even if there is a bitmap: it contains no further information.

    :param message_filter: the filter of the request; None if it wants every message.
    """
    if message_filter is None:
        return True
    try:
        return any(message_filter.match_queue_entry(record.tags_code, record.store_timestamp)
                   and message_filter.match_properties(record.properties) for record in records)
    except Exception:
        # The pull reads again, fails and reports the fault to the consumer; the append continues.
        return True


class UnknownLanguage(LookupError):
    """No plugin provides the language of an expression."""


class FilterLanguages:
    """The languages in which a subscription can be written, by expression type."""

    def __init__(self) -> None:
        self._languages: dict[str, IFilterLanguage] = {}
        #: The component that keeps the filters of groups, if a plugin provides one.
        self.consumer_filters: IConsumerFilters | None = None
        self._compiled: dict[tuple[str, str], Matches | ValueError] = {}

    def add_languages(self, languages: Mapping[str, IFilterLanguage]) -> None:
        self._languages.update(languages)

    def supports(self, expression_type: str | None) -> bool:
        return is_tag_type(expression_type) or expression_type in self._languages

    def compile(self, expression_type: str, expression: str) -> Matches:
        """Compile an expression of a plugin's language; the latest ones are cached.

        :raises UnknownLanguage: when no plugin provides the language.
        :raises ValueError: when the expression is invalid; the text states where.
        """
        language = self._languages.get(expression_type)
        if language is None:
            raise UnknownLanguage(expression_type)
        key = expression_type, expression
        compiled = self._compiled.pop(key, None)
        if compiled is None:
            try:
                compiled = language.compile(expression)
            except ValueError as error:
                compiled = error.with_traceback(None)
            while len(self._compiled) >= _COMPILED_MAX:
                del self._compiled[next(iter(self._compiled))]
        self._compiled[key] = compiled
        if isinstance(compiled, ValueError):
            raise compiled.with_traceback(None)
        return compiled

    def check(self, expression_type: str | None, expression: str | None) -> None:
        """Check whether a subscription can be served.

        :raises RequestRefused: SUBSCRIPTION_PARSE_FAILED when the expression is invalid or no
            plugin provides its language; the remark names the fault and its position.
        """
        _check_length(expression)
        try:
            if is_tag_type(expression_type):
                tags_of(expression)
            else:
                self.compile(expression_type or "", expression or "")
        except UnknownLanguage:
            raise RequestRefused(ResponseCode.SUBSCRIPTION_PARSE_FAILED,
                                 f"no filter language {expression_type}") from None
        except ValueError as error:
            raise RequestRefused(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error)) from None

    def make_filter(
        self, expression_type: str | None, expression: str | None
    ) -> MessageFilter | None:
        """Make the filter of a subscription; None if it matches every message.

        :raises RequestRefused: SYSTEM_ERROR when no plugin provides the language,
            SUBSCRIPTION_PARSE_FAILED when the expression is invalid or too long.
        """
        _check_length(expression)
        try:
            if is_tag_type(expression_type):
                return tag_filter(expression)
            return PropertyFilter(self.compile(expression_type or "", expression or ""))
        except UnknownLanguage:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR,
                f"The broker does not support consumer to filter message by {expression_type}"
            ) from None
        except ValueError:
            raise RequestRefused(ResponseCode.SUBSCRIPTION_PARSE_FAILED,
                                 "parse the consumer's subscription failed") from None

    # --- filters of pulls

    def own_filter(
        self, group: str, topic: str, expression_type: str | None, expression: str | None
    ) -> MessageFilter | None:
        """Return the filter of a pull that brings its own subscription.

        :raises RequestRefused: see ``make_filter``.
        """
        keeper = self.consumer_filters
        if keeper is None or expression_type is None or is_tag_type(expression_type):
            return self.make_filter(expression_type, expression)
        _check_length(expression)
        return keeper.own_filter(group, topic, expression_type, expression or "")

    def group_filter(
        self, group: str, subscription: SubscriptionData, sub_version: int, made: MadeFilters
    ) -> MessageFilter | None:
        """Return the filter for a subscription from a group's heartbeats.

        :param sub_version: the version of the subscription to which the pull refers.
        :param made: the filters made for the group so far, so that a long list of tags is not
            parsed again for each pull.
        :raises RequestRefused: see ``make_filter``; also FILTER_DATA_NOT_EXIST or
            FILTER_DATA_NOT_LATEST when the group's expression was not accepted.
        """
        keeper = self.consumer_filters
        if is_tag_type(subscription.expression_type):
            existing = made.get(subscription.topic)
            if existing is not None and existing[0] is subscription:
                return existing[1]
            wants = self.make_filter(subscription.expression_type, subscription.sub_string)
            made[subscription.topic] = subscription, wants
            return wants
        if keeper is None:
            return self.make_filter(subscription.expression_type, subscription.sub_string)
        return keeper.group_filter(group, subscription.topic, sub_version)

    def describe(self, group: str, topic: str) -> str:
        """Describe the filter of a group for a topic, as a text for people."""
        keeper = self.consumer_filters
        return "null" if keeper is None else keeper.describe(group, topic)
