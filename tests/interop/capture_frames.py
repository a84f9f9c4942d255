"""Capture the frames of real clients and Apache's servers, in tests/golden/frames.

Recorders stand before the name server and the broker: clients come to them, and a recorder's route
answers send them to the other recorder. Apache's broker registers through a third one.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from tests.interop import clients
from tests.interop.gallery import Gallery
from tests.interop.mqadmin import mqadmin
from tests.interop.peer import Peer, class_path, java_command
from tests.interop.recorder import Exchange, PlainClient, Recorder

__all__ = ["capture_frames", "golden_client"]

#: Short names of the request codes that are captured.
NAMES = {
    10: "send", 11: "pull", 12: "query-message", 14: "query-offset", 15: "update-offset",
    17: "create-topic", 28: "broker-runtime", 29: "search-offset", 30: "max-offset",
    31: "min-offset", 32: "earliest-time", 33: "view-message", 34: "heartbeat",
    35: "unregister-client", 36: "send-back", 38: "consumer-list", 40: "consumer-ids-changed",
    41: "lock-queues", 42: "unlock-queues", 101: "get-kv", 100: "put-kv", 103: "register-broker",
    104: "unregister-broker", 105: "route", 106: "cluster-info", 200: "create-group",
    202: "topic-stats", 203: "consumer-connections", 206: "topic-names", 208: "consume-stats",
    224: "topics-of-cluster", 300: "topic-consumers", 307: "consumer-running-info",
    310: "send-v2", 320: "send-batch", 322: "query-data-version", 351: "topic-config",
    901: "broker-member-group", 904: "broker-heartbeat",
}
#: Frames over this are left out: a route or a registration has less, a large body says no more.
FRAME_SIZE_MAX = 9000


def golden_client(
    home: Path, options: dict[str, str], *arguments: str
) -> list[str | Path]:
    """The command that runs the conversation in Java."""
    classes = clients.java_classes("5.3.3", clients.HERE / "golden_client")
    command = java_command(home, [str(classes), class_path("5.3.3")])
    settings = [f"-D{key}={value}" for key, value in options.items()]
    return [*command, *settings, "GoldenClient", *arguments]


def keep(gallery: Gallery, folder: str, name: str, exchange: Exchange, what: str) -> None:
    """Write a request and its reply, unless one is too long."""
    frames = [("request", exchange.request), ("reply", exchange.reply)]
    if any(frame is not None and len(frame.data) > FRAME_SIZE_MAX for _, frame in frames):
        return
    for kind, frame in frames:
        if frame is not None:
            gallery.add(f"{folder}/{name}.{kind}.bin", frame.data, f"{kind} of {what}",
                        code=exchange.request.code)


def keep_first(
    gallery: Gallery, folder: str, recorder: Recorder, who: str, *, from_client: bool = True
) -> None:
    """Keep the first exchange of each request code and each code of its reply."""
    for code in NAMES:
        seen: set[object] = set()
        for exchange in recorder.exchanges(code, from_client=from_client):
            if exchange.reply is None and not exchange.request.is_oneway:
                continue
            answer = "oneway" if exchange.reply is None else exchange.reply.code
            if answer not in seen:
                seen.add(answer)
                keep(gallery, folder, f"{code}-{NAMES[code]}-{answer}", exchange,
                     f"{NAMES[code]} by {who}, answer {answer}")


def keep_where(
    gallery: Gallery, folder: str, recorder: Recorder, code: int, name: str, what: str,
    accept: Callable[[Exchange], bool],
) -> None:
    """Keep the first exchange that is accepted; :raises LookupError: if there is none."""
    for exchange in recorder.exchanges(code):
        if exchange.reply is not None and accept(exchange):
            keep(gallery, folder, f"{code}-{name}", exchange, what)
            return
    raise LookupError(f"no {what} among the requests with code {code}")


def is_consumer_heartbeat(exchange: Exchange) -> bool:
    """Whether a heartbeat has a consumer with a tag expression."""
    return any("||" in subscription["subString"]
               for group in json.loads(exchange.request.body).get("consumerDataSet", [])
               for subscription in group["subscriptionDataSet"])


class Capture:
    """A name server and a broker of Apache, with a recorder in front of each.

    :param first_port: the first of five ports: of the name server, its two recorders, the broker
        and its recorder.
    """

    def __init__(self, folder: Path, first_port: int, settings: dict[str, str],
                 version: str = "5.3.3") -> None:
        self.namesrv_port, self.broker_link_port, self.client_port = range(
            first_port, first_port + 3)
        self.broker_port, self.broker_recorder_port = first_port + 1035, first_port + 35
        self.peer = Peer(folder, version, self.namesrv_port, self.broker_port, "512m",
                         settings=settings,
                         namesrv_address=f"127.0.0.1:{self.broker_link_port}")
        rewrite = (f"127.0.0.1:{self.broker_port}".encode(),
                   f"127.0.0.1:{self.broker_recorder_port}".encode())
        self.registration = Recorder(self.broker_link_port, self.namesrv_port)
        self.namesrv = Recorder(self.client_port, self.namesrv_port, rewrite)
        self.broker = Recorder(self.broker_recorder_port, self.broker_port)
        self._stack = ExitStack()

    @property
    def client_address(self) -> str:
        """Return the address of the name server for recorded clients."""
        return f"127.0.0.1:{self.client_port}"

    def __enter__(self) -> Capture:
        for recorder in (self.registration, self.namesrv, self.broker):
            self._stack.enter_context(recorder)
        self.peer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.peer.stop()
        self._stack.close()

    def forget(self) -> None:
        """Drop the recorded frames of clients."""
        self.namesrv.frames.clear()
        self.broker.frames.clear()


def java_frames(gallery: Gallery, capture: Capture, home: Path) -> None:
    """Apache's Java client 5.3.3 with both encodings of the header, and with code 10."""
    for encoding in ("JSON", "ROCKETMQ"):
        for smart, mode in (("true", "all"), ("false", "send")):
            capture.forget()
            options = {"rocketmq.serialize.type": encoding,
                       "org.apache.rocketmq.client.sendSmartMsg": smart}
            topic = f"Golden{encoding}{mode}"
            clients.run(golden_client(home, options, capture.client_address, topic, mode), 120)
            folder = f"java-{encoding.lower()}"
            who = f"the Java client 5.3.3 with {encoding} headers"
            if mode == "send":
                keep_where(gallery, folder, capture.broker, 10, "send-0",
                           f"send by {who}, sendSmartMsg=false", lambda _: True)
                continue
            keep_first(gallery, folder, capture.namesrv, who)
            keep_first(gallery, folder, capture.broker, who)
            keep_first(gallery, folder, capture.broker, "the broker 5.3.3", from_client=False)
            keep_where(gallery, folder, capture.broker, 34, "heartbeat-consumer",
                       f"a consumer's heartbeat by {who}", is_consumer_heartbeat)


