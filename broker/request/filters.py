"""Which messages a consumer gets: filters made from subscriptions.

A read asks a filter twice: with the consume-queue entry before the record is read, and with the
record. ``TAG`` is decided by the entry alone: the hash of the tag, so that a collision reaches
the client, which compares the text. Other languages come from plugins and look at properties.

Source: ExpressionMessageFilter, FilterAPI, FilterFactory @5.3.3.
"""

from __future__ import annotations

from collections.abc import Mapping

from twistmq.broker.codes import ResponseCode
from twistmq.broker.errors import RequestRefused
from twistmq.broker.interfaces import IFilterLanguage
from twistmq.broker.store.message_store import MessageFilter
from twistmq.broker.wire.properties import java_string_hash, parse_properties
from twistmq.broker.wire.record import decode_record

__all__ = ["TAG", "FilterLanguages", "PropertyFilter", "TagFilter", "is_tag_type", "tags_of"]

#: The expression type the kernel itself knows.
TAG = "TAG"
_MATCH_ALL = "*"


def is_tag_type(expression_type: str | None) -> bool:
    return not expression_type or expression_type == TAG


def tags_of(expression: str | None) -> list[str]:
    """The tags of a TAG expression ``a || b``; empty for all.

    :raises ValueError: when there is nothing between the bars.
    """
    if not expression or expression == _MATCH_ALL:
        return []
    tags = [tag.strip() for tag in expression.split("||")]
    tags = [tag for tag in tags if tag]
    if not tags:
        raise ValueError("subString split error")
    return tags


class TagFilter:
    """Matches the tag hashes of a TAG expression.

    :param codes: the Java hash codes of the tags.
    """

    __slots__ = ("_codes",)

    def __init__(self, codes: frozenset[int]) -> None:
        self._codes = codes

    def match_queue_entry(
        self, tags_code: int, store_time: int | None = None, bitmap: bytes | None = None
    ) -> bool:
        return tags_code in self._codes

    def match_record(self, record: bytes | memoryview) -> bool:
        return True


class PropertyFilter:
    """Matches what an expression of a plugin's language says of the record's properties."""

    def __init__(self, language: IFilterLanguage, expression: str) -> None:
        self._matches = language.compile(expression)

    def match_queue_entry(
        self, tags_code: int, store_time: int | None = None, bitmap: bytes | None = None
    ) -> bool:
        return True

    def match_record(self, record: bytes | memoryview) -> bool:
        message = decode_record(record, 0, False)
        return self._matches(parse_properties(message.properties))


class FilterLanguages:
    """The languages a subscription can be written in, by expression type."""

    def __init__(self) -> None:
        self._languages: dict[str, IFilterLanguage] = {}

    def add_languages(self, languages: Mapping[str, IFilterLanguage]) -> None:
        self._languages.update(languages)

    def knows(self, expression_type: str | None) -> bool:
        return is_tag_type(expression_type) or expression_type in self._languages

    def check(self, expression_type: str | None, expression: str | None) -> None:
        """:raises RequestRefused: SUBSCRIPTION_PARSE_FAILED when the expression is wrong."""
        self.make_filter(expression_type, expression)

    def make_filter(
        self, expression_type: str | None, expression: str | None
    ) -> MessageFilter | None:
        """The filter of a subscription; None when it matches every message.

        :raises RequestRefused: SYSTEM_ERROR when no plugin knows the language,
            SUBSCRIPTION_PARSE_FAILED when the expression is wrong.
        """
        try:
            if is_tag_type(expression_type):
                tags = tags_of(expression)
                return TagFilter(frozenset(map(java_string_hash, tags))) if tags else None
            language = self._languages.get(expression_type or "")
            if language is None:
                raise RequestRefused(
                    ResponseCode.SYSTEM_ERROR,
                    f"The broker does not support consumer to filter message by {expression_type}")
            return PropertyFilter(language, expression or "")
        except ValueError:
            raise RequestRefused(ResponseCode.SUBSCRIPTION_PARSE_FAILED,
                                 "parse the consumer's subscription failed") from None
