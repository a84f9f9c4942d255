"""SQL92 filters: Apache's library, its broker and its client compared with ours."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final

from tests.interop import clients
from tests.interop.capture_filter import (
    CONSUMERS,
    COUNT,
    OTHER_TOPIC,
    TOPIC,
    heartbeat,
    properties_of,
)
from tests.interop.clients import JavaTestCase
from tests.interop.contents import is_dispatched
from tests.interop.exchange import Exchange
from tests.interop.filter_cases import (
    BLOOM_NAMES,
    BLOOM_SIZES,
    EXPRESSIONS,
    PROPERTIES,
    TAKEN_HERE,
    bloom_answers,
    filter_answers,
)
from tests.interop.gallery import GOLDEN
from tests.interop.kept import at_once
from tests.interop.servers import free_port, servers, wait_until
from twistmq.broker.testing import RawClient
from twistmq.broker.testing.raw_client import pull_header, records_of
from twistmq.plugins.filter_sql92.grammar import parse
from twistmq.plugins.filter_sql92.values import EvaluationError
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.headers.pull import PullMessageRequestHeader, PullMessageResponseHeader
from twistmq.protocol.headers.query import QueryConsumeQueueRequestHeader

FILTERING: Final = {"enablePropertyFilter": "true", "filterSupportRetry": "true"}
BITMAPS: Final = {**FILTERING, "enableConsumeQueueExt": "true", "enableCalcFilterBitMap": "true"}
RETRY_TOPIC: Final = "%RETRY%golden_dear"
#: What is answered otherwise on purpose: see broker/request/DESIGN.md.
DIFFERENT: Final = {"own wrong", "own unknown language"}
_FAULT: Final = re.compile(r"^(java\.|org\.|Cannot invoke)")


def group_header(topic: str, group: str, version: int, offset: int = 0) -> PullMessageRequestHeader:
    """Return a pull of the group's subscription in its heartbeats."""
    header = pull_header(topic, offset, group=group)
    header.sys_flag = 0
    header.sub_version = version
    return header


def pull_all(client: RawClient, header: PullMessageRequestHeader) -> tuple[int, list[bytes]]:
    """Pull until the queue's end; :returns: the last code, and the bodies."""
    bodies: list[bytes] = []
    while True:
        reply = client.request(RequestCode.PULL_MESSAGE, header)
        if reply.code not in (ResponseCode.SUCCESS, ResponseCode.PULL_RETRY_IMMEDIATELY):
            return reply.code, bodies
        bodies += [message.body for message in records_of(reply.body)]
        header.queue_offset = reply.header(PullMessageResponseHeader).next_begin_offset


def prepare(client: RawClient) -> None:
    """Register consumers and send messages."""
    for topic in (TOPIC, OTHER_TOPIC):
        client.send(topic, b"first")
    beat(client)
    for number in range(COUNT):
        client.send(TOPIC, b"%d" % number, properties=properties_of(number))
    wait_until("all are in their queues", lambda: is_dispatched(client))


def beat(client: RawClient, version: int = 0) -> None:
    """A heartbeat of each consumer, on the client's one connection."""
    for group, topic, expression, own_version in CONSUMERS:
        subscriptions = [{"topic": topic, "subString": expression,
                          "subVersion": version or own_version}]
        if group == "golden_dear":
            subscriptions.append({"topic": RETRY_TOPIC, "subString": "price > 100",
                                  "subVersion": version or own_version})
        reply = client.request(RequestCode.HEART_BEAT, None,
                               heartbeat("interop@1", group, subscriptions))
        assert reply.code == ResponseCode.SUCCESS, reply.remark


