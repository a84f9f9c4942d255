"""Messages as lines of text, which ``twistmq produce`` reads and ``twistmq consume`` prints."""

from __future__ import annotations

import base64
import json
import re
import time
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, BinaryIO, Final

from twistmq.client.base.errors import Undecodable
from twistmq.client.base.json_body import body_members, damage_members
from twistmq.client.base.messages import Message, ReceivedMessage
from twistmq.client.base.received_message import DamagedMessage
from twistmq.protocol.topic_names import key_fault, tag_fault

__all__ = ["formatted", "json_line", "paced", "read_messages", "unescaped"]

#: The maximum size of a line, bytes. A frame has less than 16 MiB; JSON may take six bytes per
#: byte.
_PART_SIZE_MAX: Final = 96 * 1024 * 1024
_ESCAPE: Final = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|.|$)", re.DOTALL)
_ESCAPED: Final = {"n": "\n", "r": "\r", "t": "\t", "0": "\0", "\\": "\\"}
_FIELD: Final = re.compile(rb"%(.)", re.DOTALL)


def read_messages(
    files: Iterable[BinaryIO], topic: str, delimiter: bytes, key_delimiter: bytes,
    properties: dict[str, str], tags: str, is_json: bool, delay_s: float,
) -> Iterator[Message]:
    """The messages in some files.

    :raises ValueError: when a line is not a message, or has a key or a tag that cannot be found;
        the text names the line.
    """
    if not delimiter:
        raise ValueError("the delimiter of messages is empty")
    for file in files:
        for number, part in enumerate(_parts(file, delimiter), 1):
            if not part:
                continue
            if is_json:
                try:
                    message = _of_json(topic, part, properties, tags, delay_s)
                except ValueError as error:
                    raise ValueError(f"line {number}: {error}") from None
                except RecursionError:
                    raise ValueError(f"line {number}: its brackets are nested too deep") from None
                yield message
                continue
            keys: tuple[str, ...] = ()
            if key_delimiter and key_delimiter in part:
                key, part = part.split(key_delimiter, 1)
                try:
                    keys = _checked((key.decode(),))
                except ValueError as error:
                    raise ValueError(f"line {number}: {error}") from None
            yield Message(topic=topic, body=part, tags=tags, keys=keys, properties=properties,
                          delay_s=delay_s)


def _checked(keys: Iterable[str]) -> tuple[str, ...]:
    """The keys of a line; :raises ValueError: when a message cannot be found by one of them."""
    all_keys = tuple(keys)
    for key in all_keys:
        fault = key_fault(key)
        if fault is not None:
            raise ValueError(f"key {key!r}: {fault}")
    return all_keys


def _of_json(
    topic: str, line: bytes, properties: dict[str, str], tags: str, delay_s: float
) -> Message:
    """Make a message from a JSON line; ``body64`` is a body in base64."""
    row = json.loads(line)
    if not isinstance(row, dict) or not ("body" in row or "body64" in row):
        raise ValueError(f"{line[:60]!r} is no JSON object with a body")
    keys = row.get("keys") or ()
    if isinstance(keys, str):
        keys = (keys,)
    if not (isinstance(keys, list | tuple) and all(isinstance(key, str) for key in keys)):
        raise ValueError(f"its keys are {keys!r}: a text or a list of texts is expected")
    own = row.get("properties") or {}
    if not (isinstance(own, dict) and all(isinstance(value, str) for value in own.values())):
        raise ValueError(f"its properties are {own!r}: an object of texts is expected")
    if "body64" in row and row["body64"] is None:
        raise ValueError("its body64 is null: a text is expected")
    keys = _checked(keys)
    for name in ("tags", "sharding_key", "body64"):
        if not isinstance(row.get(name) or "", str):
            raise ValueError(f"its {name} is {row[name]!r}: a text is expected")
    tag = row.get("tags")
    if tag and (fault := tag_fault(tag)) is not None:
        raise ValueError(f"tag {tag!r}: {fault}")
    body = (base64.b64decode(row["body64"], validate=True) if "body64" in row
            else row["body"].encode() if isinstance(row["body"], str)
            else json.dumps(row["body"]).encode())
    return Message(
        topic=topic, body=body, tags=row.get("tags") or tags, keys=keys,
        sharding_key=row.get("sharding_key") or "",
        properties={**properties, **own}, delay_s=delay_s)


