"""The line in the log for each refusal of access, with its reason.

    access denied: user=a action=Pub resource=Topic:t address=10.0.0.1 code=310: the decision is
    deny. The entry is Topic:t from all addresses.

``twistmq doctor`` reads these lines. Equal refusals of one minute are one line with their number,
and all refusals together write a limited number of lines, so that a client which tries again and
again does not fill the log. A line contains neither a password nor a signature.

Source: DefaultAuthorizationProvider.doAuditLog, DefaultAuthenticationProvider.doAuditLog @5.3.3.
"""

from __future__ import annotations

from typing import Final

from twisted.logger import Logger

from twistmq.acl.decide import Denial
from twistmq.acl.policies import resource_key
from twistmq.broker.api.observe import LimitedLog

__all__ = ["DENIED", "Denials", "short_name"]

#: The beginning of each line.
DENIED: Final = "access denied: "
_MINUTE_MS: Final = 60_000
#: The number of different refusals that are counted; when there are more, counting begins again.
_KINDS_MAX: Final = 1000
#: The number of lines of all refusals in a minute.
_LINES_A_MINUTE: Final = 100
#: The number of characters of a name that a line and an answer show.
_NAME_SHOWN_MAX: Final = 255

_Kind = tuple[str, str, str, str, int, str]


def short_name(name: str) -> str:
    """Return a name in the length in which it is shown: a client can send megabytes."""
    return name if len(name) <= _NAME_SHOWN_MAX else f"{name[:_NAME_SHOWN_MAX]}..."


class Denials:
    """Writes the lines about refusals."""

    log = Logger()

    def __init__(self) -> None:
        self._lines = LimitedLog(self.log, _LINES_A_MINUTE)
        #: The time at which each refusal was logged last, and how often it has occurred since then.
        self._counts: dict[_Kind, tuple[int, int]] = {}

    def not_authenticated(
        self, now_ms: int, user: str, code: int, host: str, reason: str
    ) -> None:
        """Note a request without a valid signature."""
        self._note(now_ms, (short_name(user), "", "", host, code, reason))

    def not_allowed(
        self, now_ms: int, user: str, code: int, host: str, denial: Denial
    ) -> None:
        """Note a request that the policies of its user do not allow."""
        access = denial.access
        actions = ",".join(action.value.capitalize() for action in access.actions)
        resource = short_name(resource_key(access.kind, access.name))
        reason = denial.reason
        if denial.entry is not None:
            sources = ",".join(denial.entry.sources) or "all addresses"
            reason += f" The entry is {denial.entry.resource} from {sources}."
        self._note(now_ms, (user, actions, resource, host, code, reason))

    def _note(self, now_ms: int, kind: _Kind) -> None:
        begin_ms, count = self._counts.get(kind, (now_ms - _MINUTE_MS, 0))
        if 0 <= now_ms - begin_ms < _MINUTE_MS:
            self._counts[kind] = begin_ms, count + 1
            return
        if len(self._counts) >= _KINDS_MAX:
            self._counts.clear()
        self._counts[kind] = now_ms, 0
        user, actions, resource, host, code, reason = kind
        self._lines.warn(
            now_ms, DENIED + "user={user} action={action} resource={resource} address={host} "
            "code={code}: {reason}{more}", user=user or "-", action=actions or "-",
            resource=resource or "-", host=host, code=code, reason=reason,
            more=f" ({count} more before)" if count else "")
