"""The error text for an unknown keyword: the name that was probably meant, and all known names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

__all__ = ["SYNONYMS", "unknown_name"]

#: Names that other clients use, with the name that this client uses.
SYNONYMS: Final[Mapping[str, str]] = {
    "bootstrap_servers": "name_servers", "brokers": "name_servers", "namesrv": "name_servers",
    "namesrv_addr": "name_servers", "servers": "name_servers", "where": "name_servers",
    "group_id": "group", "topic": "topics", "value": "body", "payload": "body", "data": "body",
    "tag": "tags", "key": "keys", "headers": "properties", "user_properties": "properties",
    "delay": "delay_s", "delay_ms": "delay_s", "delay_time_level": "delay_level",
    "timestamp": "deliver_at", "partition": "queue", "queue_id": "queue",
    "ordering_key": "sharding_key", "message_group": "sharding_key", "timeout": "timeout_s",
    "timeout_ms": "timeout_s", "request_timeout_ms": "timeout_s", "auto_offset_reset": "start",
    "enable_auto_commit": "auto_acknowledge", "compression_type": "codec", "ssl": "tls",
    "ssl_context": "tls", "value_serializer": "encode", "value_deserializer": "decode",
    "max_poll_records": "pull_count",
}


def unknown_name(kind: str, name: str, known_names: Iterable[str]) -> str:
    """Describe a name that is not known.

    :param kind: the kind of name that was expected, such as "option".
    :param known_names: the names that the call accepts; another call may accept the unknown name.
    """
    names = sorted({*known_names} - {name})
    guess = SYNONYMS.get(name.lower())
    if guess not in names:
        # Imported here, because only a program with a mistake needs it.
        from difflib import get_close_matches

        guess = next(iter(get_close_matches(name.lower(), names, 1, 0.7)), None)
    hint = f", did you mean {guess}?" if guess else ";"
    return f"there is no {kind} {name}{hint} there are {', '.join(names)}"
