"""Attack a live name server and broker with frames that are wrong in every way.

    python -m tests.long.malformed [--frames 200000] [--seed 1]

Four fifths of the frames are captures from Apache's clients and servers with bytes changed or cut
or lengths that lie; the others are made by hypothesis from the header classes: right fields with
wrong values, in both encodings, for every code. They go to both ports over many connections, while
a client that behaves sends and pulls; every operation of it must succeed. Prints what was sent and
answered, and the memory of the servers (RssAnon) before and after. Ends with status 1 when the
good client failed, a server died or its memory grew by more than 100 MB.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import random
import re
import socket
import struct
import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tests.hostile.good_client import GoodClient, Tally
from tests.interop.servers import Servers, rss_anon_kib
from tests.protocol.test_headers import headers_of
from twistmq.protocol.binary_header import encode_binary_header
from twistmq.protocol.command import decode_command
from twistmq.protocol.errors import HeaderError
from twistmq.protocol.frame import JSON, ROCKETMQ, FrameDecoder, encode_frame
from twistmq.protocol.header import ext_fields_of
from twistmq.protocol.headers.table import HEADERS

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "frames"
#: Frames that one connection sends at the most, and for how long it waits for answers, seconds.
BURST = 50
WAIT_SECONDS = 0.01
GROWTH_MAX_KIB = 100 * 1024


def captures() -> list[bytes]:
    return [path.read_bytes() for path in sorted(GOLDEN.rglob("*.request.bin"))]


def mutated(frame: bytes, chance: random.Random) -> bytes:
    """Return a captured frame with a fault in it."""
    data = bytearray(frame)
    kind = chance.randrange(7)
    if kind == 0:  # a few bytes, lengths left alone
        for _ in range(chance.randint(1, 8)):
            data[chance.randrange(8, len(data))] = chance.randrange(256)
    elif kind == 1:  # a length that lies
        value = chance.choice([0, -1, 3, 4, 1 << 24, (1 << 24) + 1, 2**31 - 1, len(data) + 7])
        struct.pack_into(">i", data, chance.choice([0, 4]), value)
    elif kind == 2:  # cut short
        del data[chance.randrange(1, len(data)):]
    elif kind == 3:  # another body
        size = chance.choice([0, 1, 20, 5000])
        mark = struct.unpack_from(">I", data, 4)[0]
        return encode_frame(mark >> 24, bytes(data[8 : 8 + (mark & 0xFFFFFF)]),
                            chance.randbytes(size))
    elif kind == 4:  # digits changed inside the JSON
        return bytes(re.sub(rb"\d", lambda m: b"%d" % chance.randrange(10), data[8:]).join(
            [bytes(data[:8]), b""]))
    elif kind == 5:  # an unknown serialise type
        data[4] = chance.randrange(256)
    else:  # a value replaced by one of another type
        header = re.sub(rb'"(\d+|true|false)"', lambda m: chance.choice(
            [b"null", b"[]", b"{}", b"1e999", b'"x"', b"-1", b'""']), bytes(data[8:]), count=2)
        return encode_frame(JSON, header, b"")
    return bytes(data)


def made_frames() -> st.SearchStrategy[bytes]:
    """Return frames of every code with the right header fields, one of them perhaps spoilt."""
    def frame(code: int, fields: dict[str, str], spoilt: tuple[int, str] | None,
              serialize_type: int, flag: int, body: bytes) -> bytes:
        if spoilt is not None and fields:
            name = sorted(fields)[spoilt[0] % len(fields)]
            fields = {**fields, name: spoilt[1]}
        if serialize_type == ROCKETMQ:
            packed = encode_binary_header(code & 0x7FFF, "JAVA", 479, 1, flag, None, fields)
            return encode_frame(ROCKETMQ, packed, body)
        pairs = ",".join(f"{_json(name)}:{_json(value)}" for name, value in fields.items())
        header = f'{{"code":{code},"extFields":{{{pairs}}},"flag":{flag},"opaque":1,"version":479}}'
        return encode_frame(JSON, header.encode("utf-8", "replace"), body)

    spoilt = st.none() | st.tuples(st.integers(0, 20), st.text(max_size=20))
    return st.sampled_from(sorted(HEADERS)).flatmap(lambda code: st.builds(
        frame, st.just(int(code)), headers_of(HEADERS[code].request).map(ext_fields_of), spoilt,
        st.sampled_from([JSON, ROCKETMQ]), st.sampled_from([0, 0, 2, 1]),
        st.binary(max_size=200)))


def _json(text: str) -> str:
    return json.dumps(text)


class Attack:
    """Sends bursts over new connections and counts the responses."""

    def __init__(self, addresses: Sequence[tuple[str, int]]) -> None:
        self.addresses = addresses
        self.sent = 0
        self.closed = 0
        self.replies: collections.Counter[int] = collections.Counter()

    def burst(self, frames: Sequence[bytes]) -> None:
        """Send frames on one connection until the server closes it, and read the responses."""
        decoder = FrameDecoder()
        address = self.addresses[self.sent // BURST % len(self.addresses)]
        self.sent += len(frames)
        with socket.create_connection(address, 10) as link, contextlib.suppress(OSError):
            link.sendall(b"".join(frames))
            link.settimeout(WAIT_SECONDS)
            with contextlib.suppress(TimeoutError):
                while data := link.recv(1 << 16):
                    for frame in decoder.feed(data):
                        with contextlib.suppress(HeaderError):
                            self.replies[decode_command(frame).code] += 1
                self.closed += 1


def bursts(number: int, seed_number: int) -> Iterator[list[bytes]]:
    """Return bursts of changed captures."""
    chance = random.Random(seed_number)
    frames = captures()
    for _ in range(max(number // BURST, 1)):
        yield [mutated(chance.choice(frames), chance)
               for _ in range(chance.choice([5, BURST, BURST]))]


def attack(servers: Servers, frame_count: int, seed_number: int) -> tuple[Attack, Tally]:
    """Run the whole attack, one kind of frames after the other.

    :returns: what was sent and answered, and how a client that behaves fared meanwhile.
    """
    host, _, port = servers.namesrv.rpartition(":")
    running = Attack([(host, servers.broker_port), (host, servers.broker_port),
                      (host, int(port)), (host, servers.broker_port - 2)])
    good = GoodClient(f"{host}:{servers.broker_port}", servers.namesrv, pause_seconds=0).start()
    number = 0
    while running.sent < frame_count * 4 // 5:
        for frames in bursts(frame_count * 4 // 5 - running.sent, seed_number + number):
            running.burst(frames)
        number += 1

    @seed(seed_number)
    @settings(max_examples=max((frame_count - running.sent) // BURST, 1), deadline=None,
              database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(st.lists(made_frames(), min_size=BURST // 2, max_size=BURST))
    def made(frames: list[bytes]) -> None:
        running.burst(frames)

    while running.sent < frame_count:
        made()
    return running, good.stop()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="twistmq-") as folder:
        servers = Servers(Path(folder))
        servers.start()
        try:
            before = rss_anon_kib(servers.pid)
            running, good = attack(servers, args.frames, args.seed)
            after = rss_anon_kib(servers.pid)
            log = servers.log()
        finally:
            servers.stop()
    print(f"{running.sent:,} frames in {time.monotonic() - begin:.0f} s, "
          f"{sum(running.replies.values()):,} replies, {running.closed:,} connections closed by "
          "the servers")
    print("replies by code: " + ", ".join(
        f"{code}: {number:,}" for code, number in sorted(running.replies.items())))
    print(f"RssAnon {before / 1024:.1f} MB before, {after / 1024:.1f} MB after; "
          f"tracebacks in the log: {log.count('Traceback')}")
    print(f"the good client: {good.operations:,} operations, {len(good.failures)} failures "
          f"{good.failures[:3] or ''}")
    failed = bool(good.failures) or not good.operations or after - before > GROWTH_MAX_KIB
    return int(failed or "Traceback" in log)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        raise SystemExit(main())


__all__ = ["GROWTH_MAX_KIB", "Attack", "attack", "main", "mutated"]
