"""A body as members of a line of JSON, as ``twistmq consume --json`` writes them."""

from __future__ import annotations

import base64

__all__ = ["body_members", "damage_members"]


def body_members(body: bytes) -> dict[str, str]:
    """Return the text of a body as ``body``; a body that is not text as ``body64``."""
    try:
        return {"body": body.decode()}
    except UnicodeDecodeError:
        return {"body64": base64.b64encode(body).decode()}


def damage_members(reason: str, raw: bytes) -> dict[str, str]:
    """Return the members for a body that cannot be read.

    :param raw: the stored bytes.
    """
    return {"damage": reason, "raw64": base64.b64encode(raw).decode()}
