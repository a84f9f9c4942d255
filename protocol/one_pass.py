"""A command whose extFields are read with it, in one pass over its JSON header.

For a caller that knows their class before the header is read. Leaf module of the hot path:
typed, so that mypyc compiles it.

Source: RemotingCommand @5.3.3.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

from twistmq.protocol.command import RemotingCommand
from twistmq.protocol.frame import JSON

__all__ = ["command_decoder", "decode_at_once"]

_UNREAD: Final = msgspec.Raw(b"")


def command_decoder(code: int, fields_type: Any) -> msgspec.json.Decoder[Any]:
    """A decoder of JSON headers of one code, with their extFields as a type.

    Without extFields, or with another code, it fails.
    """
    return msgspec.json.Decoder(msgspec.defstruct(
        RemotingCommand.__name__,
        [("code", Literal[int(code)]), ("ext_fields", fields_type)],
        bases=(RemotingCommand,), rename="camel", gc=False, kw_only=True), strict=False)


def decode_at_once(
    decoder: msgspec.json.Decoder[Any], header: bytes, body: bytes
) -> tuple[RemotingCommand, Any]:
    """Read a frame's JSON header; :returns: the command, and what its extFields were read as.

    :param decoder: from ``command_decoder``.
    :raises msgspec.DecodeError, UnicodeDecodeError, RecursionError: when the header is of another
        kind.
    """
    command: RemotingCommand = decoder.decode(header)
    fields = command.ext_fields
    command.ext_fields = _UNREAD
    command.serialize_type = JSON
    command.body = body
    command.sent = header
    return command, fields
