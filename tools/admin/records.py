"""Records in answers, and how they are shown."""

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
    """The id that says where a message is stored."""
    return offset_message_id(message.store_host, message.physical_offset)


def message_id_of(message: StoredMessage) -> str:
    """The id its sender knows it by."""
    return message.properties_map().get(UNIQ_KEY) or offset_id(message)


def body_text(message: StoredMessage, charset: str) -> str:
    """A message's body as text, decompressed as Java's clients do."""
    try:
        codecs.lookup(charset)
    except LookupError:
        raise AdminError(f"there is no encoding {charset}") from None
    try:
        body = decompress(message.body, message.sys_flag)
    except Undecodable as error:
        return f"<{error}>"
    return body.decode(charset, "backslashreplace")
