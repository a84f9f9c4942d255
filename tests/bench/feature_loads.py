"""Loads of delayed messages, transactions, filtered pulls and signed requests on one broker.

Each function drives one broker over some connections and gives figures by name: rates are a
second, CPU is the broker's, us a message. Standard library only, so that no broker is measured
with a client of its own. Used by `features`.
"""

from __future__ import annotations

import base64
import hmac
import json
import selectors
import socket
import struct
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import cycle

import wire_bench

QUEUES = 4
BODY_SIZE = 128
#: Codes of requests and of replies.
SEND, PULL, MAX_OFFSET, HEART_BEAT = 310, 11, 30, 34
SUCCESS, PULL_NOT_FOUND, PULL_RETRY_IMMEDIATELY = 0, 19, 20
PREPARED = "4"
#: The bit of a header's flag that says it is a reply.
RESPONSE = 1
#: To fill in: place in the log, message id, queue offset, opaque.
COMMIT_HEADER = (
    b'{"code":37,"extFields":{"commitLogOffset":"%d","commitOrRollback":"8",'
    b'"fromTransactionCheck":"false","msgId":"%s","producerGroup":"feature_bench",'
    b'"tranStateTableOffset":"%s"},"flag":0,"language":"JAVA","opaque":%d,'
    b'"serializeTypeCurrentRPC":"JSON","version":479}')
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
#: How long anything may take that is waited for, seconds.
PATIENCE = 90.0
Figures = dict[str, float]
#: Access key and secret key.
KEYS = ("bench-key", "secret-of-bench")
ACCOUNTS = f"""\
accounts:
- accessKey: {KEYS[0]}
  secretKey: {KEYS[1]}
  defaultTopicPerm: PUB|SUB
  defaultGroupPerm: PUB|SUB
"""
#: An expression that every message of a guarded load matches.
MATCHES_ALL = "a >= 0 AND colour IN ('red', 'blue')"
#: The settings of both brokers in a guarded load.
GUARDED = ("aclEnable=true", "enablePropertyFilter=true", "enableConsumeQueueExt=true",
           "enableCalcFilterBitMap=true", "traceTopicEnable=true")
Keys = tuple[str, str] | None


def request(code: int, opaque: int, fields: dict[str, str], body: bytes = b"",
            keys: Keys = None, binary: bool = False) -> bytes:
    """Return a frame.

    :param keys: access key and secret key to sign it with.
    :param binary: with a binary header; else with a JSON one.
    """
    if keys is not None:
        fields = {**fields, "AccessKey": keys[0]}
        content = "".join(fields[name] for name in sorted(fields)).encode() + body
        digest = hmac.digest(keys[1].encode(), content, "sha1")
        fields["Signature"] = base64.b64encode(digest).decode()
    return wire_bench.frame(code, opaque, fields, body, binary)


