"""The addresses of a slave's master: as settings or name servers say.

A registration is answered with both addresses of the live master, or without any while it is gone.
Anyone who reaches a name server can register there, so that nothing is taken of a master until its
log was compared with the one here; see ``Follower.source``.
The address of the replication port stays then, because the master comes back to it; the one for
requests does not.

Source: BrokerController.handleRegisterBrokerResult, onMasterOffline, onMasterOnline @5.3.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from twistmq.broker.api import Settings
from twistmq.plugins.ha.settings import ADDRESS_LENGTH_MIN

if TYPE_CHECKING:
    from twistmq.broker.api.requests import Registered

__all__ = ["MasterAddress"]


class MasterAddress:
    """The addresses of one slave's master, "host:port" each.

    :param settings: ``haMasterAddress`` and ``ha.master`` win over name servers.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._told = self._told_ha = ""
        #: Whether a name server has answered.
        self.is_told = False

    @property
    def requests(self) -> str:
        """The port for requests; empty while no master is known."""
        if self.given or (self._told and self._is_same_host):
            return self.given or self._told
        # Only the replication port is known: it is the next one unless haListenPort is given.
        host, _, port = self._given_ha.rpartition(":")
        return f"{host}:{int(port) - 1}" if port else ""

    @property
    def given(self) -> str:
        """The port for requests that the settings name; empty: they name none."""
        return self._settings.text("ha.master").strip()

    @property
    def _is_same_host(self) -> bool:
        """Whether name servers tell of the broker that ``haMasterAddress`` names, if that is given.
        """
        given = self._given_ha
        return not given or given == self._told_ha or (
            given.rpartition(":")[0] == self._told.rpartition(":")[0])

    @property
    def replication(self) -> str:
        """The port for replication; empty while no master is known."""
        return self._given_ha or self._told_ha

    def replication_of(self, said: str) -> str:
        """The port for replication of a master that may have said itself where that is.

        :param said: empty when it did not; else it wins over name servers.
        """
        return self._given_ha or said or self._told_ha

    @property
    def _given_ha(self) -> str:
        given = self._settings.text("haMasterAddress").strip()
        return given if len(given) >= ADDRESS_LENGTH_MIN else ""

    def registered(self, answers: Sequence[Registered]) -> None:
        """Take the first answer that names a master, or says that there is none.

        Differs from Apache, whose slave takes the first: a name server that was just started may
        not know the master yet.
        """
        answer = next((each for each in answers if each.master_address), answers[0])
        self.is_told = True
        self._told = answer.master_address or ""
        self._told_ha = answer.ha_address or self._told_ha

    def came(self, requests: str, replication: str) -> None:
        """The master is there, as it says itself or a name server does."""
        self.is_told = True
        self._told, self._told_ha = requests, replication

    def left(self, requests: str) -> None:
        """The broker at this address is gone: it is asked for nothing if it was the master."""
        if requests == self._told:
            self._told = self._told_ha = ""
