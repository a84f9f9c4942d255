"""Decides by user, signature and policies whether a request may be served, in ACL 2.0.

A request passes two steps:

1. authentication: its code is on the white list of authentication, or its user exists, is enabled
   and has signed it;
2. authorization: its code is on the white list of authorization, or its user is a super user, or
   the policies of its user allow the actions on all resources that it touches.

Refusals have Apache's texts. The signature of a request with an unknown or a disabled user is
computed as well, so that the time of an answer does not reveal whether a user exists.

Source: DefaultAuthenticationHandler, AuthorizationPipeline, StatelessAuthorizationStrategy @5.3.3.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from zope.interface import implementer

from twistmq.acl.access_table import Action, Kind, RequestedAccess
from twistmq.acl.auth_table import AuthTable
from twistmq.acl.decide import Denial, Subject
from twistmq.acl.denials import Denials, short_name
from twistmq.acl.errors import AclError, AuthRefused
from twistmq.acl.leading_sends import passing_sends
from twistmq.acl.needed import needed_access, requested_topics, values_that_decide
from twistmq.acl.resources import Fields, deciding_values
from twistmq.acl.validator import host_of
from twistmq.broker.api import IClientValidator, IResourceValidator, IRunValidator, Request
from twistmq.broker.api.errors import HeaderError
from twistmq.broker.api.wire import ACCESS_KEY, FRAME_SIZE_MAX, Signer

__all__ = ["AuthRules", "UserValidator"]

#: The reason of a refusal for a code that has no row.
_NO_ROW: Final = "its code is for super users."
_PUB: Final = (Action.PUB,)


@dataclass(frozen=True, slots=True)
class AuthRules:
    """The settings that the validator follows.

    :param cluster: the name of the broker's cluster.
    :param is_authorized: whether policies count; otherwise every user may do everything.
    :param unsigned_codes: codes that need no signature.
    :param free_codes: codes that every user may send.
    :param body_size_max: returns the current limit for the body of a message, bytes.
    """

    cluster: str
    is_authorized: bool = True
    unsigned_codes: Collection[int] = frozenset()
    free_codes: Collection[int] = frozenset()
    body_size_max: Callable[[], int] = lambda: FRAME_SIZE_MAX


@implementer(IClientValidator, IResourceValidator, IRunValidator)
class UserValidator:
    """Checks requests against the users of a table."""

    def __init__(self, table: AuthTable, rules: AuthRules, denials: Denials) -> None:
        self._table = table
        self._rules = rules
        self._denials = denials
        #: The signer with a random key that is used for users that do not exist.
        self._nobody = Signer(os.urandom(16).hex())

    def passing(self, requests: Sequence[Request[Any]]) -> int:
        """Count the leading requests that certainly pass."""
        return passing_sends(requests, self._table.subjects)

    def validate(self, request: Request[Any]) -> None:
        """Check a request; it passes if this method returns.

        :raises AuthRefused: when the request may not be served.
        :raises MessageIllegal: when the request is a batch that is too long to be examined.
        """
        code, rules = request.code, self._rules
        try:
            fields = _fields_of(request)
            subject = None if code in rules.unsigned_codes else (
                self._authenticated(request, fields))
            if not rules.is_authorized or code in rules.free_codes:
                return
            subject = subject or self._claimed(request, fields)
            # Most requests are like an earlier one. The cache has no values of other codes.
            if deciding_values(code, fields, request.body) not in subject.passed:
                self._authorize(request, subject, fields)
        except (AclError, HeaderError) as error:
            raise AuthRefused(str(error)) from None

    # --- authentication

    def _authenticated(self, request: Request[Any], fields: Fields) -> Subject:
        """Return the user who signed a request.

        :raises AuthRefused: when the signature is missing or wrong.
        """
        body, texts = request.body, request.texts
        name = fields.get(ACCESS_KEY)
        if not name:
            raise self._not_authenticated(request, "", "username cannot be null.")
        subject = self._table.subjects.get(name) or self._table.subject_of(name)
        signer = self._nobody if subject is None else subject.signer
        is_signed = (texts.are_signed_by(signer, body) if texts is not None
                     else signer.has_signed(request.command.fields(), body,
                                            request.command.version))
        if subject is None:
            raise self._not_authenticated(
                request, name, f"User:{short_name(name)} is not found.")
        if not subject.user.is_enabled:
            raise self._not_authenticated(request, name, f"User:{name} is disabled.")
        if not is_signed:
            raise self._not_authenticated(request, name, "check signature failed.")
        return subject

    def _claimed(self, request: Request[Any], fields: Fields) -> Subject:
        """Return the user that a request with an unsigned code names.

        :raises AuthRefused: when it names none.
        """
        name = fields.get(ACCESS_KEY) or ""
        subject = self._table.subject_of(name)
        if subject is None or not subject.user.is_enabled:
            raise self._not_authenticated(
                request, name, f"User:{short_name(name)} not found." if name else
                "Authorization failed. Please verify your access rights and try again.")
        return subject

    def _not_authenticated(self, request: Request[Any], name: str, reason: str) -> AuthRefused:
        self._denials.not_authenticated(request.now_ms, name, request.code,
                                        host_of(request.channel.remote_address), reason)
        return AuthRefused(reason)

    # --- authorization

    def _authorize(self, request: Request[Any], subject: Subject, fields: Fields) -> None:
        """:raises AuthRefused: when the policies of the user do not allow a request."""
        code, body = request.code, request.body
        values = values_that_decide(code, fields, body)
        if not subject.user.is_super:
            needed = needed_access(code, fields, body, self._rules.cluster,
                                   self._rules.body_size_max())
            if needed is None:
                raise self._not_allowed(request, subject, Denial(
                    RequestedAccess(Kind.CLUSTER, self._rules.cluster, ()), _NO_ROW))
            self._require(request, subject, needed)
        if values is not None:
            subject.note_passed(values)

    def _require(
        self, request: Request[Any], subject: Subject, needed: Iterable[RequestedAccess]
    ) -> None:
        host = host_of(request.channel.remote_address)
        for access in needed:
            denial = subject.denial_of(access, host)
            if denial is not None:
                raise self._not_allowed(request, subject, denial)

    def _not_allowed(
        self, request: Request[Any], subject: Subject, denial: Denial
    ) -> AuthRefused:
        host, name = host_of(request.channel.remote_address), subject.user.name
        self._denials.not_allowed(request.now_ms, name, request.code, host, denial)
        return AuthRefused(denial.text(name, host))

    # --- resources that handlers find, and clients

    def require(
        self, request: Request[Any], publishes: Collection[str], consumes: Collection[str],
        groups: Collection[str],
    ) -> None:
        """:raises AuthRefused: when the request's user may not touch these resources."""
        code = request.command.code
        if not self._rules.is_authorized or code in self._rules.free_codes:
            return
        subject = self._claimed(request, request.command.fields())
        self._require(request, subject, requested_topics(code, publishes, consumes, groups))

    def owner_of(self, request: Request[Any]) -> str | None:
        """Return the name of the user who sent a request that passed; None if it names none."""
        return request.command.fields().get(ACCESS_KEY)

    def may_publish(self, owner: str | None, address: str, topic: str) -> bool:
        """Whether the client of a user may send to a topic now."""
        if not self._rules.is_authorized:
            return True
        subject = None if owner is None else self._table.subject_of(owner)
        if subject is None or not subject.user.is_enabled:
            return False
        return subject.denial_of(RequestedAccess(Kind.TOPIC, topic, _PUB), host_of(address)) is None


def _fields_of(request: Request[Any]) -> Fields:
    """Return the extFields of a request, scanned or parsed."""
    texts = request.texts
    return request.command.fields() if texts is None else texts