def answers(client: RawClient) -> Iterator[tuple[str, Any]]:
    """Return a broker's answers to checks and pulls: a name, and code, remark or bodies."""
    for what, kind, expression in (
        ("right", "SQL92", "a > 1"), ("wrong", "SQL92", "a >"), ("no number", "SQL92", "a > 'x'"),
        ("empty", "SQL92", ""), ("lower", "sql92", "a > 1"), ("unknown", "OTHER", "a > 1"),
        ("tag", "TAG", "a >"),
    ):
        reply = client.request(RequestCode.CHECK_CLIENT_CONFIG, None, json.dumps({
            "clientId": "c", "group": "g", "subscriptionData": {
                "topic": TOPIC, "subString": expression, "subVersion": 1,
                "expressionType": kind}}).encode())
        # Apache's remark names a Java class, ours the place.
        yield f"check {what}", (reply.code, bool(reply.remark))
    for group, topic, _, version in CONSUMERS:
        yield f"pull of {group}", pull_all(client, group_header(topic, group, version))
        reply = client.request(RequestCode.PULL_MESSAGE, group_header(topic, group, version + 1))
        yield f"pull of {group} too new", (reply.code, reply.remark)
        reply = client.request(RequestCode.PULL_MESSAGE, group_header(topic, group, version))
        yield f"pull of {group}, the first", (reply.code, reply.remark)
    for what, kind, expression in (
        ("right", "SQL92", "price > 5"), ("wrong", "SQL92", "price >"), ("empty", "SQL92", ""),
        ("unknown language", "OTHER", "price > 5"), ("errors", "SQL92", "price > 5 OR a > 1"),
    ):
        reply = client.request(RequestCode.PULL_MESSAGE, pull_header(
            TOPIC, 1, group="golden_own", expression=expression, expression_type=kind))
        yield f"own {what}", (reply.code, reply.remark if reply.code else "",
                              [message.body for message in records_of(reply.body)])
    for body, fields in ((b"r1", {"price": "6", "RETRY_TOPIC": TOPIC}),
                         (b"r2", {"price": "5", "RETRY_TOPIC": TOPIC}),
                         (b"r3", {"price": "5", "RETRY_TOPIC": OTHER_TOPIC})):
        client.send(RETRY_TOPIC, body, properties=fields)
    wait_until("the retries are there", lambda: client.max_offset(RETRY_TOPIC) == 3)
    yield "retries", pull_all(client, group_header(RETRY_TOPIC, "golden_dear", CONSUMERS[0][3]))
    reply = client.request(RequestCode.QUERY_CONSUME_QUEUE, QueryConsumeQueueRequestHeader(
        topic=TOPIC, queue_id=0, index=0, count=100, consumer_group="golden_near"))
    told = json.loads(reply.body)
    yield "bitmaps", [(row.get("bitMap"), row["eval"]) for row in told["queueData"]]
    yield "filter", {name: value for name, value in json.loads(told["filterData"]).items()
                     if not name.endswith("Time")}


class LibraryTests(JavaTestCase):
    """Apache's filter library, run now."""

    def test_apaches_library_answers_as_captured_and_as_ours(self) -> None:
        """Apache's library gives the captured results and the results of our library."""
        golden = json.loads((GOLDEN / "filter/answers.json").read_text())
        asked = filter_answers(EXPRESSIONS, PROPERTIES, self.folder)
        self.assertEqual(golden["properties"], [dict(each) for each in PROPERTIES])
        for expression, words in zip(EXPRESSIONS, asked, strict=True):
            self.assertEqual("".join(word[0] for word in words), golden["answers"][expression],
                             msg=expression)
            if expression not in TAKEN_HERE:
                self.assertEqual(words, self.ours(expression), msg=expression)

    def ours(self, expression: str) -> list[str]:
        try:
            evaluate = parse(expression).evaluate
        except ValueError:
            return ["REFUSED"]
        found = []
        for properties in PROPERTIES:
            try:
                value = evaluate(properties)
                found.append("NULL" if value is None else str(value).upper())
            except EvaluationError:
                found.append("ERROR")
        return found

    def test_its_bloom_filters_give_the_bits_that_were_captured(self) -> None:
        """The bits are those that were captured."""
        golden = json.loads((GOLDEN / "filter/bloom.json").read_text())
        self.assertEqual([*bloom_answers(BLOOM_SIZES, BLOOM_NAMES[:3], self.folder),
                          *bloom_answers(BLOOM_SIZES[-1:], BLOOM_NAMES, self.folder)], golden)