def send_request(opaque: int, topic: str, queue_id: int, properties: dict[str, str],
                 keys: Keys = None, sys_flag: str = "0", binary: bool = False) -> bytes:
    """Return a send whose body begins with its opaque."""
    text = "".join(f"{name}\x01{value}\x02" for name, value in properties.items())
    fields = {"a": "feature_bench", "b": topic, "c": "TBW102", "d": str(QUEUES),
              "e": str(queue_id), "f": sys_flag, "g": str(time.time_ns() // 1_000_000), "h": "0",
              "i": text, "j": "0", "k": "false", "l": "0", "m": "false"}
    return request(SEND, opaque, fields, (b"%012d" % opaque).ljust(BODY_SIZE, b"x"), keys, binary)


def pull_request(topic: str, queue_id: int, offset: int, expression: str = "*",
                 group: str = "feature_bench", keys: Keys = None, brings: bool = True) -> bytes:
    """Return a pull of 32 messages.

    :param brings: whether it brings its subscription; else the group's heartbeat did.
    """
    return request(PULL, queue_id, {
        "consumerGroup": group, "topic": topic, "queueId": str(queue_id),
        "queueOffset": str(offset), "maxMsgNums": "32", "sysFlag": "4" if brings else "0",
        "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": expression,
        "subVersion": "0", "expressionType": "TAG" if expression == "*" else "SQL92"}, keys=keys)


@dataclass(eq=False)
class Link:
    """A connection that sends its answer to each reply, until there is none."""

    connection: socket.socket
    #: Given code, header, body: the next bytes to send.
    replied: Callable[[Link, int, dict, bytes], bytes]
    buffer: bytearray = field(default_factory=bytearray)
    in_flight: int = 0
    #: What the load keeps here.
    count: int = 0
    offset: int = 0
    number: int = 0

    def send(self, data: bytes, requests: int = 1) -> None:
        self.in_flight += requests
        self.connection.setblocking(True)
        self.connection.sendall(data)


def refuse(link: Link, header: dict) -> SystemExit:
    """Return the error that names the broker by its port, because several are loaded in turn."""
    port = link.connection.getpeername()[1]
    return SystemExit(f"the broker on port {port} refused a request: {str(header)[:400]}")


def drive(links: Iterable[Link], is_over: Callable[[], bool]) -> None:
    """Pass replies to their connections until the time is over."""
    selector = selectors.DefaultSelector()
    for link in links:
        selector.register(link.connection, selectors.EVENT_READ, link)
    with selector:
        while not is_over():
            for key, _ in selector.select(0.005):
                receive(key.data)


def receive(link: Link) -> None:
    data = link.connection.recv(262_144)
    if not data:
        raise SystemExit("the broker closed a connection")
    link.buffer += data
    position, out, asked = 0, [], 0
    while True:
        end, code, header, start, stop = wire_bench.decode(link.buffer, position)
        if end < 0:
            break
        position = end
        assert header is not None
        if not header["flag"] & RESPONSE:
            # The broker tells a group's member of another one, before or after its reply.
            continue
        link.in_flight -= 1
        answer = link.replied(link, code, header, bytes(link.buffer[start:stop]))
        if answer:
            out.append(answer)
            asked += 1
    del link.buffer[:position]
    if out:
        link.send(b"".join(out), asked)


class Broker:
    """One broker: its address and its CPU time.

    :param endpoint: NAME=HOST:PORT:PID.
    """

    def __init__(self, endpoint: str, keys: Keys = None) -> None:
        self.endpoint = wire_bench.Endpoint(endpoint)
        self.keys = keys

    def link(self, replied: Callable[[Link, int, dict, bytes], bytes]) -> Link:
        return Link(self.endpoint.connect(), replied)

    def cpu_seconds(self) -> float:
        return wire_bench.cpu_seconds(self.endpoint.pids)

    def ask(self, code: int, fields: dict[str, str], body: bytes = b"") -> dict:
        """Return one request and the header of its reply, which must be a success."""
        found: list[dict] = []

        def replied(link: Link, code: int, header: dict, body: bytes) -> bytes:
            if code != SUCCESS:
                raise refuse(link, header)
            found.append(header)
            return b""

        link = self.link(replied)
        link.send(request(code, 1, fields, body, self.keys))
        drive([link], lambda: bool(found))
        link.connection.close()
        return found[0]

    def max_offset(self, topic: str, queue_id: int) -> int:
        header = self.ask(MAX_OFFSET, {"topic": topic, "queueId": str(queue_id)})
        return int(header["extFields"]["offset"])

    def make_topic(self, topic: str) -> None:
        """Create a topic by a message, with its queues."""
        link = self.link(lambda link, code, header, body: b"")
        link.send(send_request(0, topic, 0, {"UNIQ_KEY": f"first-{topic}"}, self.keys))
        drive([link], lambda: not link.in_flight)
        link.connection.close()


def stored(broker: Broker, topic: str, queue_ids: Iterable[int]) -> list[tuple[int, int]]:
    """(opaque, store timestamp) of all messages of some queues."""
    found: list[tuple[int, int]] = []

    def replied(link: Link, code: int, header: dict, body: bytes) -> bytes:
        if code == PULL_NOT_FOUND:
            return b""
        if code != SUCCESS:
            raise refuse(link, header)
        position = 0
        while position < len(body):
            (size,) = struct.unpack_from(">i", body, position)
            (store_ms,) = struct.unpack_from(">q", body, position + 56)
            (length,) = struct.unpack_from(">i", body, position + 84)
            if length:
                found.append((int(body[position + 88:position + 100]), store_ms))
            position += size
        link.offset = int(header["extFields"]["nextBeginOffset"])
        return pull_request(topic, link.number, link.offset)

    links = []
    for queue_id in queue_ids:
        link = broker.link(replied)
        link.number = queue_id
        link.send(pull_request(topic, queue_id, 0))
        links.append(link)
    drive(links, lambda: not any(link.in_flight for link in links))
    for link in links:
        link.connection.close()
    return found


def delays(broker: Broker, topic: str, count: int, seconds: float, level: int,
           delay_ms: int) -> Figures:
    """Messages sent evenly for some seconds with one delay level; how late each came, ms.

    The topic has to be there.
    """
    def replied(link: Link, code: int, header: dict, body: bytes) -> bytes:
        if code != SUCCESS:
            raise refuse(link, header)
        return b""

    links = [broker.link(replied) for _ in range(QUEUES)]
    begin, sent, begin_cpu = time.monotonic(), 0, broker.cpu_seconds()

    def send_what_is_due() -> bool:
        nonlocal sent
        due = min(count, int((time.monotonic() - begin) / seconds * count))
        batches: dict[int, list[bytes]] = {}
        while sent < due:
            sent += 1
            batches.setdefault(sent % QUEUES, []).append(send_request(
                sent, topic, sent % QUEUES, {"UNIQ_KEY": f"delay-{sent}", "DELAY": str(level)}))
        for number, batch in batches.items():
            links[number].send(b"".join(batch), len(batch))
        return sent == count and not any(link.in_flight for link in links)

    drive(links, send_what_is_due)
    sent_seconds = time.monotonic() - begin
    deadline = time.monotonic() + PATIENCE + delay_ms / 1000
    while sum(broker.max_offset(topic, queue_id) for queue_id in range(QUEUES)) < count + 1:
        if time.monotonic() > deadline:
            raise SystemExit(f"{broker.endpoint.name}: not all are delivered")
        time.sleep(0.25)
    cpu = broker.cpu_seconds() - begin_cpu
    for link in links:
        link.connection.close()
    due_ms = {number: store_ms + delay_ms
              for number, store_ms in stored(broker, SCHEDULE_TOPIC, [level - 1])}
    come = [(number, store_ms) for number, store_ms in stored(broker, topic, range(QUEUES))
            if number]
    late = sorted(store_ms - due_ms[number] for number, store_ms in come)
    if len({number for number, _ in come}) != count or len(come) != count:
        raise SystemExit(f"{broker.endpoint.name}: {len(come)} came, {count} were sent")
    return {"p50": late[count // 2], "p99": late[count * 99 // 100], "max": late[-1],
            "early": sum(each < 0 for each in late), "cpu": cpu / count * 1e6,
            "sent seconds": sent_seconds}


def transactions(broker: Broker, topic: str, seconds: float, window: int) -> Figures:
    """Half messages, each committed when it is acknowledged, and that acknowledged as well."""
    # Encoded before, and the other frame put together from a template: the load is to wait for
    # the broker, not the broker for the load.
    halves = cycle([send_request(number, topic, number % QUEUES, {
        "UNIQ_KEY": f"tran-{number}", "TRAN_MSG": "true", "PGROUP": "feature_bench"},
        sys_flag=PREPARED) for number in range(1, 8193)])

    def half() -> bytes:
        return next(halves)

    def replied(link: Link, code: int, header: dict, body: bytes) -> bytes:
        if code != SUCCESS:
            raise refuse(link, header)
        fields = header.get("extFields") or {}
        if "queueOffset" not in fields:
            link.count += 1
            return half()
        # A message id is address, port and place in the log.
        end = COMMIT_HEADER % (int(fields["msgId"][16:], 16), fields["msgId"].encode(),
                               fields["queueOffset"].encode(), header["opaque"])
        return struct.pack(">ii", 4 + len(end), len(end)) + end

    return _closed_loop(broker, replied, [half] * QUEUES, seconds, window)


def _closed_loop(
    broker: Broker, replied: Callable[[Link, int, dict, bytes], bytes],
    firsts: Iterable[Callable[[], bytes]], seconds: float, window: int,
) -> Figures:
    """Keep requests in flight on a connection for each first request; count the last part."""
    links = []
    for number, first in enumerate(firsts):
        link = broker.link(replied)
        link.number = number
        link.send(b"".join(first() for _ in range(window)), window)
        links.append(link)
    begin = time.monotonic()
    drive(links, lambda: time.monotonic() - begin > seconds / 4)
    counted, cpu, begin = sum(link.count for link in links), broker.cpu_seconds(), time.monotonic()
    drive(links, lambda: time.monotonic() - begin > seconds * 3 / 4)
    took, used = time.monotonic() - begin, broker.cpu_seconds() - cpu
    done = sum(link.count for link in links) - counted
    for link in links:
        link.connection.close()
    return {"rate": done / took, "cpu": used / max(done, 1) * 1e6}


def fill(broker: Broker, topic: str, count: int, window: int = 256) -> None:
    """Messages with the properties `a`, from 0 to 99, and `colour`."""
    broker.make_topic(topic)
    left = [count // QUEUES] * QUEUES
    frames = [[send_request(k + 1, topic, queue_id, {
        "UNIQ_KEY": f"fill-{queue_id}-{k}", "a": str(k % 100), "colour": ("red", "blue")[k % 2]})
        for k in range(1000)] for queue_id in range(QUEUES)]

    def replied(link: Link, code: int, header: dict, body: bytes) -> bytes:
        if code != SUCCESS:
            raise refuse(link, header)
        if not left[link.number]:
            return b""
        left[link.number] -= 1
        return frames[link.number][left[link.number] % 1000]

    links = []
    for number in range(QUEUES):
        link = broker.link(replied)
        link.number = number
        left[number] -= window
        link.send(b"".join(frames[number][:window]), window)
        links.append(link)
    drive(links, lambda: not any(link.in_flight for link in links))
    for link in links:
        link.connection.close()


def take_pulled(link: Link, code: int, header: dict, body: bytes) -> dict[str, str]:
    """Count the messages of a pull's reply, and note where the next begins; its fields."""
    if code not in (SUCCESS, PULL_NOT_FOUND, PULL_RETRY_IMMEDIATELY):
        raise refuse(link, header)
    position = 0
    while position < len(body):
        (size,) = struct.unpack_from(">i", body, position)
        position += size
        link.count += 1
    fields: dict[str, str] = header["extFields"]
    link.offset = int(fields["nextBeginOffset"])
    return fields


def filtered(broker: Broker, topic: str, expression: str) -> Figures:
    """Pull all of a topic by an expression; figures for each message that was looked at."""
    def replied(link: Link, code: int, header: dict, body: bytes) -> bytes:
        fields = take_pulled(link, code, header, body)
        if link.offset >= int(fields["maxOffset"]):
            return b""
        return pull_request(topic, link.number, link.offset, expression)

    links = []
    cpu, begin = broker.cpu_seconds(), time.monotonic()
    for number in range(QUEUES):
        link = broker.link(replied)
        link.number = number
        link.send(pull_request(topic, number, 0, expression))
        links.append(link)
    drive(links, lambda: not any(link.in_flight for link in links))
    took, used = time.monotonic() - begin, broker.cpu_seconds() - cpu
    looked_at = sum(link.offset for link in links)
    for link in links:
        link.connection.close()
    return {"rate": looked_at / took, "cpu": used / looked_at * 1e6,
            "found": sum(link.count for link in links), "looked at": looked_at}


def subscribe(broker: Broker, topic: str, group: str, expression: str) -> Link:
    """Send a consumer's heartbeat on a connection that must stay open."""
    def replied(link: Link, code: int, header: dict, body: bytes) -> bytes:
        if code != SUCCESS:
            raise refuse(link, header)
        return b""

    link = broker.link(replied)
    body = json.dumps({
        "clientID": f"feature@{group}", "producerDataSet": [], "consumerDataSet": [{
            "groupName": group, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "unitMode": False,
            "subscriptionDataSet": [{
                "topic": topic, "subString": expression, "expressionType": "SQL92",
                "classFilterMode": False, "tagsSet": [], "codeSet": [],
                "subVersion": time.time_ns() // 1_000_000}]}]}).encode()
    link.send(request(HEART_BEAT, 1, {}, body, broker.keys))
    drive([link], lambda: not link.in_flight)
    return link


def need_keys(broker: Broker, topic: str) -> None:
    """Check that unsigned requests are refused; :raises SystemExit: if they are not."""
    codes: list[int] = []

    def replied(link: Link, code: int, header: dict, body: bytes) -> bytes:
        codes.append(code)
        return b""

    link = broker.link(replied)
    link.send(send_request(1, topic, 0, {"UNIQ_KEY": "unsigned"}))
    drive([link], lambda: bool(codes))
    link.connection.close()
    if codes == [SUCCESS]:
        raise SystemExit(f"{broker.endpoint.name} takes requests that nobody signed")


def guarded_sends(
    broker: Broker, topic: str, seconds: float, window: int, binary: bool = False
) -> Figures:
    """Return signed sends with properties for filters."""
    frames = [[send_request(k + 1, topic, queue_id, {
        "UNIQ_KEY": f"guarded-{queue_id}-{k}", "KEYS": f"key{k}", "TAGS": f"tag{k % 8}",
        "a": str(k % 100), "colour": ("red", "blue")[k % 2]}, broker.keys, binary=binary)
        for k in range(4096)] for queue_id in range(QUEUES)]

    def replied(link: Link, code: int, header: dict, body: bytes) -> bytes:
        if code != SUCCESS:
            raise refuse(link, header)
        link.count += 1
        return frames[link.number][link.count % 4096]

    def first(queue_id: int) -> Callable[[], bytes]:
        return lambda: frames[queue_id][0]

    return _closed_loop(broker, replied, [first(n) for n in range(QUEUES)], seconds, window)


def guarded_pulls(broker: Broker, topic: str, group: str, seconds: float) -> Figures:
    """Return signed pulls of a group whose expression matches every message."""
    def replied(link: Link, code: int, header: dict, body: bytes) -> bytes:
        fields = take_pulled(link, code, header, body)
        if link.offset >= int(fields["maxOffset"]):
            link.offset = int(fields["minOffset"])
        return pull_request(topic, link.number, link.offset, "", group, broker.keys, False)

    def first(queue_id: int) -> Callable[[], bytes]:
        return lambda: pull_request(topic, queue_id, 0, "", group, broker.keys, False)

    return _closed_loop(broker, replied, [first(n) for n in range(QUEUES)], seconds, 1)
