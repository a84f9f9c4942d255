"""The requests of a visitor who has logged in with the keys of an account.

Each request is signed with these keys, so the brokers decide about the rights of the visitor. That
is only safe if they check keys at all. A broker without access control, or one that exempts the
address of the console from it, would let every visitor do everything. Therefore each broker has to
refuse a request with a wrong signature of the account before the console sends requests of the
visitor.
"""

from __future__ import annotations

import secrets
import time
from base64 import b64encode
from typing import Final

import msgspec

from twistmq.console.page_session import PageSession, is_denial
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import RemotingCommand
from twistmq.protocol.errors import BrokerError, RequestRefused
from twistmq.protocol.header import CommandHeader
from twistmq.protocol.signature import ACCESS_KEY, SIGNATURE, Credentials
from twistmq.tools.admin.session import Broker

__all__ = ["AccountSession", "KeysNotChecked", "KeysRefused"]

#: The time after which a broker has to refuse a wrong signature again, seconds.
PROOF_S: Final = 600.0
#: A request that every account may send, in both schemes of access control, and that reads little.
_CODE: Final = RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER
#: The size of a signature, which is sent in base64, bytes.
_SIGNATURE_BYTES: Final = 20


class KeysRefused(BrokerError):
    """No broker accepts the keys of a visitor."""


class KeysNotChecked(BrokerError):
    """Whether the keys are right is unknown; the text names the reason."""


class _WrongSignatureHeader(CommandHeader):
    """A signature of the account that was not made with its secret key."""

    access_key: str = msgspec.field(name=ACCESS_KEY)
    signature: str = msgspec.field(name=SIGNATURE)


class AccountSession(PageSession):
    """A session whose requests are signed as one visitor.

    :param unsigned: a session of the same cluster that does not sign; it has the threads, and its
        owner closes it.
    :param credentials: the keys of the visitor.
    """

    def __init__(self, unsigned: PageSession, credentials: Credentials) -> None:
        super().__init__(";".join(unsigned.name_servers), credentials=credentials,
                         tls=unsigned.tls, timeout_s=unsigned.timeout_s, pool=unsigned.pool)
        self._unsigned = unsigned
        self._access_key = credentials.access_key
        #: Until when a broker counts as one that checks keys, by address; shared by all pages.
        self._proofs: dict[str, float] = {}

    def check_keys(self) -> None:
        """Check the keys at all brokers at the same time.

        :raises KeysRefused: when all brokers that answer refuse them.
        :raises KeysNotChecked: when no broker has checked them.
        :raises BrokerError: when the name servers do not name the brokers.
        """
        outcomes = [is_accepted for _, is_accepted in self.begin(
            self.all_brokers(), self._accepts).collect()]
        if any(outcomes):
            return
        if outcomes:
            raise KeysRefused("no broker accepts these keys")
        reasons = "; ".join(f"{each.server}: {each.reason}" for each in self.unanswered)
        raise KeysNotChecked(f"No broker has checked the keys. {reasons}".strip())

    def _accepts(self, broker: Broker) -> bool:
        try:
            self.ask(broker.address, _CODE)
        except RequestRefused as error:
            if not is_denial(error):
                raise
            return False
        return True

    def ask(
        self, address: str, code: int, header: CommandHeader | None = None, body: bytes = b"", *,
        accepted_codes: tuple[int, ...] = (ResponseCode.SUCCESS,), timeout_s: float | None = None,
    ) -> RemotingCommand:
        """Ask a server as the visitor, but no longer than until the deadline.

        :raises KeysNotChecked: when the server is a broker that does not check keys.
        :raises RemotingTimeout: when there is no answer at the deadline.
        """
        if address not in self.name_servers:
            self._prove(address)
        return super().ask(address, code, header, body, accepted_codes=accepted_codes,
                           timeout_s=timeout_s)

    def _prove(self, address: str) -> None:
        """Return if a broker refuses a wrong signature, or has done so a short time ago."""
        now_s = time.monotonic()
        if self._proofs.get(address, 0.0) > now_s:
            return
        header = _WrongSignatureHeader(
            self._access_key, b64encode(secrets.token_bytes(_SIGNATURE_BYTES)).decode())
        try:
            self._unsigned.ask(address, _CODE, header,
                               timeout_s=max(min(self.remaining_s, self.timeout_s), 0.001))
        except RequestRefused as error:
            if not is_denial(error):
                raise
            self._proofs[address] = now_s + PROOF_S
            return
        raise KeysNotChecked(
            "does not check the keys of this account; a console without --login account can show "
            "this broker")