def _parts(file: BinaryIO, delimiter: bytes) -> Iterator[bytes]:
    """Read a file in parts, as they arrive.

    :raises ValueError: when a part is longer than any message can be.
    """
    rest = bytearray()
    count = 0
    # ``read1`` returns the bytes that are available, so a slow pipe is not waited for.
    read = getattr(file, "read1", file.read)
    while data := read(1 << 16):
        # A delimiter of several bytes may have begun in the bytes that were read before.
        begin = max(len(rest) - len(delimiter) + 1, 0)
        rest += data
        if rest.find(delimiter, begin) >= 0:
            *parts, last = bytes(rest).split(delimiter)
            yield from parts
            count += len(parts)
            rest = bytearray(last)
        if len(rest) > _PART_SIZE_MAX:
            raise ValueError(f"line {count + 1} has over {_PART_SIZE_MAX} bytes, more than a "
                             "message may have")
    if rest:
        yield bytes(rest)


def paced(messages: Iterable[Message], rate: int) -> Iterator[Message]:
    """Yield messages at a limited rate."""
    begin = time.monotonic()
    for count, message in enumerate(messages):
        if rate:
            wait_s = begin + count / rate - time.monotonic()
            if wait_s > 0:
                time.sleep(wait_s)
        yield message


@cache
def unescaped(text: str) -> bytes:
    r"""Return the bytes of a text typed by the user, with escapes such as ``\n`` and ``\x1f``.

    :raises ValueError: when it contains another escape.
    """
    def byte_of(match: re.Match[str]) -> str:
        word = match[1]
        if word in _ESCAPED:
            return _ESCAPED[word]
        if len(word) == 3:
            # The byte may be invalid in UTF-8, so it is kept as a surrogate.
            return bytes((int(word[1:], 16),)).decode("utf-8", "surrogateescape")
        if len(word) == 5:
            return chr(int(word[1:], 16))
        raise ValueError(f"{text!r} contains {match[0]}, which is not one of the escapes \\n, \\r, "
                         "\\t, \\0, \\\\, \\xHH and \\uHHHH")

    try:
        return _ESCAPE.sub(byte_of, text).encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise ValueError(f"{text!r} contains half a character of UTF-16") from None


def _body_of(message: ReceivedMessage[Any], *, marked: bool) -> tuple[bytes, str]:
    """The body of a message, and the reason if it cannot be read.

    :param marked: whether a message with an unreadable body is wanted as well.
    :raises Undecodable: when the body cannot be read and ``marked`` is False.
    """
    try:
        return message.body, ""
    except Undecodable as error:
        if not marked:
            raise
        return b"", message.damage or str(error)


def formatted(form: str, message: ReceivedMessage[Any], *, marked: bool = False) -> bytes:
    """Format a message by the text of ``-f``.

    :param marked: treat a body that cannot be read as empty.
    :raises Undecodable: when the body cannot be read and ``marked`` is False.
    """
    body, _ = _body_of(message, marked=marked)
    fields: dict[str, Any] = {
        "t": lambda: message.topic, "b": lambda: message.queue.broker_name,
        "q": lambda: str(message.queue.queue_id), "o": lambda: str(message.offset),
        "T": lambda: message.tags, "k": lambda: " ".join(message.keys),
        "K": lambda: message.sharding_key, "i": lambda: message.id,
        "d": lambda: message.stored_at.isoformat(), "n": lambda: "\n", "%": lambda: "%"}
    text, *pieces = _FIELD.split(unescaped(form))
    parts = [text]
    for letter, text in zip(pieces[::2], pieces[1::2], strict=True):
        field = fields.get(letter.decode("latin-1"))
        parts += [body if letter == b"s" else field().encode() if field else b"%" + letter, text]
    return b"".join(parts)


def json_line(message: ReceivedMessage[Any], *, marked: bool = False) -> bytes:
    """Format a message as a line of JSON; a body that is not text is in ``body64``.

    :param marked: for a body that cannot be read, write the reason as ``damage`` and the stored
        bytes as ``raw64``.
    :raises Undecodable: when the body cannot be read and ``marked`` is False.
    """
    body, damage = _body_of(message, marked=marked)
    row: dict[str, Any] = {
        "topic": message.topic, "broker": message.queue.broker_name,
        "queue": message.queue.queue_id, "offset": message.offset, "id": message.id,
        "tags": message.tags, "keys": message.keys, "attempt": message.attempt,
        "stored_at": message.stored_at.isoformat(), "properties": message.properties}
    if damage:
        raw = message.raw if isinstance(message, DamagedMessage) else message.record.body
        row |= damage_members(damage, raw)
    else:
        row |= body_members(body)
    return json.dumps(row).encode() + b"\n"
