"""The requests at the head of a read that are handled together.

A send of one plain message in a binary header is looked through and not read: where its parts are
is all that the way into the store needs. Its command and header are read when a plugin or a refusal
asks for them. Any other header is read as usual.
Leaf module of the hot path: typed, so that mypyc compiles it.

Source: NettyRemotingAbstract, SendMessageRequestHeaderV2 @5.3.3.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, Final

from twistmq.broker.codes import RequestCode
from twistmq.broker.errors import HeaderError
from twistmq.broker.remoting.request import Request
from twistmq.broker.wire.binary_header import NO_NUMBER, plain_number
from twistmq.broker.wire.command import RESPONSE_FLAG, RemotingCommand
from twistmq.broker.wire.field_sets import ReadRequest
from twistmq.broker.wire.frame import ROCKETMQ, Frame
from twistmq.broker.wire.request_reader import RequestReader

if TYPE_CHECKING:
    # Only mypyc reads it: machine integers read lengths faster.
    from mypy_extensions import i64

    from twistmq.broker.remoting.messages import Channel

__all__ = ["UnreadSend", "read_run", "unread_send"]

_SEND: Final = int(RequestCode.SEND_MESSAGE_V2)
#: Bytes before the pairs of a binary header without a remark.
_FIXED_SIZE: Final = 21
#: The letters a, b, c and so on that a send must have, as bits.
_REQUIRED: Final = 0b1111_1111


class UnreadSend(Request[Any]):
    """A SEND_MESSAGE_V2 (310) whose header is not read: its parts that a record is made of.

    :param frame: with a binary header.
    """

    __slots__ = ("_frame", "_reader", "born_timestamp", "message_flag", "properties", "queue_id",
                 "reconsume_times", "sent_flag", "sent_opaque", "sys_flag", "topic")

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
        #: All of it ASCII.
        self.properties: bytes = b""
        self.sent_opaque: int = 0
        self.sent_flag: int = 0

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

    def _read(self) -> RemotingCommand:
        read = self._reader.read(self._frame)
        self._header = read[1]
        # A request that waits keeps the header's bytes once, in its command.
        self._frame = ROCKETMQ, b"", self._frame[2]
        return read[0]


def read_run(
    reader: RequestReader, frames: Sequence[Frame], codes: Collection[int], size_free: int,
    channel: Channel, now_ms: int,
) -> tuple[list[Request[Any]], ReadRequest | None]:
    """Read the requests at the head of a read, as long as they have one code and are plain.

    :param codes: those of requests that are handled together; others are not taken.
    :param size_free: bytes of a frame that no handler's bounds have to be looked at for.
    :returns: requests with their headers; and the frame behind them, if it was read.
    """
    run: list[Request[Any]] = []
    code = 0
    looks_through = _SEND in codes
    for frame in frames:
        if len(frame[1]) + len(frame[2]) > size_free:
            break
        if looks_through and frame[0] == ROCKETMQ and (code == 0 or code == _SEND):
            send = unread_send(reader, frame, channel, now_ms)
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
        run.append(Request(command, header, channel, now_ms))
    return run, None


def unread_send(
    reader: RequestReader, frame: Frame, channel: Channel, now_ms: int
) -> UnreadSend | None:
    """Look through the header of a frame.

    :returns: None when it is anything else than a plain send that the reader would read.
    """
    data = frame[1]
    size: i64 = len(data)
    if size < _FIXED_SIZE or _int16(data, 0) != _SEND:
        return None
    flag: i64 = _int16(data, 9) << 16 | _int16(data, 11)
    opaque: i64 = _int16(data, 5) << 16 | _int16(data, 7)
    remark_size: i64 = _int16(data, 13) << 16 | _int16(data, 15)
    end: i64 = _FIXED_SIZE + (_int16(data, 17) << 16 | _int16(data, 19))
    if flag >= 0x8000_0000 or flag & RESPONSE_FLAG or remark_size or end > size:
        return None
    send = UnreadSend(frame, reader, channel, now_ms)
    send.sent_flag = flag
    send.sent_opaque = opaque - 0x1_0000_0000 if opaque >= 0x8000_0000 else opaque
    seen: i64 = 0
    at: i64 = _FIXED_SIZE
    while at < end:
        if at + 6 > end:
            return None
        name_size: i64 = _int16(data, at)
        name: i64 = data[at + 2]
        start: i64 = at + name_size + 6
        # A value of 64 KiB or more is not what clients write.
        if start > end or _int16(data, start - 4):
            return None
        at = start + _int16(data, start - 2)
        if at > end:
            return None
        if name_size != 1 or not 97 <= name <= 110:
            continue
        seen |= 1 << (name - 97)
        if name == 98:  # b
            send.topic = data[start:at].decode("latin-1")
            if not send.topic.isascii():
                return None
        elif name == 97 or name == 99 or name == 110:
            # a the producer's group, c the topic to take settings from, n the broker: texts that
            # are only checked.
            if not _is_ascii(data, start, at):
                return None
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
            if name == 103:  # g
                send.born_timestamp = number
                continue
            if not -0x8000_0000 <= number <= 0x7FFF_FFFF:
                return None
            if name == 101:  # e
                send.queue_id = number
            elif name == 102:  # f
                send.sys_flag = number
            elif name == 104:  # h
                send.message_flag = number
            elif name == 106:  # j
                send.reconsume_times = number
            # d queues of a topic to make, l the most times to consume: only checked.
    return send if seen & _REQUIRED == _REQUIRED else None


def _is_ascii(data: bytes, begin: i64, end: i64) -> bool:
    while begin < end:
        if data[begin] > 0x7F:
            return False
        begin += 1
    return True


def _int16(data: bytes, at: i64) -> i64:
    high: i64 = data[at]
    low: i64 = data[at + 1]
    return high << 8 | low
