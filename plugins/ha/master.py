"""The addresses of a slave's master, from the settings or from name servers.

The response to a registration contains both addresses of the live master, or none while it is gone.
Anyone who can connect to a name server can register there, so a slave does not use a master until
its log was compared with the local one; see ``Follower.source``. While the master is gone, the
address of its replication port is kept, because the master will return to it; the address for
requests is not kept.

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
    """The addresses of one slave's master, each as "host:port".

    :param settings: ``haMasterAddress`` and ``ha.master`` override name servers.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._reported = self._reported_ha = ""
        #: Whether a name server has answered.
        self.has_answer = False

    @property
    def requests(self) -> str:
        """The master's port for requests; empty while no master is known."""
        if self.configured_address or (self._reported and self._is_same_host):
            return self.configured_address or self._reported
        # Only the replication port is known; by default it follows the port for requests.
        host, _, port = self._given_ha.rpartition(":")
        return f"{host}:{int(port) - 1}" if port else ""

    @property
    def configured_address(self) -> str:
        """The port for requests that the settings name; empty if they do not name any."""
        return self._settings.text("ha.master").strip()

    @property
    def _is_same_host(self) -> bool:
        """Whether name servers report the broker that ``haMasterAddress`` names, if it is given."""
        given = self._given_ha
        return not given or given == self._reported_ha or (
            given.rpartition(":")[0] == self._reported.rpartition(":")[0])

    @property
    def replication(self) -> str:
        """The master's port for replication; empty while no master is known."""
        return self._given_ha or self._reported_ha

    def replication_of(self, own_report: str) -> str:
        """Return the port for replication of a master that may have reported it itself.

        :param own_report: the master's own report, which overrides name servers; empty without one.
        """
        return self._given_ha or own_report or self._reported_ha

    @property
    def _given_ha(self) -> str:
        given = self._settings.text("haMasterAddress").strip()
        return given if len(given) >= ADDRESS_LENGTH_MIN else ""

    def registered(self, answers: Sequence[Registered]) -> None:
        """Use the first response that names a master, or else a response that names none.

        Differs from Apache, whose slave uses the first response: a name server that was just
        started may not know the master yet.
        """
        answer = next((each for each in answers if each.master_address), answers[0])
        self.has_answer = True
        self._reported = answer.master_address or ""
        self._reported_ha = answer.ha_address or self._reported_ha

    def note_available(self, requests: str, replication: str) -> None:
        """Note the addresses of an available master, which it or a name server reported."""
        self.has_answer = True
        self._reported, self._reported_ha = requests, replication

    def forget(self, requests: str) -> None:
        """Note that a broker is gone; if it was the master, it is no longer asked."""
        if requests == self._reported:
            self._reported = self._reported_ha = ""