class BrokerTests(JavaTestCase):
    """Both brokers, and one store for both."""

    def exchange(self, folder: Path, settings: Mapping[str, str] = BITMAPS) -> Exchange:
        return Exchange(folder, free_port(), settings=settings)

    def test_same_answers(self) -> None:
        """Checks, pulls of groups and with own expressions, retries, filters."""
        theirs = self.compare(FILTERING, DIFFERENT)
        self.assertEqual(theirs["retries"][1], [b"r1", b"r3"])
        self.assertTrue(all(bits is None for bits, _ in theirs["bitmaps"]))

    def test_same_answers_with_bitmaps(self) -> None:
        """Apache's broker also uses bitmaps for retries, and loses some."""
        theirs = self.compare(BITMAPS, DIFFERENT | {"retries"})
        self.assertGreater(len({bits for bits, _ in theirs["bitmaps"]}), 2)

    def compare(self, settings: Mapping[str, str], different: set[str]) -> dict[str, Any]:
        """Ask both brokers; :returns: Apache's answers."""
        def work(client: RawClient) -> dict[str, Any]:
            prepare(client)
            return dict(answers(client))

        theirs: dict[str, Any] = self.exchange(
            self.folder / "apache", settings).apache(work, kill=True)
        ours = self.exchange(self.folder / "ours", settings).ours(work)
        self.assertEqual({name for name in theirs if theirs[name] != ours[name]}, different,
                         msg="\n".join(f"{name}\n  Apache {theirs[name]}\n  ours   {ours[name]}"
                                       for name in theirs if theirs[name] != ours[name]))
        self.assertGreater(len(theirs["pull of golden_near"][1]), 3)
        return theirs

    def long_exchange(self) -> None:
        """A store with filters and bitmaps goes from Apache's broker to ours and back."""
        exchange = self.exchange(self.folder)
        saved = self.folder / "store/config/consumerFilter.json"

        def pulls(client: RawClient) -> list[tuple[int, list[bytes]]]:
            beat(client)
            return [pull_all(client, group_header(topic, group, version))
                    for group, topic, _, version in CONSUMERS]

        def first(client: RawClient) -> list[tuple[int, list[bytes]]]:
            prepare(client)
            return pulls(client)

        def times() -> dict[tuple[str, str], tuple[int, int]]:
            table = json.loads(saved.read_text())["filterDataByTopic"]
            return {(topic, group): (data["bornTime"], data["clientVersion"])
                    for topic, groups in table.items()
                    for group, data in groups["groupFilterData"].items()}

        expected = exchange.apache(first)
        born = times()
        self.assertEqual(len(born), 4)
        for turn in (exchange.ours, exchange.apache, exchange.ours):
            self.assertEqual(turn(pulls), expected)
            self.assertEqual(times(), born)


class ClientTests(JavaTestCase):
    """Apache's Java client 5.3.3 with MessageSelector.bySql: the same checks on both brokers."""

    def round(self, namesrv: str) -> str:
        return clients.java_round("5.3.3", "filter", namesrv, self.folder / "unused")

    def test_java_clients_filter_at_our_broker_with_and_without_bitmaps(self) -> None:
        """Both cases run at the same time."""
        with ExitStack() as stack:
            brokers = {name: stack.enter_context(servers(
                self.folder / name, *[f"{key}={value}" for key, value in settings.items()]))
                for name, settings in (("plain", FILTERING), ("bitmaps", BITMAPS))}
            rounds = at_once(stack, {name: partial(self.round, running.namesrv)
                                     for name, running in brokers.items()})
            for printed in rounds.values():
                self.assertRegex(printed.result(), r"ok \d{2,} checks")
        for running in brokers.values():
            self.assertNotIn("Traceback", running.log())

    def long_apache(self) -> None:
        """Apache's broker passes the same checks."""
        printed = self.round(self.start_apache().namesrv_address)
        self.assertRegex(printed, r"ok \d{2,} checks")
