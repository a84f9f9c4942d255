# ^Load one or two RocketMQ brokers over the remoting protocol, in turn, and compare them.
"""Load one or two RocketMQ brokers over the remoting protocol, in turn, and compare them.

  wire_bench.py send  A=127.0.0.1:10911:PID  B=127.0.0.1:20911:PID  [options]
  wire_bench.py pull  A=...                  B=...                  [options]

Each endpoint is NAME=HOST:PORT:PID, PID being the broker's process, whose CPU time is read from
/proc; PID+PID counts two, as those of a master and its slave; PORT+PORT is loaded in turn, as the
ports of two brokers of one cluster. `send` keeps WINDOW pre-encoded SEND_MESSAGE_V2 requests in
flight on each connection; `pull` first sends messages, then reads the queues round and round with
PULL_MESSAGE. A request that is not answered with SUCCESS is counted as bad, and any bad one makes
the exit status 1. Rounds alternate A B A B, so a ratio of medians holds on a noisy machine where an
absolute figure does not. With --tls connections speak TLS, whatever the brokers' certificates are.
Standard library only.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import selectors
import socket
import ssl
import statistics
import struct
import time


def frame(code: int, opaque: int, fields: dict[str, str], body: bytes, binary: bool) -> bytes:
    if binary:
        ext = b"".join(
            struct.pack(">h", len(k)) + k.encode() + struct.pack(">i", len(v)) + v.encode()
            for k, v in fields.items()
        )
        header = struct.pack(">hbhiiii", code, 0, 479, opaque, 0, 0, len(ext)) + ext
    else:
        header = json.dumps(
            {
                "code": code,
                "extFields": fields,
                "flag": 0,
                "language": "JAVA",
                "opaque": opaque,
                "serializeTypeCurrentRPC": "JSON",
                "version": 479,
            },
            separators=(",", ":"),
        ).encode()
    return (
        struct.pack(">ii", 4 + len(header) + len(body), (int(binary) << 24) | len(header))
        + header
        + body
    )


def send_frame(topic: str, opaque: int, queue: int, size: int, binary: bool) -> bytes:
    fields = {
        "a": "wire_bench",
        "b": topic,
        "c": "TBW102",
        "d": "4",
        "e": str(queue),
        "f": "0",
        "g": str(int(time.time() * 1000)),
        "h": "0",
        "i": f"KEYS\x01key{opaque}\x02UNIQ_KEY\x017F0000010BAB18B4AAC2{opaque:012d}\x02"
        f"WAIT\x01true\x02TAGS\x01tag{opaque % 8}",
        "j": "0",
        "k": "false",
        "l": "0",
        "m": "false",
    }
    return frame(310, opaque, fields, os.urandom(size // 2 + 1).hex().encode()[:size], binary)


def pull_frame(
    topic: str, queue: int, offset: int, batch: int, group: str = "wire_bench",
    commits: bool = False,
) -> bytes:
    """Return a pull.

    :param commits: whether it commits its offset for the group.
    """
    return frame(
        11,
        queue,
        {
            "consumerGroup": group,
            "topic": topic,
            "queueId": str(queue),
            "queueOffset": str(offset),
            "maxMsgNums": str(batch),
            "sysFlag": "5" if commits else "4",
            "commitOffset": str(offset) if commits else "0",
            "suspendTimeoutMillis": "0",
            "subscription": "*",
            "subVersion": "0",
            "expressionType": "TAG",
        },
        b"",
        False,
    )


def decode(buffer: bytearray, offset: int) -> tuple[int, int, dict | None, int, int]:
    """Decode one frame at `offset`: (end or -1, code, JSON header or None, body
    start, body end).
    """
    if len(buffer) - offset < 8:
        return -1, 0, None, 0, 0
    total, mark = struct.unpack_from(">ii", buffer, offset)
    end = offset + 4 + total
    if len(buffer) < end:
        return -1, 0, None, 0, 0
    start = offset + 8
    stop = start + (mark & 0xFFFFFF)
    if mark >> 24:
        return end, struct.unpack_from(">h", buffer, start)[0], None, stop, end
    header = json.loads(bytes(buffer[start:stop]))
    return end, header["code"], header, stop, end


def cpu_seconds(pids: list[int]) -> float:
    ticks = 0
    for pid in pids:
        with open(f"/proc/{pid}/stat") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def tls_context() -> ssl.SSLContext:
    """Return a TLS context that trusts any broker."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def received(link: socket.socket) -> bytes:
    """Return the bytes that can be read now; TLS may have decrypted some already."""
    data = link.recv(262_144)
    while data and isinstance(link, ssl.SSLSocket) and link.pending():
        data += link.recv(link.pending())
    return data


class Endpoint:
    """A broker that is loaded, or several: NAME=HOST:PORT[+PORT...]:PID[+PID...]."""

    #: What connections speak; None: no TLS.
    tls: ssl.SSLContext | None = None

    def __init__(self, text: str) -> None:
        self.name, _, address = text.partition("=")
        host, ports, pids = address.split(":")
        self.addresses = itertools.cycle([(host, int(port)) for port in ports.split("+")])
        self.pids = [int(pid) for pid in pids.split("+")]
        self.rates: list[float] = []
        self.cpu: list[float] = []

    def connect(self) -> socket.socket:
        link = socket.create_connection(next(self.addresses))
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return link if self.tls is None else self.tls.wrap_socket(link)


