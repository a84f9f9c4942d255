"""Requests to two name servers; requests also register the brokers that they know.

As in `questions`: each is raw, the order matters, names are unique.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping
from typing import Any, Final

from tests.interop.questions import Question, q
from twistmq.protocol.codes import RequestCode

__all__ = ["namesrv_questions"]

#: Topics of the first broker: permission and system flag; 1 is a unit's, 2 has a unit's consumer.
_TOPICS: Final = {"T1": (6, 0), "ReadOnly": (4, 0), "Closed": (0, 0), "Unit": (6, 1),
                  "UnitSub": (6, 2), "UnitBoth": (6, 3), "TBW102": (7, 0), "Order": (6, 0)}


def namesrv_questions() -> Iterator[Question]:
    """Return all requests, in order."""
    yield from _values()
    yield from _registrations()
    yield from _routes("first")
    yield from _lists()
    yield from _permissions()
    yield from _single_topics()
    yield from _leaving()
    yield from _faults()


def _values() -> Iterator[Question]:
    put, get = RequestCode.PUT_KV_CONFIG, RequestCode.GET_KV_CONFIG
    delete, table = RequestCode.DELETE_KV_CONFIG, RequestCode.GET_KVLIST_BY_NAMESPACE
    yield q("nothing there", get, namespace="n", key="k")
    yield q("nothing there", table, namespace="n")
    yield q("nothing there", delete, namespace="n", key="k")
    yield q("value", put, namespace="n", key="k", value="v 1;ü")
    yield q("another", put, namespace="n", key="l", value="")
    yield q("value", get, namespace="n", key="k")
    yield q("other key", get, namespace="n", key="m")
    yield q("both", table, namespace="n")
    for missing in ("namespace", "key", "value"):
        fields = {"namespace": "n", "key": "k", "value": "v"}
        del fields[missing]
        yield q(f"without {missing}", put, **fields)
    yield q("value", delete, namespace="n", key="k")
    yield q("deleted", get, namespace="n", key="k")
    yield q("order", put, namespace="ORDER_TOPIC_CONFIG", key="Order", value="a:4")


def _register(
    what: str, name: str, address: str, broker_id: int = 0, *, cluster: str = "C1",
    topics: Mapping[str, tuple[int, int]] = _TOPICS, version: int = 1, filters: Any = (),
    crc: int | None = None, **fields: str | None,
) -> Question:
    """:param crc: that of the body; None: the right one."""
    body = json.dumps({
        "topicConfigSerializeWrapper": {
            "topicConfigTable": {
                topic: {"topicName": topic, "readQueueNums": 4, "writeQueueNums": 4, "perm": perm,
                        "topicFilterType": "SINGLE_TAG", "topicSysFlag": flag, "order": False}
                for topic, (perm, flag) in topics.items()},
            "dataVersion": {"stateVersion": 0, "timestamp": 5, "counter": version}},
        "filterServerList": list(filters)}).encode()
    right = zlib.crc32(body) & 0x7FFFFFFF
    return q(what, RequestCode.REGISTER_BROKER, body, **{
        "brokerName": name, "brokerAddr": address, "clusterName": cluster,
        "haServerAddr": address + "2", "brokerId": str(broker_id), "compressed": "false",
        "bodyCrc32": str(right if crc is None else crc), **fields})


def _registrations() -> Iterator[Question]:
    yield _register("first", "a", "10.0.0.1:1", filters=["10.0.0.9:1"])
    yield _register("again", "a", "10.0.0.1:1")
    yield _register("slave", "a", "10.0.0.2:1", 1)
    yield _register("second of the cluster", "b", "10.0.0.3:1")
    yield _register("of another cluster", "c", "10.0.0.4:1", cluster="C2",
                    topics={"T1": (6, 0), "Only": (6, 0)})
    yield _register("wrong checksum", "d", "10.0.0.5:1", crc=7)
    yield _register("without topics", "e", "10.0.0.6:1", topics={})
    yield _register("one topic of a known one", "b", "10.0.0.3:1", topics={"New": (6, 0)},
                    version=2)
    version = json.dumps({"stateVersion": 0, "timestamp": 5, "counter": 1}).encode()
    for what, body in (("same", version), ("other", version.replace(b"5", b"6"))):
        for address in ("10.0.0.1:1", "10.9.9.9:1"):
            yield q(f"{what} {address}", RequestCode.QUERY_DATA_VERSION, body, brokerName="a",
                    brokerAddr=address, clusterName="C1", brokerId="0")
    yield q("heartbeat", RequestCode.BROKER_HEARTBEAT, brokerName="a", brokerAddr="10.0.0.1:1",
            clusterName="C1", brokerId="0", heartbeatTimeoutMills="10000")


def _routes(when: str) -> Iterator[Question]:
    for topic in (*_TOPICS, "New", "Only", "nope", "", "C1"):
        for standard in ("true", "false"):
            yield q(f"{when} {topic!r} {standard}", RequestCode.GET_ROUTEINFO_BY_TOPIC,
                    topic=topic, acceptStandardJsonOnly=standard)
    yield q(when, RequestCode.GET_BROKER_CLUSTER_INFO)


def _lists() -> Iterator[Question]:
    for code in (RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
                 RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS, RequestCode.GET_UNIT_TOPIC_LIST,
                 RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST,
                 RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST):
        yield q("all", code)
    for cluster in ("C1", "C2", "nope"):
        yield q(cluster, RequestCode.GET_TOPICS_BY_CLUSTER, cluster=cluster)
    for cluster, name in (("C1", "a"), ("C1", "c"), ("nope", "a")):
        yield q(f"{cluster} {name}", RequestCode.GET_BROKER_MEMBER_GROUP, clusterName=cluster,
                brokerName=name)


def _permissions() -> Iterator[Question]:
    for name in ("a", "nope"):
        yield q(name, RequestCode.WIPE_WRITE_PERM_OF_BROKER, brokerName=name)
    yield from _routes("wiped")
    for name in ("a", "nope"):
        yield q(name, RequestCode.ADD_WRITE_PERM_OF_BROKER, brokerName=name)
    yield from _routes("added")


def _single_topics() -> Iterator[Question]:
    queue = {"brokerName": "a", "readQueueNums": 2, "writeQueueNums": 2, "perm": 6,
             "topicSysFlag": 0}
    register = RequestCode.REGISTER_TOPIC_IN_NAMESRV
    yield q("topic", register, {"queueDatas": [queue]}, topic="Single")
    yield q("topic", RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="Single")
    delete = RequestCode.DELETE_TOPIC_IN_NAMESRV
    yield q("of a cluster", delete, topic="T1", clusterName="C2")
    yield q("T1 of C1 left", RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="T1")
    yield q("of all", delete, topic="Single")
    yield q("nope", delete, topic="nope")
    yield q("Single gone", RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="Single")


def _leaving() -> Iterator[Question]:
    leave = RequestCode.UNREGISTER_BROKER
    yield _register("slave becomes master", "a", "10.0.0.2:1", version=3)
    yield from _routes("new master")
    for name, address, broker_id in (("nope", "10.0.0.9:1", "0"), ("a", "10.0.0.2:1", "0"),
                                     ("b", "10.0.0.3:1", "0"), ("c", "10.0.0.4:1", "0")):
        yield q(f"{name} {address}", leave, brokerName=name, brokerAddr=address,
                clusterName="C2" if name == "c" else "C1", brokerId=broker_id)
    yield from _routes("left")


def _faults() -> Iterator[Question]:
    """Return wrong registrations; they are last, because Apache's name server keeps
    parts of them.
    """
    yield q("nothing", RequestCode.GET_ROUTEINFO_BY_TOPIC)
    yield _register("with one topic only", "f", "10.0.0.7:1", topics={"T1": (6, 0)})
    for missing in ("brokerName", "brokerAddr", "clusterName", "haServerAddr", "brokerId"):
        yield _register(f"without {missing}", "g", "10.0.0.8:1", **{missing: None})
