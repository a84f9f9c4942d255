"""Records in answers, and their output."""

from __future__ import annotations

import codecs

from twistmq.client.base.codecs import decompress
from twistmq.client.base.errors import Undecodable
from twistmq.protocol.message_id import offset_message_id
from twistmq.protocol.properties import UNIQ_KEY
from twistmq.protocol.record import StoredMessage
from twistmq.tools.admin.session import AdminError

__all__ = ["body_text", "message_id_of", "offset_id"]


def offset_id(message: StoredMessage) -> str:
    """Return the id that contains the location of a message."""
    return offset_message_id(message.store_host, message.physical_offset)


def message_id_of(message: StoredMessage) -> str:
    """Return the id that the sender of a message knows."""
    return message.properties_map().get(UNIQ_KEY) or offset_id(message)


def body_text(message: StoredMessage, charset: str) -> str:
    """Return the body of a message as text, decompressed as by Java's clients."""
    try:
        codecs.lookup(charset)
    except LookupError:
        raise AdminError(f"there is no encoding {charset}") from None
    try:
        body = decompress(message.body, message.sys_flag)
    except Undecodable as error:
        return f"<{error}>"
    return body.decode(charset, "backslashreplace")
