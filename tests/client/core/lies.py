"""Lies of servers, by a seed: changed fields, bodies, codes and opaques, and requests."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any, Final

from tests.client.core.box import Box
from twistmq.protocol.codes import RequestCode
from twistmq.protocol.command import encode_request
from twistmq.protocol.frame import JSON, FrameDecoder, encode_frame

__all__ = ["Liar", "TooBusy"]

#: Values of fields and of JSON.
_TEXTS: Final = ("", "-1", "x", "9223372036854775807", "99999999999999999999", "1.5", "null", "0",
                 "-9223372036854775808", "\x00", "0 0 0", "a;b;c", "0 0 1;0 1 5", "2147483648")
_VALUES: Final = (None, -1, 2**31, 10**30, "x", [], {}, True, 1.5, [[]], {"x": 1}, [None])
_CODES: Final = (0, 1, 2, 3, 14, 16, 17, 19, 20, 21, 22, 24, 25, 26, 31, 207, 209, 210, 215, 1500,
                 -5, 99999)
#: Requests of servers that clients serve, and some that none serves.
_REQUESTS: Final = (RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, RequestCode.CHECK_TRANSACTION_STATE,
                    RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
                    RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,
                    RequestCode.GET_CONSUMER_RUNNING_INFO, RequestCode.CONSUME_MESSAGE_DIRECTLY,
                    RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, 7, 99999)
#: Answers within a time of the hand's clock that does not pass: more of them are a loop.
_ANSWERS_MAX: Final = 2000


class TooBusy(AssertionError):
    """A client repeats requests without a wait."""


class Liar:
    """Stands between the servers of a box and its client.

    :param share: of the answers that are lies, 0 to 1.
    """

    def __init__(self, box: Box, seed: int, share: float) -> None:
        self.chance = random.Random(seed)
        self.share = share
        self._box = box
        self._received = box.engine.received
        self._now_ms = 0.0
        self._answers = 0
        box.engine.received = self.received  # type: ignore[method-assign]

    def received(self, number: int, data: bytes) -> None:
        """Pass on the data of a server, or a lie."""
        if self._box.clock.now_ms != self._now_ms:
            self._now_ms, self._answers = self._box.clock.now_ms, 0
        self._answers += 1
        if self._answers > _ANSWERS_MAX:
            raise TooBusy(f"{self._answers} answers at once")
        if self.chance.random() >= self.share:
            self._received(number, data)
            return
        lies: list[Callable[[bytes], bytes]] = [
            self._field, self._field, self._field, self._body, self._body, self._body, self._code,
            self._opaque, self._header, lambda frame: frame + frame, lambda frame: b"",
            lambda frame: frame[:self.chance.randrange(len(frame))],
            lambda frame: frame + self.request(), lambda frame: self.request() + frame]
        lie = self.chance.choice(lies)(data)
        if lie:
            self._received(number, lie)

    def request(self) -> bytes:
        """A request of a server, with fields and a body of any kind."""
        names = ("group", "topic", "consumerGroup", "clientId", "timestamp", "isForce", "queueId",
                 "tranStateTableOffset", "commitLogOffset", "brokerName", "bornHost", "storeHost",
                 "bornTimestamp", "storeTimestamp", "sysFlag", "flag", "properties", "jstackEnable")
        fields = {name: self.chance.choice(("g", "T", "1", *_TEXTS)) for name in names
                  if self.chance.random() < 0.8}
        body = self.chance.choice((b"", b"x", b"null", b"[]", b'{"offsetTable":{"x":1}}',
                                   self.chance.randbytes(200)))
        return encode_request(
            self.chance.choice(_REQUESTS), self.chance.choice((-1, 0, 5, 2**31 - 1)), None, body,
            oneway=self.chance.random() < 0.5, extra_fields=fields)

    # --- lies

    def _parts(self, frame: bytes) -> tuple[dict[str, Any], bytes]:
        _, header, body = FrameDecoder().feed(frame)[0]
        found: dict[str, Any] = json.loads(header)
        return found, body

    @staticmethod
    def _frame(header: dict[str, Any], body: bytes) -> bytes:
        return encode_frame(JSON, json.dumps(header).encode(), body)

    def _field(self, frame: bytes) -> bytes:
        header, body = self._parts(frame)
        fields = header.get("extFields") or {"x": ""}
        name = self.chance.choice(list(fields))
        if self.chance.random() < 0.2:
            del fields[name]
        else:
            fields[name] = self.chance.choice((*_TEXTS, *_VALUES))
        header["extFields"] = fields
        return self._frame(header, body)

    def _code(self, frame: bytes) -> bytes:
        header, body = self._parts(frame)
        header["code"] = self.chance.choice(_CODES)
        return self._frame(header, body)

    def _opaque(self, frame: bytes) -> bytes:
        header, body = self._parts(frame)
        header["opaque"] += self.chance.choice((-1, 1, 1000))
        return self._frame(header, body)

    def _header(self, frame: bytes) -> bytes:
        header, body = self._parts(frame)
        header[self.chance.choice(list(header))] = self.chance.choice(_VALUES)
        return self._frame(header, body)

    def _body(self, frame: bytes) -> bytes:
        header, body = self._parts(frame)
        if not body or self.chance.random() < 0.2:
            return self._frame(header, self.chance.choice(
                (b"", b"null", b"[]", b"{}", b"x", b"[" * 1000, self.chance.randbytes(300))))
        if body[:1] == b"{" and self.chance.random() < 0.7:
            return self._frame(header, self._changed_json(body))
        changed = bytearray(body)
        if len(changed) > 100 and self.chance.random() < 0.3:
            # The flags of a record: compressed, an inner batch, addresses of the other kind.
            changed[36:40] = self.chance.getrandbits(16).to_bytes(4)
            return self._frame(header, bytes(changed))
        for _ in range(self.chance.choice((1, 1, 4))):
            changed[self.chance.randrange(len(changed))] = self.chance.randrange(256)
        return self._frame(header, bytes(changed[:self.chance.choice((len(body), len(body) // 2))]))

    def _changed_json(self, body: bytes) -> bytes:
        try:
            found = json.loads(body)
        except ValueError:
            return b"{" + body
        places: list[tuple[Any, Any]] = []

        def walk(value: Any) -> None:
            items = value.items() if isinstance(value, dict) else enumerate(
                value) if isinstance(value, list) else ()
            for key, each in items:
                places.append((value, key))
                walk(each)

        walk(found)
        if places:
            where, key = self.chance.choice(places)
            where[key] = self.chance.choice((*_TEXTS, *_VALUES))
        return json.dumps(found).encode()
