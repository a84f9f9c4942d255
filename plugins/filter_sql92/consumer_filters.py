"""Filters of groups by topic, taken from heartbeats and saved in ``config/consumerFilter.json``.

A filter is expensive to lose: the bitmaps of stored messages were computed for it, and a new filter
can use bitmaps of newer messages only. Therefore a filter outlives the consumers of its group for a
day, so that a group that reconnects still finds the bitmaps made for its filter. After a restart
all loaded filters are treated as dead until a heartbeat of their group arrives. A subscription
replaces a filter only if its version is higher. Heartbeats come from clients and must not block the
reactor, so long expressions are compiled later, in slices of work, or when the first pull needs
them. The number of characters that dead groups can occupy is limited as well.

Source: ConsumerFilterManager, CommitLogDispatcherCalcBitMap @5.3.3.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from twisted.logger import Logger
from zope.interface import implementer

from twistmq.broker.api import IConsumerFilters, RequestRefused, ResponseCode
from twistmq.broker.api.bodies import SubscriptionData
from twistmq.broker.api.observe import LimitedLog
from twistmq.broker.api.requests import (
    Matches,
    PropertyFilter,
    SavedTable,
    Saving,
    UnknownLanguage,
    is_tag_type,
)
from twistmq.broker.api.topics import RETRY_GROUP_TOPIC_PREFIX
from twistmq.broker.api.wire import encode_pretty_row
from twistmq.plugins.filter_sql92.bitmap_fast_path import AskedFilter, BitmapMaker
from twistmq.plugins.filter_sql92.bloom_filter import BloomFilter, bit_mask
from twistmq.plugins.filter_sql92.bodies import (
    BloomFilterData,
    ConsumerFilterData,
    ConsumerFilterTable,
    FilterDataMapByTopic,
)
from twistmq.plugins.filter_sql92.message_filters import BitmapFilter, RetryFilter

if TYPE_CHECKING:
    from twistmq.broker.api import Broker
    from twistmq.broker.api.store import MessageFilter

__all__ = ["DEAD_CHARS_MAX", "ConsumerFilters"]

#: Limit of remembered results of all filters, one bit each; beyond it the older half is dropped.
_ANSWERS_MAX: Final = 32 << 20
#: The assumed time between the death of the saved groups and the start, ms, if it is unknown.
_DEAD_BEFORE_START_MS: Final = 30_000
#: Characters of expressions that a heartbeat compiles before it is answered; takes about 10 ms.
_COMPILED_AT_ONCE_MAX: Final = 4096
#: Limit of characters in kept expressions of dead groups, enough for some 10,000 usual ones. A
#: character takes 18 bytes in compiled form.
DEAD_CHARS_MAX: Final = 1024 * 1024


@dataclass(slots=True, eq=False)
class _Filter:
    """One group's filter for one topic."""

    data: ConsumerFilterData
    asked: AskedFilter
    #: The filter for the pulls of the group.
    passes: BitmapFilter

    @property
    def is_dead(self) -> bool:
        return self.data.dead_time >= self.data.born_time