def other_clients(gallery: Gallery, capture: Capture) -> None:
    """Run the Go client and the C++ client."""
    capture.forget()
    clients.go_round(capture.client_address)
    for recorder in (capture.namesrv, capture.broker):
        keep_first(gallery, "go", recorder, "the Go client v2.1.2")
    capture.forget()
    clients.python_client_round(capture.client_address, expands_batches=False)
    for recorder in (capture.namesrv, capture.broker):
        keep_first(gallery, "cpp", recorder, "PyPI's rocketmq 0.4.4, a C++ client")


def plain_requests(gallery: Gallery, capture: Capture) -> None:
    """Send requests that no client here sends."""
    routes = [
        ("route-unquoted", 400, {"topic": "TBW102"}, "a version below 401: keys without quotes"),
        ("route-quoted", 401, {"topic": "TBW102"}, "version 401: standard JSON"),
        ("route-asked-standard", 317, {"topic": "TBW102", "acceptStandardJsonOnly": "true"},
         "version 317 and acceptStandardJsonOnly"),
        ("route-not-found", 479, {"topic": "NoSuchTopic"}, "a topic that does not exist"),
        ("route-empty-topic", 479, {"topic": ""}, "an empty topic"),
        ("route-no-topic", 479, {}, "no topic at all"),
    ]
    for name, version, fields, what in routes:
        with PlainClient(capture.namesrv_port, version) as client:
            keep(gallery, "plain", f"105-{name}", client.call(105, fields), f"route, {what}")
    with PlainClient(capture.namesrv_port) as client:
        member = {"clusterName": "DefaultCluster", "brokerName": "broker-peer"}
        for code, name, fields in [
            (106, "cluster-info", {}), (901, "broker-member-group", member),
            (901, "broker-member-group-unknown", {**member, "brokerName": "no-such-broker"}),
            (206, "topic-names", {}), (224, "topics-of-cluster", {"cluster": "DefaultCluster"}),
            (101, "get-kv-not-found", {"namespace": "ORDER_TOPIC_CONFIG", "key": "none"}),
            (9999, "unknown-code-namesrv", {}),
        ]:
            exchange = client.call(code, fields)
            keep(gallery, "plain", f"{code}-{name}", exchange, f"{name} at the name server")
    broker_requests(gallery, capture)


