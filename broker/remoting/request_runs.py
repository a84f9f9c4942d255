"""Reads the requests at the head of a read that are handled together.

Parsing the header of a send into objects takes a large part of the time of a send, although the
path into the store needs only a few values. A send of one plain message in a binary header is
therefore scanned instead of parsed: the scan checks that the header contains nothing unusual, and
records the values and the positions that are needed. A signed send in a JSON header is scanned
too; its fields are read as texts, because they are needed to check the signature. If a plugin or a
refusal asks for command and header, they are parsed at that time. Any header that fails the scan is
parsed as usual, so the scan decides only the speed and never the result.

This is a leaf module of the hot path; it is typed, so that mypyc compiles it.

Source: NettyRemotingAbstract, SendMessageRequestHeaderV2 @5.3.3.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, Final

from twistmq.broker.remoting.request import Request
from twistmq.protocol.big_endian import uint16_at
from twistmq.protocol.binary_header import NO_NUMBER, plain_number
from twistmq.protocol.codes import RequestCode
from twistmq.protocol.command import RESPONSE_FLAG, RemotingCommand
from twistmq.protocol.errors import HeaderError
from twistmq.protocol.field_sets import HeaderTexts, ReadRequest
from twistmq.protocol.frame import ROCKETMQ, Frame
from twistmq.protocol.headers.send import SendMessageRequestHeaderV2
from twistmq.protocol.record import utf8
from twistmq.protocol.request_reader import RequestReader, json_start
from twistmq.protocol.signature import ACCESS_KEY, SIGNATURE, Signer

if TYPE_CHECKING:
    # Only mypyc reads this: machine integers make reading lengths faster.
    from mypy_extensions import i64

    from twistmq.broker.remoting.messages import Channel

__all__ = ["SendOutline", "SendTexts", "UnreadSend", "read_run", "send_outlines",
           "unread_json_send", "unread_send"]

_SEND: Final = int(RequestCode.SEND_MESSAGE_V2)
#: Bytes before the pairs of a binary header without a remark.
_FIXED_SIZE: Final = 21
#: The fields a, b, c and so on that a send must have, as bits.
_REQUIRED: Final = 0b1111_1111
_JSON_START: Final = json_start(_SEND)
#: Numbers as texts, as most sends contain them.
_SMALL_NUMBERS: Final = {str(number): number for number in range(-1, 100)}
#: The number of fields that a send must have.
_REQUIRED_COUNT: Final = 8
#: The number of one-letter fields of a send, and the bits of the access key and the signature.
_LETTERS: Final = 14
_HAS_KEY: Final = 1 << 14
_HAS_SIGNATURE: Final = 1 << 15
_ACCESS_KEY: Final = ACCESS_KEY.encode()
_SIGNATURE: Final = SIGNATURE.encode()


#: Topic, producer group, and properties in UTF-8.
SendOutline = tuple[str, str, bytes]


class SendTexts(HeaderTexts):
    """The extFields of a scanned send: the access key, and the fields with one-letter names.

    :param values: the values in the order in which they are signed: the access key, then a, b, c
        and so on; empty for a field that was not sent.
    :param signature: the signature as sent.
    :param seen: the fields that were sent, as bits.
    """

    __slots__ = ("_seen", "_signature", "_values")

    def __init__(self, values: list[bytes], signature: bytes, seen: int) -> None:
        self._values: list[bytes] = values
        self._signature: bytes = signature
        self._seen: int = seen

    def get(self, name: str) -> str | None:
        at = 0
        if name == SIGNATURE:
            return self._signature.decode("latin-1") if self._seen & _HAS_SIGNATURE else None
        if len(name) == 1 and "a" <= name <= "n":
            at = ord(name) - 96
            if not self._seen >> (at - 1) & 1:
                return None
        elif name != ACCESS_KEY or not self._seen & _HAS_KEY:
            return None
        return self._values[at].decode("latin-1")

    def are_signed_by(self, signer: Signer, body: bytes) -> bool:
        content = b"".join(self._values) + body
        return signer.has_signed_content(self._signature.decode("latin-1"), content)


class UnreadSend(Request[Any]):
    """A SEND_MESSAGE_V2 (310) whose header is not parsed: the values that a record is made of."""

    __slots__ = ("_frame", "_reader", "born_timestamp", "group", "group_begin", "group_end",
                 "message_flag", "properties", "queue_id", "reconsume_times", "sent_flag",
                 "sent_opaque", "sys_flag", "topic")

    def __init__(
        self, frame: Frame, reader: RequestReader, channel: Channel, now_ms: int
    ) -> None:
        super().__init__(None, None, channel, now_ms)
        self._frame: Frame = frame
        self._reader: RequestReader = reader
        self.topic: str = ""
        self.queue_id: int = 0
        self.sys_flag: int = 0
        self.born_timestamp: int = 0
        self.message_flag: int = 0
        self.reconsume_times: int = 0
        #: The properties, which are ASCII only.
        self.properties: bytes = b""
        self.sent_opaque: int = 0
        self.sent_flag: int = 0
        #: The producer group; None if it must be read from the header, between these positions.
        self.group: str | None = None
        self.group_begin: int = 0
        self.group_end: int = 0

    @property
    def body(self) -> bytes:
        return self._frame[2]

    @property
    def code(self) -> int:
        return _SEND

    @property
    def opaque(self) -> int:
        return self.sent_opaque

    @property
    def flag(self) -> int:
        return self.sent_flag

    @property
    def producer_group(self) -> str:
        group = self.group
        if group is None:
            group = self.group = self._frame[1][self.group_begin:self.group_end].decode("latin-1")
        return group

    def _read(self) -> RemotingCommand:
        read = self._reader.read_without_texts(self._frame)
        # A name that occurs twice is read as text, and the last value counts.
        self._header = read[1] if read[1] is not None else read[0].header(
            SendMessageRequestHeaderV2)
        if self.group is None:
            self.group = self._header.producer_group
        # A waiting request keeps the header's bytes only once, in its command.
        self._frame = ROCKETMQ, b"", self._frame[2]
        return read[0]


def send_outlines(requests: Sequence[Request[Any]]) -> list[SendOutline]:
    """Return the outline of each send, without parsing headers that are not parsed yet."""
    outlines: list[SendOutline] = []
    for request in requests:
        if isinstance(request, UnreadSend):
            outlines.append((request.topic, request.producer_group, request.properties))
        else:
            header = request.header
            outlines.append((header.topic, header.producer_group, utf8(header.properties or "")))
    return outlines


def read_run(
    reader: RequestReader, frames: Sequence[Frame], codes: Collection[int], size_free: int,
    channel: Channel, now_ms: int,
) -> tuple[list[Request[Any]], ReadRequest | None]:
    """Read the requests at the head of a read, as long as they have one code and are plain.

    :param codes: the codes of requests that are handled together; other requests end the run.
    :param size_free: the size of a frame up to which no limit of a handler needs to be checked.
    :returns: the requests with their headers, and the frame after them, if it was read.
    """
    run: list[Request[Any]] = []
    code = 0
    looks_through = _SEND in codes
    for frame in frames:
        if len(frame[1]) + len(frame[2]) > size_free:
            break
        if looks_through and (code == 0 or code == _SEND):
            send = unread_send(reader, frame, channel, now_ms) if frame[0] == ROCKETMQ else (
                unread_json_send(reader, frame, channel, now_ms) if reader.keeps_texts else None)
            if send is not None:
                code = _SEND
                run.append(send)
                continue
        try:
            read = reader.read(frame)
        except HeaderError:
            break
        command: RemotingCommand = read[0]
        header = read[1]
        if header is None or command.flag & RESPONSE_FLAG:
            return run, read
        if not run and command.code in codes:
            code = command.code
        elif command.code != code:
            return run, read
        run.append(Request(command, header, channel, now_ms, read[2]))
    return run, None


def unread_send(
    reader: RequestReader, frame: Frame, channel: Channel, now_ms: int
) -> UnreadSend | None:
    """Scan the header of a frame.

    :param reader: parses the whole header later, and decides whether the request gets its texts.
    :returns: None unless it is a plain send that the reader would accept.
    """
    data = frame[1]
    size: i64 = len(data)
    if size < _FIXED_SIZE or uint16_at(data, 0) != _SEND:
        return None
    flag: i64 = uint16_at(data, 9) << 16 | uint16_at(data, 11)
    opaque: i64 = uint16_at(data, 5) << 16 | uint16_at(data, 7)
    remark_size: i64 = uint16_at(data, 13) << 16 | uint16_at(data, 15)
    end: i64 = _FIXED_SIZE + (uint16_at(data, 17) << 16 | uint16_at(data, 19))
    if flag >= 0x8000_0000 or flag & RESPONSE_FLAG or remark_size or end > size:
        return None
    send = UnreadSend(frame, reader, channel, now_ms)
    send.sent_flag = flag
    send.sent_opaque = opaque - 0x1_0000_0000 if opaque >= 0x8000_0000 else opaque
    seen: i64 = 0
    at: i64 = _FIXED_SIZE
    keeps_texts = reader.keeps_texts
    values: list[bytes] = [b""] * (_LETTERS + 1) if keeps_texts else []
    signature = b""
    while at < end:
        if at + 6 > end:
            return None
        name_size: i64 = uint16_at(data, at)
        name: i64 = data[at + 2]
        start: i64 = at + name_size + 6
        # Clients do not write values of 64 KiB or more.
        if start > end or uint16_at(data, start - 4):
            return None
        name_at: i64 = at + 2
        at = start + uint16_at(data, start - 2)
        if at > end:
            return None
        if name_size != 1 or not 97 <= name <= 110:
            if not keeps_texts:
                continue
            # The signature covers all fields, so each of them must be known.
            text = data[name_at:name_at + name_size]
            if not _is_ascii(data, start, at):
                return None
            if text == _ACCESS_KEY:
                values[0] = data[start:at]
                seen |= _HAS_KEY
            elif text == _SIGNATURE:
                signature = data[start:at]
                seen |= _HAS_SIGNATURE
            else:
                return None
            continue
        seen |= 1 << (name - 97)
        if keeps_texts:
            values[name - 96] = data[start:at]
        if name == 98:  # b
            send.topic = data[start:at].decode("latin-1")
            if not send.topic.isascii():
                return None
        elif name == 97 or name == 99 or name == 110:
            # a is the producer group, c the topic to take settings from, n the broker.
            if not _is_ascii(data, start, at):
                return None
            if name == 97:
                send.group_begin, send.group_end = start, at
        elif name == 105:  # i
            send.properties = data[start:at]
            if not send.properties.isascii():
                return None
        elif name == 107 or name == 109:  # k unit mode, m batch
            if data[start:at] != b"false":
                return None
        else:
            number = plain_number(data, start, at)
            if number == NO_NUMBER:
                return None
            if not _takes(send, name - 97, number):
                return None
    if seen & _REQUIRED != _REQUIRED:
        return None
    if keeps_texts:
        send.texts = SendTexts(values, signature, seen)
    return send


def unread_json_send(
    reader: RequestReader, frame: Frame, channel: Channel, now_ms: int
) -> UnreadSend | None:
    """Scan the JSON header of a frame, if sends with its field names have passed before.

    :returns: None, as ``unread_send`` does.
    """
    if not frame[1].startswith(_JSON_START):
        return None
    shape = reader.shape_of(_SEND)
    read = None if shape is None else shape.read_json_texts(frame[1])
    if shape is None or read is None:
        return None
    command = read[0]
    flag: int = command.flag
    if flag & RESPONSE_FLAG:
        return None
    send = UnreadSend(frame, reader, channel, now_ms)
    send.texts = read[1]
    send.sent_flag, send.sent_opaque = flag, command.opaque
    values, places = read[1].values, shape.letters
    for letter in range(_LETTERS):
        at = places[letter]
        if at < 0:
            if letter < _REQUIRED_COUNT:
                return None
            continue
        text = values[at]
        if letter == 0:
            send.group = text
        elif letter == 1:
            send.topic = text
        elif letter == 8:  # i
            if not text.isascii():
                return None
            send.properties = text.encode()
        elif letter == 10 or letter == 12:  # k unit mode, m batch
            if text != "false":
                return None
        elif letter != 2 and letter != 13:  # c the topic to take settings from, n the broker
            known = _SMALL_NUMBERS.get(text)
            number: i64
            if known is not None:
                number = known
            else:
                data = utf8(text)
                number = plain_number(data, 0, len(data))
                if number == NO_NUMBER:
                    return None
            if not _takes(send, letter, number):
                return None
    return send


def _takes(send: UnreadSend, letter: i64, number: i64) -> bool:
    """Set the number of a field in a send; :returns: False when it is out of range."""
    if letter == 6:  # g
        send.born_timestamp = number
        return True
    if not -0x8000_0000 <= number <= 0x7FFF_FFFF:
        return False
    if letter == 4:  # e
        send.queue_id = number
    elif letter == 5:  # f
        send.sys_flag = number
    elif letter == 7:  # h
        send.message_flag = number
    elif letter == 9:  # j
        send.reconsume_times = number
    # d (the queues of a new topic) and l (the maximum of consume attempts) are only checked.
    return True


def _is_ascii(data: bytes, begin: i64, end: i64) -> bool:
    while begin < end:
        if data[begin] > 0x7F:
            return False
        begin += 1
    return True
