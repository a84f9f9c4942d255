"""A remoting command: the common fields of its header, its undecoded extFields, and its body.

Every message of the protocol, request or response, is a command. A response always has a JSON
header, whatever the encoding of its request was, as in Apache's broker.

Source: RemotingCommand @5.3.3; protocol notes 4.1 and trap 1.
"""

from __future__ import annotations

import contextlib
from typing import Final, TypeVar

import msgspec

from twistmq.protocol.binary_header import (
    BinaryHeaderError,
    decode_binary_header,
    encode_binary_header,
)
from twistmq.protocol.errors import HeaderError
from twistmq.protocol.frame import JSON, ROCKETMQ, Frame, encode_frame
from twistmq.protocol.header import (
    CommandHeader,
    Int32,
    decode_fields,
    ext_fields_of,
    header_values,
    read_ext_fields,
)
from twistmq.protocol.json_text import reply_start

__all__ = ["LANGUAGE", "ONEWAY_FLAG", "RESPONSE_FLAG", "VERSION", "RemotingCommand",
           "binary_command", "decode_command", "encode_reply", "encode_reply_start",
           "encode_request"]

RESPONSE_FLAG: Final = 1
ONEWAY_FLAG: Final = 2
#: The version in our commands, the ordinal of MQVersion V5_3_3, so that clients use its features.
VERSION: Final = 479
LANGUAGE: Final = "PYTHON"
#: A bound on the length of a language name; every real name is shorter.
_LANGUAGE_LENGTH_MAX: Final = 32

H = TypeVar("H", bound=CommandHeader)


class RemotingCommand(msgspec.Struct, rename="camel", gc=False):
    """A decoded command.

    ``ext_fields`` holds the bytes as received; :meth:`header` and :meth:`fields` decode them. When
    a command was read in one pass together with its extFields, ``ext_fields`` is empty and ``sent``
    holds the whole header. ``body``, ``serialize_type`` and ``sent`` come from the frame, never
    from the header.
    """

    code: Int32
    opaque: Int32 = 0
    flag: Int32 = 0
    version: Int32 = 0
    language: str | int | None = None
    remark: str | None = None
    ext_fields: msgspec.Raw = msgspec.Raw(b"")
    serialize_type: int = msgspec.field(default=JSON, name=" serialize_type")
    body: bytes = msgspec.field(default=b"", name=" body")
    sent: bytes = msgspec.field(default=b"", name=" sent")

    @property
    def is_response(self) -> bool:
        return bool(self.flag & RESPONSE_FLAG)

    @property
    def is_oneway(self) -> bool:
        return bool(self.flag & ONEWAY_FLAG)

    def header(self, header_type: type[H]) -> H:
        """Read extFields as ``header_type``; :raises HeaderError: when they do not fit."""
        return decode_fields(self.serialize_type, self.raw_fields(), header_type)

    def fields(self) -> dict[str, str]:
        """Read extFields as plain text pairs; :raises HeaderError: when they are not pairs."""
        return read_ext_fields(self.serialize_type, self.raw_fields())

    def raw_fields(self) -> msgspec.Raw:
        """The bytes of extFields as received.

        :raises HeaderError: when they contain more nested brackets than the stack can hold.
        """
        return _decode_json(self.sent).ext_fields if self.sent else self.ext_fields

    def release_header(self) -> int:
        """Free the bytes that a waiting command does not need; :returns: the bytes that it keeps.

        Without this call the bytes of the whole header live as long as the command.
        """
        self.remark = None
        # If extFields cannot be cut out, all bytes of the header stay.
        with contextlib.suppress(HeaderError):
            self.ext_fields, self.sent = self.raw_fields().copy(), b""
        if isinstance(self.language, str):
            self.language = self.language[:_LANGUAGE_LENGTH_MAX]
        return len(self.body) + len(self.ext_fields) + len(self.sent)


#: Numbers may be sent as texts, because Apache's decoder accepts that.
_decoder: Final = msgspec.json.Decoder(RemotingCommand, strict=False)


def _decode_json(header: bytes) -> RemotingCommand:
    """:raises HeaderError: as ``decode_command``."""
    try:
        return _decoder.decode(header)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise HeaderError(f"JSON header: {error}") from None


def decode_command(frame: Frame) -> RemotingCommand:
    """Read the header of a frame.

    :raises HeaderError: when it is not a header of its serialise type. The boundaries of the
        frame are still correct, so the connection can continue.
    """
    serialize_type, header, body = frame
    if serialize_type != JSON:
        return binary_command(header, body)[0]
    command = _decode_json(header)
    command.serialize_type = JSON
    command.body = body
    command.sent = b""
    return command


def binary_command(header: bytes, body: bytes) -> tuple[RemotingCommand, bytes]:
    """Read a binary header; :returns: the command, and its extFields a second time as bytes.

    :raises HeaderError: as ``decode_command``.
    """
    try:
        code, language, version, opaque, flag, remark, ext = decode_binary_header(header)
    except BinaryHeaderError as error:
        raise HeaderError(str(error)) from None
    return RemotingCommand(code, opaque, flag, version, language, remark, msgspec.Raw(ext),
                           ROCKETMQ, body), ext


def encode_request(
    code: int, opaque: int, header: CommandHeader | None = None, body: bytes = b"", *,
    oneway: bool = False, serialize_type: int = JSON,
    extra_fields: dict[str, str] | None = None,
) -> bytes:
    """Write one of our requests as a frame.

    :param extra_fields: fields in addition to those in the header, such as a signature.
    """
    fields = {**(ext_fields_of(header) if header else {}), **(extra_fields or {})}
    flag = ONEWAY_FLAG if oneway else 0
    if serialize_type != JSON:
        packed = encode_binary_header(code, LANGUAGE, VERSION, opaque, flag, None, fields)
        return encode_frame(serialize_type, packed, body)
    packed = msgspec.json.encode({
        "code": code, "extFields": fields, "flag": flag, "language": LANGUAGE,
        "opaque": opaque, "serializeTypeCurrentRPC": "JSON", "version": VERSION,
    })
    return encode_frame(JSON, packed, body)


def encode_reply(
    code: int, opaque: int, header: CommandHeader | None, body: bytes, remark: str | None
) -> bytes:
    """Write a response as one frame.

    :param code: a response code.
    :param opaque: the opaque of the request, by which the requester finds the response.
    """
    return encode_reply_start(code, opaque, header, len(body), remark) + body


def encode_reply_start(
    code: int, opaque: int, header: CommandHeader | None, body_size: int, remark: str | None
) -> bytes:
    """The bytes of a response before its body; the parameters are as in ``encode_reply``."""
    if header is None:
        return reply_start(code, opaque, remark, None, (), body_size)
    prefixes, values = header_values(header)
    return reply_start(code, opaque, remark, prefixes, values, body_size)