def broker_requests(gallery: Gallery, capture: Capture) -> None:
    """Send refused requests, and reads by offset, to the broker."""
    queue = {"topic": "GoldenJSONall", "queueId": "0"}
    pull = {**queue, "consumerGroup": "GoldenG", "maxMsgNums": "32", "sysFlag": "4",
            "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*",
            "subVersion": "0", "expressionType": "TAG"}
    send = {"a": "GoldenP", "c": "TBW102", "d": "4", "f": "0", "g": "1700000000000", "h": "0",
            "i": "", "j": "0", "k": "false", "m": "false"}
    with PlainClient(capture.broker_port) as client:
        client.call(34, {}, json.dumps({
            "clientID": "golden@1", "producerDataSet": [], "consumerDataSet": [
                {"groupName": "GoldenG", "consumeType": "CONSUME_ACTIVELY",
                 "messageModel": "CLUSTERING", "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
                 "unitMode": False, "subscriptionDataSet": []}]}).encode())
        for name, code, fields in [
            ("view-message-unknown", 33, {"offset": "1"}),
            ("pull-offset-too-large", 11, {**pull, "queueOffset": "1000"}),
            ("pull-offset-negative", 11, {**pull, "queueOffset": "-1"}),
            ("pull-nothing-new", 11, {**pull, "queueOffset": "MAX"}),
            ("pull-queue-too-large", 11, {**pull, "queueId": "99", "queueOffset": "0"}),
            ("pull-unknown-topic", 11, {**pull, "topic": "NoSuchTopic", "queueOffset": "0"}),
            ("send-illegal-topic", 310, {**send, "b": "no spaces please", "e": "0"}),
            ("send-long-topic", 310, {**send, "b": "t" * 128, "e": "0"}),
            ("send-queue-too-large", 310, {**send, "b": "GoldenJSONall", "e": "99"}),
            ("send-unknown-default", 310, {**send, "b": "New", "c": "NoSuchTopic", "e": "0"}),
            ("send-system-topic", 310, {**send, "b": "SCHEDULE_TOPIC_XXXX", "e": "0"}),
            ("send-no-header", 310, {}),
            ("query-offset-not-found", 14, {**queue, "consumerGroup": "NoSuchGroup"}),
            ("create-topic-illegal", 17, {
                "topic": "no spaces please", "defaultTopic": "TBW102", "readQueueNums": "4",
                "writeQueueNums": "4", "perm": "6", "topicFilterType": "SINGLE_TAG",
                "topicSysFlag": "0", "order": "false"}),
            ("unknown-code-broker", 9999, {}),
        ]:
            if fields.get("queueOffset") == "MAX":
                reply = client.call(30, queue).reply
                assert reply is not None
                header = json.loads(reply.data[8:len(reply.data) - len(reply.body)])
                fields = {**fields, "queueOffset": header["extFields"]["offset"]}
            keep(gallery, "plain", f"{code}-{name}", client.call(code, fields, b"body"
                 if code == 310 else b""), f"{name} at the broker")


def admin_frames(gallery: Gallery, capture: Capture) -> None:
    """Record the requests of mqadmin and their responses."""
    capture.forget()
    mqadmin(capture.client_address, [
        "updateTopic -c DefaultCluster -t GoldenAdmin -r 4 -w 4",
        "updateSubGroup -c DefaultCluster -g GoldenAdminG", "topicRoute -t GoldenJSONall",
        "topicStatus -t GoldenJSONall", "topicList -c", "clusterList",
        f"brokerStatus -b 127.0.0.1:{capture.broker_recorder_port}",
        "consumerProgress -g GoldenG",
    ])
    for recorder in (capture.namesrv, capture.broker):
        keep_first(gallery, "mqadmin", recorder, "mqadmin 5.3.3")


def registration_frames(gallery: Gallery, folder: Path, first_port: int) -> None:
    """Record the requests of Apache's broker to a name server.

    5.3.3 compresses the body but says ``"compressed":"false"``, so no name server of 5.x takes it;
    4.9.4 says what it does.
    """
    plain = {"forceRegister": "false", "registerNameServerPeriod": "10000"}
    compressed = {**plain, "compressedRegister": "true"}
    # An acting master asks for its group and sends heartbeats, by 901 and 904 in the new way, by
    # 105 and a one-way 322 when the name server may be old.
    acting = {**plain, "enableSlaveActingMaster": "true"}
    for name, version, settings, codes in (
        ("register-plain", "5.3.3", plain, (103, 322)),
        ("register-compressed", "5.3.3", compressed, (103,)),
        ("register-compressed-4.9.4", "4.9.4", compressed, (103, 322)),
        ("register-acting-old", "5.3.3", acting, (103, 105, 322)),
        ("register-acting", "5.3.3", {**acting, "compatibleWithOldNameSrv": "false"},
         (103, 901, 904)),
    ):
        capture = Capture(folder / name, first_port, settings, version)
        with capture:
            for code in codes:
                capture.registration.wait_for(code, 60)
        keep_first(gallery, name, capture.registration, f"the broker {version}")


def capture_frames(folder: Path, first_port: int) -> None:
    """Write tests/golden/frames.

    :param folder: for the peer's data.
    :param first_port: the first of those that :class:`Capture` takes.
    """
    gallery = Gallery("frames", __doc__ or "")
    registration_frames(gallery, folder, first_port)
    with Capture(folder / "frames", first_port, {}) as capture:
        java_frames(gallery, capture, folder / "home")
        other_clients(gallery, capture)
        plain_requests(gallery, capture)
        admin_frames(gallery, capture)
    gallery.close()
