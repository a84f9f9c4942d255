"""The encoding of kombu's messages as JSON in the bodies of messages, and the times in them.

    body, content-type, content-encoding    as kombu passes them; bytes are in base64
    headers                                 Celery's: the task, its id, and ``eta`` as ISO 8601
    properties                              kombu's: delivery_info, priority, expiration in ms
    expires                                 Unix seconds from which the message is dropped
    redelivered                             whether a consumer requeued the message
"""

from __future__ import annotations

import base64
import time
from datetime import UTC, datetime
from typing import Any

import msgspec
from kombu.utils.json import dumps, loads

from twistmq.client import Undecodable
from twistmq.integrations.base.names import search_keys

__all__ = ["Envelope", "bytes_of", "due_time", "envelope_of", "expiry", "search_key", "set_expiry"]

#: A message of kombu, in the form of its virtual transports.
Envelope = dict[str, Any]


class _DeliveryInfo(msgspec.Struct):
    """Where a message was sent."""

    exchange: str | None = None
    routing_key: str | None = None


class _Properties(msgspec.Struct):
    """The properties of kombu that the transport or a channel reads."""

    delivery_info: _DeliveryInfo
    body_encoding: str | None = None
    expiration: str | int | float | None = None


class _Form(msgspec.Struct, rename={"content_type": "content-type",
                                    "content_encoding": "content-encoding"}):
    """The types of the members of an envelope that the transport or kombu reads."""

    properties: _Properties
    #: A text or bytes.
    body: Any = None
    headers: dict[str, Any] | None = None
    content_type: str | None = None
    content_encoding: str | None = None
    expires: float | None = None


def bytes_of(envelope: Envelope) -> bytes:
    """Return the body of the broker's message."""
    data: str = dumps(envelope)
    return data.encode()


def envelope_of(body: bytes) -> Envelope:
    """Return the message of kombu; :raises Undecodable: when the body has another form.

    Every member is checked on which a reader or kombu itself would fail, because such a message
    would end the reader, and the next one too.
    """
    try:
        envelope = loads(body)
        _check_form(envelope)
        return dict(envelope)
    except Undecodable:
        raise
    except Exception as error:
        # The decoders of kombu's types raise errors of many kinds.
        raise Undecodable("the body was not written by kombu's transport") from error


def _check_form(envelope: object) -> None:
    """:raises Exception: when a member of an envelope has a type or a value of another form."""
    form = msgspec.convert(envelope, _Form)
    if not isinstance(form.body, str | bytes | None):
        raise TypeError("the body is neither a text nor bytes")
    encoding = (form.properties.body_encoding or "utf-8").lower()
    if encoding == "base64":
        base64.b64decode(form.body or "")
    elif encoding != "utf-8":
        raise ValueError("unknown body_encoding")
    if form.properties.expiration is not None:
        float(form.properties.expiration)


def due_time(envelope: Envelope) -> float | None:
    """Return the ``eta`` of a task in Unix seconds, or None if it has no valid one."""
    eta = (envelope.get("headers") or {}).get("eta")
    if not isinstance(eta, str | datetime):
        return None
    try:
        due = eta if isinstance(eta, datetime) else datetime.fromisoformat(eta)
        return (due if due.tzinfo else due.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        # Celery reports it when it reads the message.
        return None


def set_expiry(envelope: Envelope) -> None:
    """Set the expiry time of a message that is sent now, if it has an ``expiration``."""
    expiration = envelope["properties"].get("expiration")
    if expiration is not None and "expires" not in envelope:
        envelope["expires"] = time.time() + float(expiration) / 1000


def expiry(envelope: Envelope) -> float:
    """Return the Unix seconds from which a message is dropped."""
    return float(envelope.get("expires") or float("inf"))


def search_key(envelope: Envelope) -> list[str]:
    """Return the id of the task, by which ``twistmq admin queryMsgByKey`` finds the message."""
    return search_keys((envelope.get("headers") or {}).get("id") or envelope["properties"].get(
        "correlation_id"))
