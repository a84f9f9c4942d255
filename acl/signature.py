"""How a request is signed: HMAC-SHA1 with the secret key, in base64.

What is signed are the values of all extFields but the signature's own, in the order of the names,
with nothing between them, and the body behind. There is neither a time nor a number used once: a
frame that somebody recorded passes again, here as in Apache's broker; one with another body,
another field or another value does not.

Source: AclUtils.combineRequestContent, AclUtils.calSignature, PlainAccessResource.parse @5.2.0.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Mapping
from typing import Final

__all__ = ["ACCESS_KEY", "SIGNATURE", "is_signed_by", "request_content", "signature_of"]

ACCESS_KEY: Final = "AccessKey"
SIGNATURE: Final = "Signature"
#: Up to this version (MQVersion V4_9_3's ordinal) clients set the flag after they signed.
_SIGNS_BEFORE_FLAG: Final = 399
#: Whether a query by key is one by unique key. Source: MixAll.UNIQUE_MSG_QUERY_FLAG.
_UNIQUE_KEY_QUERY: Final = "_UNIQUE_KEY_QUERY"


def _java_order(name: str) -> bytes:
    """Java compares strings by their UTF-16 code units."""
    return name.encode("utf-16-be", "surrogatepass")


def request_content(fields: Mapping[str, str], body: bytes, version: int) -> bytes:
    """The bytes that are signed.

    :param fields: all extFields as text, the signature among them or not.
    :param version: the header's ``version``.
    """
    left_out = {SIGNATURE, _UNIQUE_KEY_QUERY} if version <= _SIGNS_BEFORE_FLAG else {SIGNATURE}
    names = [name for name in fields if name not in left_out]
    # Names are ASCII but in tests, and then the order is Python's own, twenty times as fast.
    names.sort(key=None if "".join(names).isascii() else _java_order)
    return "".join([fields[name] for name in names]).encode("utf-8", "replace") + body


def signature_of(content: bytes, secret_key: str) -> str:
    """The signature of some content."""
    return base64.b64encode(hmac.digest(secret_key.encode(), content, "sha1")).decode()


def is_signed_by(secret_key: str, fields: Mapping[str, str], body: bytes, version: int) -> bool:
    """Whether the request's signature is the one that this key makes."""
    given = fields.get(SIGNATURE, "").encode("utf-8", "replace")
    made = signature_of(request_content(fields, body, version), secret_key).encode()
    return hmac.compare_digest(given, made)
