"""Files with input rows or exports of commands, and settings in the answers of servers."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import msgspec

from twistmq.broker.config.properties_file import decode_properties, parse_properties
from twistmq.tools.admin.session import AdminError

__all__ = ["read_list", "read_settings", "write_export"]

T = TypeVar("T", bound=msgspec.Struct)


def read_list(file: str, kind: type[T]) -> list[T]:
    """Read a JSON list

    :raises AdminError: when the file cannot be read, or contains members of other types.
    """
    try:
        return msgspec.json.decode(Path(file).read_bytes(), type=list[kind])  # type: ignore[valid-type]
    except OSError as error:
        raise AdminError(f"{file}: {error.strerror}") from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise AdminError(f"{file}: {error}") from None


def read_settings(body: bytes) -> dict[str, str]:
    """Return the settings in a server's answer, which is a Java ``.properties`` file."""
    return {each.key: each.value for each in parse_properties(decode_properties(body)[0])}


def write_export(folder: str, name: str, content: object) -> str:
    """Write an export as indented JSON, and return the file name."""
    path = Path(folder) / name
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n")
    except OSError as error:
        raise AdminError(f"{path}: {error.strerror}") from None
    return str(path)
