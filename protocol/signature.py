"""Signs a request by HMAC-SHA1 with the secret key, in base64.

The signed text consists of the values of all extFields except the signature itself, in the order of
their names and without separators, followed by the body. It contains neither a time nor a nonce.
Therefore a recorded frame is accepted again, as in Apache's broker, but a frame with another body,
another field or another value is not.

Source: AclUtils.combineRequestContent, AclUtils.calSignature, PlainAccessResource.parse,
AclClientRPCHook, SessionCredentials @5.2.0.
"""

from __future__ import annotations

import binascii
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, Final

__all__ = ["ACCESS_KEY", "SECURITY_TOKEN", "SIGNATURE", "UNIQUE_KEY_QUERY", "Credentials",
           "Signer", "java_order", "request_content", "signature_of", "signed_fields"]

ACCESS_KEY: Final = "AccessKey"
SECURITY_TOKEN: Final = "SecurityToken"
SIGNATURE: Final = "Signature"
#: Clients up to this version (the ordinal of MQVersion V4_9_3) set the flag after they signed.
_SIGNS_BEFORE_FLAG: Final = 399
#: Whether a query by key is a query by unique key. Source: MixAll.UNIQUE_MSG_QUERY_FLAG.
UNIQUE_KEY_QUERY: Final = "_UNIQUE_KEY_QUERY"
#: Sets of names whose signing order is cached; a client's requests of one kind have the same names.
#: Sets with more or longer names are not cached, because they would never be dropped.
_ORDERS_MAX: Final = 256
_NAMES_MAX: Final = 64
_NAMES_LENGTH_MAX: Final = 1024

#: The size of a block of SHA-1, bytes.
_BLOCK_SIZE: Final = 64

_Values = Callable[[Mapping[str, str]], tuple[str, ...]]
#: The keys are the names and whether the client signs before it sets the flag; oldest entry first.
_orders: dict[tuple[tuple[str, ...], bool], _Values] = {}


@dataclass(frozen=True, slots=True)
class Credentials:
    """The account of a client, which signs its requests; only the access key is ever displayed.

    :param access_key: the name of the account.
    :param secret_key: the key that signs requests; it is never sent.
    :param security_token: belongs to temporary keys; otherwise empty.
    :raises ValueError: when one of them is not a text.
    """

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        for name in ("access_key", "secret_key", "security_token"):
            key = getattr(self, name)
            if not isinstance(key, str):
                # The text does not contain the key.
                raise ValueError(f"{name} is of type {type(key).__name__}: give a text")
            try:
                key.encode()
            except UnicodeEncodeError:
                # The error of Python would show the key.
                raise ValueError(f"{name} contains half a character of UTF-16") from None

    def __reduce__(self) -> tuple[type[Credentials], tuple[str, str, str]]:
        return Credentials, (self.access_key, self.secret_key, self.security_token)


def java_order(name: str) -> bytes:
    """The sort key of Java, which compares strings by their UTF-16 code units."""
    return name.encode("utf-16-be", "surrogatepass")


def request_content(fields: Mapping[str, str], body: bytes, version: int) -> bytes:
    """The bytes that are signed.

    :param fields: all extFields as text, with or without the signature.
    :param version: the header's ``version``.
    """
    key = tuple(fields), version <= _SIGNS_BEFORE_FLAG
    values_of = _orders.get(key) or _new_order(*key)
    return "".join(values_of(fields)).encode("utf-8", "replace") + body


def _new_order(names: tuple[str, ...], before_flag: bool) -> _Values:
    """Remember how to sign fields of these names, unless the names are too many or too long."""
    values_of = _signed_values(names, before_flag)
    if len(names) <= _NAMES_MAX and sum(map(len, names)) <= _NAMES_LENGTH_MAX:
        if len(_orders) >= _ORDERS_MAX:
            del _orders[next(iter(_orders))]
        _orders[names, before_flag] = values_of
    return values_of


def _signed_values(names: tuple[str, ...], before_flag: bool) -> _Values:
    """A function that picks the values to sign from fields of these names, in order."""
    left_out = {SIGNATURE, UNIQUE_KEY_QUERY} if before_flag else {SIGNATURE}
    signed = sorted((name for name in names if name not in left_out), key=java_order)
    if len(signed) > 1:
        return itemgetter(*signed)
    return lambda fields: tuple(fields[name] for name in signed)


class Signer:
    """Signs with one secret key, which is processed once.

    It keeps the two hashes of an HMAC after the key has been fed into them, because copying an
    ``hmac.HMAC`` is slow. Source: RFC 2104.
    """

    __slots__ = ("_are_equal", "_inner", "_outer")

    def __init__(self, secret_key: str) -> None:
        # A client without credentials needs neither module, and they take four MiB.
        from hashlib import sha1
        from hmac import compare_digest

        key = secret_key.encode()
        if len(key) > _BLOCK_SIZE:
            key = sha1(key).digest()
        key = key.ljust(_BLOCK_SIZE, b"\0")
        self._inner: Any = sha1(bytes([unit ^ 0x36 for unit in key]))
        self._outer: Any = sha1(bytes([unit ^ 0x5C for unit in key]))
        self._are_equal: Callable[[bytes, bytes], bool] = compare_digest

    def signature(self, content: bytes) -> bytes:
        """The signature of some content, in base64."""
        inner = self._inner.copy()
        inner.update(content)
        outer = self._outer.copy()
        outer.update(inner.digest())
        return binascii.b2a_base64(outer.digest(), newline=False)

    def has_signed(self, fields: Mapping[str, str], body: bytes, version: int) -> bool:
        """Whether the signature in the request's fields was made with this key."""
        return self.has_signed_content(
            fields.get(SIGNATURE, ""), request_content(fields, body, version))

    def has_signed_content(self, given: str, content: bytes) -> bool:
        """Whether a signature of some content was made with this key."""
        return self._are_equal(given.encode("utf-8", "replace"), self.signature(content))


def signature_of(content: bytes, secret_key: str) -> str:
    """The signature of some content."""
    return Signer(secret_key).signature(content).decode()


def signed_fields(
    fields: Mapping[str, str], body: bytes, version: int, credentials: Credentials
) -> dict[str, str]:
    """Sign one of our requests.

    :param fields: its extFields as text.
    :param version: the ``version`` in its header.
    :returns: the fields, including the access key, security token and signature.
    """
    signed = {**fields, ACCESS_KEY: credentials.access_key}
    if credentials.security_token:
        signed[SECURITY_TOKEN] = credentials.security_token
    content = request_content(signed, body, version)
    return {**signed, SIGNATURE: signature_of(content, credentials.secret_key)}