@implementer(IConsumerFilters)
class ConsumerFilters(SavedTable):
    """The filters of one broker's groups; :meth:`load` reads the saved ones."""

    log = Logger()

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker.store.config_file("consumerFilter.json"))
        self._broker = broker
        self._lines = LimitedLog(self.log)
        self._now_ms = broker.now_ms
        settings = broker.settings
        self.bloom_filter = BloomFilter.of(settings.int("maxErrorRateOfBloomFilter"),
                                           settings.int("expectConsumerNumUseFilter"))
        self._makes_bitmaps = settings.flag("enableCalcFilterBitMap")
        self._supports_retry = settings.flag("filterSupportRetry")
        #: Filters by topic and group, and the same filters by group and topic.
        self._topics: dict[str, dict[str, _Filter]] = {}
        self._groups: dict[str, dict[str, _Filter]] = {}
        #: Subscriptions that are not compiled yet, by group and topic.
        self._waiting: dict[tuple[str, str], SubscriptionData] = {}
        self._is_compiling = False
        self.bitmaps = BitmapMaker(
            self.bloom_filter.bit_num // 8, self._raised, _ANSWERS_MAX, self._forget_answers)
        self._is_saved = False

    # --- the file

    def load(self) -> None:
        """Read the saved filters; the expression languages must be registered already.

        :raises StoreDamaged: when consumerFilter.json cannot be read.
        """
        self._is_saved = self._file.load_rows(ConsumerFilterTable, self._take_saved)

    def _take_saved(self, saved: ConsumerFilterTable, _: bytes) -> None:
        every = [data for topic in saved.filter_data_by_topic.values()
                 for data in topic.group_filter_data.values()]
        if not all(self._has_right_bits(data) for data in every):
            self.log.info("bitmaps now have {bits} bits: the saved filters are discarded",
                          bits=self.bloom_filter.bit_num)
            return
        dead_ms = self._now_ms() - _DEAD_BEFORE_START_MS
        for data in every:
            matches = self._compile(data.topic, data.consumer_group, data.expression_type,
                                    data.expression)
            if matches is None:
                continue
            if data.dead_time == 0:
                data.dead_time = max(dead_ms, data.born_time)
            self._add(data, matches)

    def _has_right_bits(self, data: ConsumerFilterData) -> bool:
        bits, bloom = data.bloom_filter_data, self.bloom_filter
        return bits is not None and bits.bit_num == bloom.bit_num and (
            len(bits.bit_pos) == bloom.hash_num
            and all(0 <= position < bloom.bit_num for position in bits.bit_pos))

    def saving(self) -> Saving:
        """See SavedTable; also forgets groups that have had no member for a long time."""
        self._clean(self._now_ms())
        if not self._topics and not self._is_saved:
            return lambda: None
        self._is_saved = True
        rows = []
        for topic, groups in list(self._topics.items()):
            rows.append(encode_pretty_row(topic, _table_of(topic, groups)))
            yield
        return self._job(ConsumerFilterTable(), {"filterDataByTopic": rows})

    def table(self) -> ConsumerFilterTable:
        """Return all filters in the form in which they are saved."""
        return ConsumerFilterTable({
            topic: _table_of(topic, groups) for topic, groups in self._topics.items()})

    def _clean(self, now_ms: int) -> None:
        longest_ms = self._broker.settings.int("filterDataCleanTimeSpan")
        for each in [each for groups in self._topics.values() for each in groups.values()]:
            if each.is_dead and now_ms - each.data.dead_time >= longest_ms:
                self._lines.info(
                    now_ms, "{group} no longer filters {topic}: it had no consumer for a long time",
                    group=each.data.consumer_group, topic=each.data.topic)
                self._remove(each.data.topic, each.data.consumer_group)
        self._bound_dead()

    def _bound_dead(self) -> None:
        """Forget the groups that have been dead the longest if dead groups use too much memory."""
        dead = sorted((each for groups in self._topics.values() for each in groups.values()
                       if each.is_dead), key=lambda each: each.data.dead_time)
        chars = sum(len(each.data.expression) for each in dead)
        count = 0
        for each in dead:
            if chars <= DEAD_CHARS_MAX:
                break
            chars -= len(each.data.expression)
            count += 1
            self._remove(each.data.topic, each.data.consumer_group)
        if count:
            self.log.warn("{count} filters of groups without a consumer are forgotten: all such "
                          "filters had more than {limit} characters", count=count,
                          limit=DEAD_CHARS_MAX)

    # --- heartbeats

    def register(self, group: str, subscriptions: Iterable[SubscriptionData]) -> None:
        """Register the subscriptions of a group; its filters for other topics become dead."""
        topics = set()
        chars = 0
        for subscription in subscriptions:
            topics.add(subscription.topic)
            key = group, subscription.topic
            if not is_tag_type(subscription.expression_type) and subscription.sub_string:
                if self._is_known(group, subscription):
                    continue
                chars += len(subscription.sub_string)
                if chars <= _COMPILED_AT_ONCE_MAX:
                    self._waiting.pop(key, None)
                    self._register(group, subscription)
                else:
                    self._waiting[key] = subscription
        for key in [key for key in self._waiting if key[0] == group and key[1] not in topics]:
            del self._waiting[key]
        self._let_die([each for topic, each in self._groups.get(group, {}).items()
                       if topic not in topics and not each.is_dead])
        self._compile_soon()

    def _is_known(self, group: str, subscription: SubscriptionData) -> bool:
        """Whether a subscription was received before, in this version or a later one."""
        waiting = self._waiting.get((group, subscription.topic))
        return waiting is not None and (
            waiting.sub_version > subscription.sub_version
            or (waiting.sub_version, waiting.sub_string, waiting.expression_type)
            == (subscription.sub_version, subscription.sub_string, subscription.expression_type))

    def _compile_soon(self) -> None:
        """Compile the waiting subscriptions in slices."""
        if self._is_compiling or not self._waiting:
            return
        self._is_compiling = True

        def finished(result: object) -> object:
            self._is_compiling = False
            return result

        compiling = self._broker.slices.run(self._compiling())
        compiling.addBoth(finished)
        compiling.addErrback(lambda failure: self.log.failure(
            "the compilation of the groups' filters failed", failure=failure))

    def _compiling(self) -> Generator[None, None, None]:
        while self._waiting:
            self._take_waiting(*next(iter(self._waiting)))
            yield

    def _take_waiting(self, group: str, topic: str) -> None:
        """Compile a subscription now if it is waiting to be compiled."""
        subscription = self._waiting.pop((group, topic), None)
        if subscription is not None:
            self._register(group, subscription)

    def _register(self, group: str, subscription: SubscriptionData) -> None:
        topic, version = subscription.topic, subscription.sub_version
        kind, expression = subscription.expression_type, subscription.sub_string
        existing = self._topics.get(topic, {}).get(group)
        if existing is not None:
            if version < existing.data.client_version:
                return
            is_same = (
                existing.data.expression_type, existing.data.expression) == (kind, expression)
            if is_same or version == existing.data.client_version:
                # A version stands for exactly one subscription.
                self._revive(existing, version)
                return
        matches = self._compile(topic, group, kind, expression)
        if matches is None:
            # The pulls of the group will be refused, because it has no filter.
            self._remove(topic, group)
            return
        bits = BloomFilterData(self.bloom_filter.bit_num,
                               self.bloom_filter.positions(f"{group}#{topic}"))
        self._add(ConsumerFilterData(bits, self._now_ms(), version, group, False, 0, expression,
                                     kind, topic), matches)
        self._lines.info(self._now_ms(), "{group} filters {topic} by {expression}", group=group,
                         topic=topic, expression=expression[:200])

    def unregister(self, group: str) -> None:
        """Handle the loss of a group's last member."""
        for key in [key for key in self._waiting if key[0] == group]:
            del self._waiting[key]
        self._let_die([
            each for each in self._groups.get(group, {}).values() if not each.is_dead])

    def _let_die(self, filters: Sequence[_Filter]) -> None:
        for each in filters:
            each.data.dead_time = self._now_ms()
            each.data.dead = each.is_dead
        if sum(len(each.data.expression) for each in filters) > _COMPILED_AT_ONCE_MAX:
            self._bound_dead()

    @staticmethod
    def _revive(each: _Filter, version: int) -> None:
        each.data.client_version = version
        each.data.dead_time = 0
        each.data.dead = False

    def _compile(self, topic: str, group: str, kind: str, expression: str) -> Matches | None:
        """Compile a group's expression; return None and log the reason when it is invalid."""
        try:
            return self._broker.filters.compile(kind, expression)
        except UnknownLanguage:
            reason = "no plugin knows the language"
        except ValueError as error:
            reason = str(error)
        except Exception as error:
            # A bug of the language: pulls of this group are refused, and the broker still starts.
            self._lines.failure(self._now_ms(), "the filter language {kind} failed", kind=kind)
            reason = repr(error)
        self._lines.error(
            self._now_ms(), "{group} cannot filter {topic} by {kind} {expression}: {reason}",
            group=group, topic=topic, kind=kind, expression=expression[:200], reason=reason)
        return None

    def _add(self, data: ConsumerFilterData, matches: Matches) -> None:
        assert data.bloom_filter_data is not None
        asked = AskedFilter(matches, bit_mask(data.bloom_filter_data.bit_pos))
        each = _Filter(data, asked, BitmapFilter(
            asked, data.born_time, self.bloom_filter.bit_num))
        data.dead = each.is_dead
        self._topics.setdefault(data.topic, {})[data.consumer_group] = each
        self._groups.setdefault(data.consumer_group, {})[data.topic] = each
        self._filters_changed(data.topic)

    def _remove(self, topic: str, group: str) -> None:
        for table, first, second in ((self._topics, topic, group), (self._groups, group, topic)):
            inner = table.get(first, {})
            inner.pop(second, None)
            if not inner:
                table.pop(first, None)
        self._filters_changed(topic)

    # --- bitmaps

    def _filters_changed(self, topic: str) -> None:
        """Let the store compute bitmaps only while there are filters, to avoid needless work."""
        groups = self._topics.get(topic)
        if groups is None:
            self.bitmaps.filters.pop(topic, None)
        else:
            self.bitmaps.filters[topic] = [each.asked for each in groups.values()]
        self._broker.store.dispatch.make_bitmap = (
            self.bitmaps.bitmap if self._makes_bitmaps and self._topics else None)

    def _raised(self, topic: str) -> None:
        """Log the exception that is being handled."""
        self._lines.failure(self._now_ms(), "a filter of {topic} failed", topic=topic)

    def _forget_answers(self) -> int:
        """Make room for new results; :returns: how many remain."""
        caches = [each.asked.known for groups in self._topics.values() for each in groups.values()]
        for cache in caches:
            cache.forget_older()
        return sum([cache.count for cache in caches])

    # --- filters of pulls

    def own_filter(
        self, group: str, topic: str, expression_type: str, expression: str
    ) -> MessageFilter:
        """See IConsumerFilters."""
        message_filter = self._broker.filters.make_filter(expression_type, expression)
        assert message_filter is not None
        return self._of_retries(group, topic) or message_filter

    def group_filter(self, group: str, topic: str, sub_version: int) -> MessageFilter:
        """See IConsumerFilters."""
        self._take_waiting(group, topic)
        consumer_filter = self._topics.get(topic, {}).get(group)
        if consumer_filter is None:
            raise RequestRefused(
                ResponseCode.FILTER_DATA_NOT_EXIST,
                "The broker's consumer filter data is not exist!Your expression may be wrong!")
        if consumer_filter.data.client_version < sub_version:
            raise RequestRefused(ResponseCode.FILTER_DATA_NOT_LATEST,
                                 "the consumer's consumer filter data not latest")
        return self._of_retries(group, topic) or consumer_filter.passes

    def _of_retries(self, group: str, topic: str) -> RetryFilter | None:
        """Return the filter of a retry topic, where messages are filtered as in their own topic."""
        if not self._supports_retry or not topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
            return None
        group = topic.removeprefix(RETRY_GROUP_TOPIC_PREFIX)
        filters = self._groups.get(group, {})

        def find(real_topic: str) -> Matches | None:
            self._take_waiting(group, real_topic)
            each = self._groups.get(group, {}).get(real_topic)
            return None if each is None else each.asked.matches

        return RetryFilter(
            find, max([PropertyFilter(each.asked.matches).cost for each in filters.values()],
                      default=1))

    def describe(self, group: str, topic: str) -> str:
        """See IConsumerFilters."""
        self._take_waiting(group, topic)
        consumer_filter = self._topics.get(topic, {}).get(group)
        return "null" if consumer_filter is None else consumer_filter.data.encode_pretty().decode()


def _table_of(topic: str, groups: Mapping[str, _Filter]) -> FilterDataMapByTopic:
    """Return the filters of a topic in the form in which they are saved."""
    return FilterDataMapByTopic({group: each.data for group, each in groups.items()}, topic)
