"""Lets only requests pass that bring the token; names of fields are the client's business."""

from __future__ import annotations

import hmac
from typing import Any

from zope.interface import implementer

from twistmq.broker.api import IAccessValidator, Request, RequestRefused, ResponseCode

__all__ = ["TokenValidator"]


@implementer(IAccessValidator)
class TokenValidator:
    """Looks for a field ``sampleToken`` beside a request's own."""

    def __init__(self, token: str) -> None:
        self._token = token.encode()

    def validate(self, request: Request[Any]) -> None:
        given = request.command.fields().get("sampleToken", "")
        if not hmac.compare_digest(given.encode(), self._token):
            raise RequestRefused(ResponseCode.NO_PERMISSION, "the sample token is missing or wrong")
