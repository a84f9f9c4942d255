"""The client of the commands, which finds brokers by address, name, topic or cluster.

It is based on the blocking client, which starts fastest: a command sends a few requests one after
the other, and a reactor would double the start time of the process.

Source: DefaultMQAdminExtImpl, MQClientAPIImpl, CommandUtil @5.3.3.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, TypeVar

from twistmq.client.blocking.client import Client
from twistmq.protocol.bodies import ClusterInfo, TopicRouteData
from twistmq.protocol.codes import ResponseCode
from twistmq.protocol.command import RemotingCommand
from twistmq.protocol.errors import BrokerError, RemotingError, RemotingTimeout, RequestRefused
from twistmq.protocol.flags import MASTER_ID
from twistmq.protocol.header import CommandHeader
from twistmq.protocol.signature import Credentials

__all__ = ["AdminError", "Broker", "Session"]

T = TypeVar("T")

#: How long a command waits for a server that has not answered before, seconds.
_SILENT_S: Final = 0.5


class AdminError(BrokerError):
    """A command cannot be carried out; the text is shown to the user."""


@dataclass(frozen=True, slots=True, order=True)
class Broker:
    """A broker known to name servers."""

    cluster: str
    name: str
    broker_id: int
    address: str


class Session(Client):
    """A client for commands; it has the same parameters as :class:`Client`.

    ``failures`` contains the errors of single servers, if the request succeeded on other servers.
    """

    def __init__(
        self, name_servers: str, *, timeout_s: float = 3.0, connect_timeout_s: float = 3.0,
        retries: int = 2, credentials: Credentials | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        super().__init__(name_servers, timeout_s=timeout_s, connect_timeout_s=connect_timeout_s,
                         retries=retries, credentials=credentials, tls=tls)
        self.failures: list[str] = []
        self._cluster_info: ClusterInfo | None = None
        #: Servers that left a request unanswered.
        self._silent: set[str] = set()

    # --- requests

    @property
    def name_servers(self) -> list[str]:
        """The addresses of all name servers, in the order in which they were given."""
        return list(self._options.name_servers) or super().name_servers

    def ask(
        self, address: str, code: int, header: CommandHeader | None = None, body: bytes = b"", *,
        accepted_codes: tuple[int, ...] = (ResponseCode.SUCCESS,), timeout_s: float | None = None,
    ) -> RemotingCommand:
        """Ask the server at an address, once; see :meth:`Client.ask`.

        A server that did not answer an earlier request has half a second.
        """
        if address in self._silent:
            timeout_s = min(self.timeout_s if timeout_s is None else timeout_s, _SILENT_S)
        try:
            reply = super().ask(address, code, header, body, accepted_codes=accepted_codes,
                                timeout_s=timeout_s)
        except RemotingTimeout:
            self._silent.add(address)
            raise
        self._silent.discard(address)
        return reply

    def for_each(
        self, targets: Iterable[T], one: Callable[[T], object]
    ) -> Iterator[tuple[T, object]]:
        """Call a function for each target; failures are collected and shown at the end.

        :raises BrokerError: when it failed everywhere, and there was only one target.
        """
        all_targets = list(targets)
        for target in all_targets:
            try:
                result = one(target)
            except BrokerError as error:
                if len(all_targets) == 1:
                    raise
                self.failures.append(str(error))
                continue
            yield target, result

    # # --- brokers and clusters

    def cluster_info(self) -> ClusterInfo:
        """Return all clusters and brokers; they are requested once."""
        if self._cluster_info is None:
            self._cluster_info = super().cluster_info()
        return self._cluster_info

    def cluster_names(self, cluster: str | None = None) -> list[str]:
        """Return the names of all clusters, or the given one.

        :raises AdminError: when the given cluster does not exist.
        """
        names = sorted(self.cluster_info().cluster_addr_table)
        if cluster is None:
            return names
        if cluster not in names:
            known_names = ", ".join(names) or "none"
            raise AdminError(f"there is no cluster {cluster}; the name server knows {known_names}")
        return [cluster]

    def all_brokers(self, cluster: str | None = None) -> list[Broker]:
        """Return the masters and slaves of a cluster, or of all clusters."""
        info = self.cluster_info()
        brokers = []
        for each in self.cluster_names(cluster):
            for name in info.cluster_addr_table[each]:
                data = info.broker_addr_table.get(name)
                brokers += [Broker(each, name, broker_id, address)
                            for broker_id, address in (data.broker_addrs if data else {}).items()]
        return sorted(brokers)

    def brokers(
        self, address: str | None = None, cluster: str | None = None, *, slaves: bool = False
    ) -> list[Broker]:
        """Return the broker at an address, the brokers of a cluster, or all brokers.

        :param slaves: whether to include slaves.
        :raises AdminError: when no broker is found.
        """
        if address is not None:
            # The broker may be unknown to the name servers.
            try:
                registered = [each for each in self.all_brokers() if each.address == address]
            except (AdminError, RemotingError, RequestRefused):
                registered = []
            return registered or [Broker("", "", MASTER_ID, address)]
        brokers = [each for each in self.all_brokers(cluster)
                   if slaves or each.broker_id == MASTER_ID]
        if not brokers:
            raise AdminError("the name server knows no broker"
                             + (f" of the cluster {cluster}" if cluster else ""))
        return brokers

    def named(self, name: str) -> Broker:
        """Return the master of a name; :raises AdminError: when the name has no master."""
        for each in self.all_brokers():
            if each.name == name and each.broker_id == MASTER_ID:
                return each
        names = ", ".join(sorted({each.name for each in self.all_brokers()})) or "none"
        raise AdminError(f"there is no broker {name}; the name server knows {names}")

    def brokers_of(self, topic: str, route_topic: str | None = None) -> list[Broker]:
        """Return the brokers of a topic: for each name its master, or a slave without a master.

        :param route_topic: a topic whose route is used instead.
        """
        route: TopicRouteData = self.route(route_topic or topic)
        return sorted(Broker(data.cluster or "", data.broker_name or "", min(data.broker_addrs),
                             data.broker_addrs[min(data.broker_addrs)])
                      for data in route.broker_datas if data.broker_addrs)