def send_round(
    endpoint: Endpoint, args: argparse.Namespace, seconds: float
) -> tuple[float, float, int, str]:
    selector, links = selectors.DefaultSelector(), []
    for number in range(args.connections):
        frames = [
            send_frame(
                args.topic,
                number * 100_000 + k,
                k % args.queues,
                args.size,
                args.encoding == "rocketmq",
            )
            for k in range(max(args.window, 4096))
        ]
        link = {
            "socket": endpoint.connect(),
            "frames": frames,
            "next": args.window,
            "buffer": bytearray(),
        }
        links.append(link)
        selector.register(link["socket"], selectors.EVENT_READ, link)
        link["socket"].sendall(b"".join(frames[: args.window]))
    return drive(
        selector,
        links,
        endpoint,
        seconds,
        lambda link, header, start, stop: 1,
        lambda link, count: b"".join(
            link["frames"][(link["next"] + k) % len(link["frames"])] for k in range(count)
        ),
        args,
    )


def pulled(link: dict, header: dict, start: int, stop: int) -> int:
    """Let a queue's next pull go on behind an answer; :returns: the messages of the answer."""
    fields = header["extFields"]
    link["offset"] = int(fields["nextBeginOffset"])
    if link["offset"] >= int(fields["maxOffset"]):
        link["offset"] = int(fields["minOffset"])
    count = 0
    while start < stop:
        start += int.from_bytes(link["buffer"][start : start + 4], "big")
        count += 1
    return count


def pull_round(
    endpoint: Endpoint, args: argparse.Namespace, seconds: float
) -> tuple[float, float, int, str]:
    selector, links = selectors.DefaultSelector(), []
    for queue in range(args.queues):
        link = {
            "socket": endpoint.connect(),
            "queue": queue,
            "offset": 0,
            "buffer": bytearray(),
            "next": 0,
        }
        links.append(link)
        selector.register(link["socket"], selectors.EVENT_READ, link)
        link["socket"].sendall(pull_frame(args.topic, queue, 0, args.batch))

    return drive(
        selector,
        links,
        endpoint,
        seconds,
        pulled,
        lambda link, count: pull_frame(args.topic, link["queue"], link["offset"], args.batch),
        args,
    )


def drive(selector, links, endpoint, seconds, arrived, more, args) -> tuple[float, float, int, str]:
    good = bad = 0
    first_bad = ""
    begin, mark = time.monotonic(), None
    while (now := time.monotonic()) - begin < seconds:
        if mark is None and now - begin > min(2.0, seconds / 3):
            mark = (now, good, cpu_seconds(endpoint.pids))
        for key, _ in selector.select(0.2):
            link, answered, offset = key.data, 0, 0
            data = received(link["socket"])
            if not data:
                raise SystemExit(f"{endpoint.name} closed a connection")
            link["buffer"] += data
            while True:
                end, code, header, start, stop = decode(link["buffer"], offset)
                if end < 0:
                    break
                if code == 0:
                    good += arrived(link, header, start, stop)
                else:
                    bad, first_bad = bad + 1, first_bad or str(header)[:300]
                answered, offset = answered + 1, end
            del link["buffer"][:offset]
            if answered:
                link["socket"].sendall(more(link, answered))
                link["next"] += answered
    took, used = time.monotonic() - mark[0], cpu_seconds(endpoint.pids) - mark[2]
    for link in links:
        link["socket"].close()
    done = good - mark[1]
    return done / took, used / max(done, 1) * 1e6, bad, first_bad


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["send", "pull"])
    parser.add_argument("endpoints", nargs="+", type=Endpoint)
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--connections", type=int, default=4)
    parser.add_argument("--window", type=int, default=64)
    parser.add_argument("--size", type=int, default=128, help="body bytes")
    parser.add_argument("--encoding", choices=["json", "rocketmq"], default="rocketmq")
    parser.add_argument("--topic", default="WireBench")
    parser.add_argument("--queues", type=int, default=4)
    parser.add_argument("--batch", type=int, default=32, help="messages asked for by one pull")
    parser.add_argument("--tls", action="store_true", help="speak TLS")
    args = parser.parse_args()
    failures = 0
    if args.tls:
        for endpoint in args.endpoints:
            endpoint.tls = tls_context()
    if args.what == "pull":
        for endpoint in args.endpoints:
            send_round(endpoint, args, 6)
            time.sleep(1)
    for _ in range(args.rounds):
        for endpoint in args.endpoints:
            rate, cost, bad, first_bad = (send_round if args.what == "send" else pull_round)(
                endpoint, args, args.seconds
            )
            endpoint.rates.append(rate)
            endpoint.cpu.append(cost)
            failures += bad
            print(
                f"{endpoint.name}: {rate:>10,.0f} msg/s  {cost:7.2f} us of broker CPU a message  "
                f"bad={bad} {first_bad}",
                flush=True,
            )
    first = args.endpoints[0]
    for other in args.endpoints[1:]:
        rate_ratio = statistics.median(first.rates) / statistics.median(other.rates)
        cpu_ratio = statistics.median(first.cpu) / statistics.median(other.cpu)
        print(f"{first.name}/{other.name}: rate x{rate_ratio:.2f}, CPU a message x{cpu_ratio:.2f}")
    return 1 if failures else 0


if __name__ == "__main__":
    raise SystemExit(main())
