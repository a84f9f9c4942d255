"""Reads a command and its extFields in one pass over its JSON header.

This is for callers that know the class of the extFields before the header is read. It is a leaf
module of the hot path, typed so that mypyc can compile it.

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
    """A decoder for the JSON headers of one code, with a given type for their extFields.

    It fails when the header has no extFields or another code.
    """
    return msgspec.json.Decoder(msgspec.defstruct(
        RemotingCommand.__name__,
        [("code", Literal[int(code)]), ("ext_fields", fields_type)],
        bases=(RemotingCommand,), rename="camel", gc=False, kw_only=True), strict=False)


def decode_at_once(
    decoder: msgspec.json.Decoder[Any], header: bytes, body: bytes
) -> tuple[RemotingCommand, Any]:
    """Read a frame's JSON header; :returns: the command, and its decoded extFields.

    :param decoder: from ``command_decoder``.
    :raises msgspec.DecodeError, UnicodeDecodeError, RecursionError: when the header does not fit
        the decoder.
    """
    command: RemotingCommand = decoder.decode(header)
    fields = command.ext_fields
    command.ext_fields = _UNREAD
    command.serialize_type = JSON
    command.body = body
    command.sent = header
    return command, fields
