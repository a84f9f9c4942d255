"""Decides how brokers enter the tables and leave them: registration, leaving, and silence.

A broker registers again and again. The first registration makes it known; every later one is a sign
of life, and changes topics only if the version of the broker's data has changed. The time is passed
in as an argument, and connections that must be closed are returned as results.

Differs from Apache in three ways. All changes of a request are decided before the first of them is
made, so that a refused request changes nothing. Leaving takes effect at once, not in a queue.
No broker is kept after a silence of more than BROKER_TIMEOUT_MS_MAX, whatever it asks for.

Source: RouteInfoManager, BatchUnregistrationService @5.3.3.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from twisted.logger import Logger

from twistmq.broker.constants import BROKER_TIMEOUT_MS_MAX
from twistmq.broker.namesrv.registration import (
    MasterOfGroup,
    Registration,
    is_text_short,
    put_topics,
    why_refused,
)
from twistmq.broker.namesrv.route_tables import BrokerKey, BrokerLive, RouteTables
from twistmq.protocol.bodies import DataVersion, QueueData
from twistmq.protocol.codes import ResponseCode
from twistmq.protocol.errors import RequestRefused
from twistmq.protocol.flags import MASTER_ID
from twistmq.protocol.headers.admin import NotifyMinBrokerIdChangeRequestHeader
from twistmq.protocol.limits import ROUTE_TEXT_SIZE_MAX
from twistmq.protocol.log_rate import LimitedLog
from twistmq.protocol.run_to_completion import run_to_completion

if TYPE_CHECKING:
    from twistmq.broker.remoting.messages import Channel

__all__ = ["BROKER_TIMEOUT_MS", "LEAVE_REASONS", "RouteInfoManager"]

#: The silence after which a broker is removed if it does not ask for another time, ms.
#: Source: RouteInfoManager.DEFAULT_BROKER_CHANNEL_EXPIRED_TIME.
BROKER_TIMEOUT_MS: Final = 120_000
#: The reasons to remove a broker: it left, was silent, lost its connection, registered its address
#: under another name, or has an older state than the broker with its id.
LEAVE_REASONS: Final = ("unregistered", "silent", "connection_lost", "replaced", "outdated")
#: The number of brokers leaving at once that the log names; of further ones it states the number.
_NAMES_LOGGED_MAX: Final = 20


class RouteInfoManager:
    """Registers brokers, and removes them.

    :param flag: returns the value of a setting by name; called each time, as settings may change.
    :param notify: sends a header to a broker's address when the lowest id of its group changed
        and ``notifyMinBrokerIdChanged`` is set.
    :param later: does work that may take long, after other changes.
    """

    log = Logger()

    def __init__(
        self, tables: RouteTables, flag: Callable[[str], bool],
        notify: Callable[[str, NotifyMinBrokerIdChangeRequestHeader], None] | None = None,
        later: Callable[[Generator[None, None, None]], None] = run_to_completion,
    ) -> None:
        self.tables = tables
        self._lines = LimitedLog(self.log)
        self._flag = flag
        self.notify = notify
        self._later = later
        #: The number of registrations that were accepted, and of those that were refused.
        self.taken_count = 0
        self.refused_count = 0
        #: The number of brokers that were removed, by reason.
        self.left_counts: Counter[str] = Counter()

    def _warn(self, text: str, **values: object) -> None:
        """Log a fault of a request, at a limited rate."""
        self._lines.warn(self.tables.room.now_ms, text, **values)

    def _info(self, text: str, **values: object) -> None:
        """Log the effect of a request, at a limited rate."""
        self._lines.info(self.tables.room.now_ms, text, **values)

    # --- registration

    def register(self, new: Registration, now_ms: int) -> MasterOfGroup | None:
        """Register a broker, however long it takes; see :meth:`registering`."""
        return run_to_completion(self.registering(new, now_ms))

    def registering(
        self, new: Registration, now_ms: int
    ) -> Generator[None, None, MasterOfGroup | None]:
        """Register a broker; yields between topics.

        Nothing else may register or change topics until it is done. Brokers may leave. If this
        broker leaves, the remainder of its registration is dropped.

        :returns: None when it is refused: the first registration of an unknown broker must not
            contain exactly one topic, because a single changed topic is sent in this way.
        :raises RequestRefused: when a name or an address is too long, when the number of brokers
            has reached its limit, or when there is no room for some topics. In the last case all
            other topics are registered.
        """
        self._see(now_ms)
        if why := why_refused(self.tables, new):
            raise self._refused(new, why)
        group = self.tables.brokers.get(new.broker_name)
        addresses = group.broker_addrs if group else {}
        if self._is_outdated(new, addresses.get(new.broker_id)):
            self.refused_count += 1
            self._reject(new)
            return MasterOfGroup()
        if new.broker_id not in addresses and len(new.topics.topic_config_table) == 1:
            self.refused_count += 1
            self._warn("the broker {name} at {address} sent a single topic before its full "
                       "registration", address=new.address, name=new.broker_name)
            return None
        self.taken_count += 1
        lowest_before = min(addresses, default=MASTER_ID)
        self._drop_other_identities(new)
        is_first = self._put_address(new)
        old_live = self.tables.live.get(new.key)
        is_changed = is_first or old_live is None or (
            old_live.data_version != new.topics.data_version)
        live = self._put_live(new, now_ms)

        def is_current() -> bool:
            return self.tables.live.get(new.key) is live

        missing = yield from put_topics(
            self.tables, new, is_changed, is_current=is_current,
            drop_missing=self._flag("deleteTopicWithBrokerRegistration"))
        if not is_current():
            self._info("{address} disconnected during its registration as {name}",
                       address=new.address, name=new.broker_name)
            return None
        if new.broker_id < lowest_before:
            self._notify_lowest_id(new.broker_name, ha_address=new.ha_address)
        if missing:
            # The broker has to register again, and query_data_version will report the same.
            live.data_version = DataVersion()
            raise self._refused(new, missing)
        return self._master_for(new)

    def _refused(self, new: Registration, why: str) -> RequestRefused:
        self.refused_count += 1
        self._warn("the registration of {name} at {address} by {peer} is refused: {why}",
                   name=new.broker_name, address=new.address,
                   peer=new.channel.remote_address, why=why)
        return RequestRefused(ResponseCode.SYSTEM_ERROR, why)

    def _see(self, now_ms: int) -> None:
        """Record the time of a broker's sign of life."""
        room = self.tables.room
        room.now_ms = max(room.now_ms, now_ms)

    def _is_outdated(self, new: Registration, holder: str | None) -> bool:
        """Whether another address holds the broker id with a newer state."""
        if holder is None or holder == new.address:
            return False
        live = self.tables.live_as(new.cluster, holder, new.broker_name)
        if live is None:
            return False
        theirs, ours = live.data_version.state_version, new.topics.data_version.state_version
        if theirs > ours:
            self._warn("{address} is not registered as {name} {broker_id}: {holder} has the "
                       "newer state version {theirs}, it has {ours}",
                       address=new.address, name=new.broker_name,
                       broker_id=new.broker_id, holder=holder, theirs=theirs, ours=ours)
        return theirs > ours

    def _reject(self, new: Registration) -> None:
        """Remove the sender of an older state, if it registered over this connection."""
        live = self.tables.live.get(new.key)
        if live is not None and live.channel.channel_id == new.channel.channel_id:
            self._leave([new.key], "outdated")

    def _drop_other_identities(self, new: Registration) -> None:
        """Remove earlier registrations of the broker: its name elsewhere, or another name here.

        Another name is removed only if it was registered over the same connection. Otherwise one
        request of any host with the address of a broker would remove that broker. A broker that was
        renamed and restarted has lost its connection or falls silent. Another name in another
        cluster is another broker, which is kept: clusters may lie in networks that use the same
        addresses.
        """
        tables = self.tables
        others = [key for key in tables.keys_of(new.address)
                  if (key.cluster != new.cluster if key.broker_name == new.broker_name
                      else key.cluster == new.cluster
                      and tables.live[key].channel.channel_id == new.channel.channel_id)]
        if others:
            self._leave(others, "replaced")

    def _put_address(self, new: Registration) -> bool:
        """Assign the address to its broker id; :returns: whether the id had no address before."""
        tables = self.tables
        group = tables.put_name(new.cluster, new.broker_name)
        group.enable_acting_master = bool(new.acting_master)
        group.zone_name = new.zone_name
        addresses = group.broker_addrs
        # A slave that becomes the master registers the same address under another id.
        for broker_id in [each for each, address in addresses.items()
                          if address == new.address and each != new.broker_id]:
            del addresses[broker_id]
        holder = addresses.get(new.broker_id)
        addresses[new.broker_id] = new.address
        if holder is not None and holder != new.address:
            for key in tables.keys_of(holder):
                if key.broker_name == new.broker_name:
                    tables.drop_live(key)
        return not holder

    def _put_live(self, new: Registration, now_ms: int) -> BrokerLive:
        tables = self.tables
        if new.key not in tables.live:
            self._info("new broker {name} {broker_id} at {address} in {cluster}",
                       name=new.broker_name, broker_id=new.broker_id, address=new.address,
                       cluster=new.cluster)
        timeout_ms = BROKER_TIMEOUT_MS if new.timeout_ms is None else min(
            new.timeout_ms, BROKER_TIMEOUT_MS_MAX)
        live = BrokerLive(new.broker_name, now_ms, timeout_ms, new.topics.data_version,
                          new.channel, new.ha_address)
        tables.put_live(new.key, live)
        if new.filter_servers:
            tables.filter_servers[new.key] = list(new.filter_servers)
        elif new.filter_servers is not None:
            tables.filter_servers.pop(new.key, None)
        return live

    def _master_for(self, new: Registration) -> MasterOfGroup:
        if new.broker_id == MASTER_ID:
            return MasterOfGroup()
        address = self.tables.brokers[new.broker_name].broker_addrs.get(MASTER_ID)
        if address is None:
            return MasterOfGroup()
        live = self.tables.live_as(new.cluster, address, new.broker_name)
        return MasterOfGroup(address, live.ha_address) if live else MasterOfGroup()

    # --- single topics

    def register_topic(
        self, topic: str, queues: Sequence[QueueData], host: str | None = None
    ) -> bool:
        """Register one topic on brokers that are registered.

        Differs from Apache: a list with an unknown broker changes nothing, even when the topic is
        known already. A topic can be added only from the broker's own host, which is charged.

        :param host: the origin of the request; None if the brokers themselves sent it.
        :returns: whether all brokers were known.
        :raises RequestRefused: when the topic's name is too long, when a broker is on another host,
            or when there is no room for the topic.
        """
        if not is_text_short(topic):
            raise RequestRefused(ResponseCode.SYSTEM_ERROR,
                                 f"the topic's name has over {ROUTE_TEXT_SIZE_MAX} bytes")
        for each in queues:
            if host is not None and not self.tables.room.is_charged(each.broker_name, host):
                raise RequestRefused(ResponseCode.NO_PERMISSION,
                                     f"{each.broker_name} is not a broker of {host}")
        unknown = [each.broker_name for each in queues
                   if each.broker_name not in self.tables.brokers]
        if unknown:
            self._warn("topic {topic} is not registered: broker {name} is not known",
                       topic=topic, name=unknown[0])
            return False
        for each in queues:
            if not self.tables.put_queues(topic, each):
                self._warn("topic {topic} of {name} is not registered: there is no room",
                           topic=topic, name=each.broker_name)
                raise RequestRefused(ResponseCode.SYSTEM_ERROR, "there is no room for the topic")
        return True

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Remove a topic, in one cluster or in all."""
        if not cluster:
            self.tables.drop_topic(topic)
            return
        self.tables.drop_queues(topic, self.tables.clusters.get(cluster, set()))

    # --- signs of life

    def heartbeat(self, cluster: str, address: str, name: str, now_ms: int) -> None:
        """Record a sign of life of a broker; an unknown broker stays unknown.

        Differs from Apache: a broker is unknown under a name that it did not register with.
        """
        self._see(now_ms)
        live = self.tables.live_as(cluster, address, name)
        if live is not None:
            live.last_update_ms = now_ms

    def data_version(self, cluster: str, address: str, name: str) -> DataVersion | None:
        """Return the version that a broker registered with last; None if it is unknown."""
        live = self.tables.live_as(cluster, address, name)
        return live.data_version if live else None

    # --- removal

    def unregister(self, cluster: str, address: str, broker_name: str) -> bool:
        """Remove a broker that leaves; :returns: whether it was known.

        Differs from Apache: nothing is removed if the address registered with another name.
        """
        if self.tables.live_as(cluster, address, broker_name) is None:
            self._info("{address} of {cluster} unregistered as {name}, but was not registered",
                       address=address, cluster=cluster, name=broker_name)
            return False
        self._leave([BrokerKey(cluster, address, broker_name)], "unregistered")
        return True

    def scan_not_active_broker(self, now_ms: int) -> list[Channel]:
        """Remove brokers that were silent for longer than they allow.

        Differs from Apache: a connection that is also used by a living broker of the same process
        stays open.

        :returns: the connections of the removed brokers, for the caller to close.
        """
        self.tables.room.forget_old(now_ms)
        expired = {key: live for key, live in self.tables.live.items()
                   if live.last_update_ms + live.timeout_ms < now_ms}
        for key, live in list(expired.items())[:_NAMES_LOGGED_MAX]:
            self.log.warn("no heartbeat from the broker at {address} for {timeout_ms} ms",
                          address=key.address, timeout_ms=live.timeout_ms)
        if len(expired) > _NAMES_LOGGED_MAX:
            self.log.warn("no heartbeat from {count} more brokers for too long",
                          count=len(expired) - _NAMES_LOGGED_MAX)
        self._leave(expired, "silent")
        in_use = {live.channel.channel_id for live in self.tables.live.values()}
        silent = {live.channel.channel_id: live.channel for live in expired.values()}
        return [channel for number, channel in silent.items() if number not in in_use]

    def on_channel_destroy(self, channel: Channel) -> None:
        """Remove the brokers whose last registration came over a lost connection.

        Differs from Apache: it removes one of them, and the other brokers expire.
        """
        lost = self.tables.keys_on(channel)
        if lost:
            self._warn("the connection of the broker at {address} is lost",
                       address=lost[0].address)
            self._leave(lost, "connection_lost")

    def _leave(self, keys: Iterable[BrokerKey], why: str) -> None:
        """Remove brokers, and the topics of names that have no broker left."""
        assert why in LEAVE_REASONS, why
        tables = self.tables
        removed_names: list[str] = []
        for key in keys:
            self.left_counts[why] += 1
            name = tables.live[key].broker_name
            addresses = tables.brokers[name].broker_addrs
            was_lowest = addresses.get(min(addresses)) == key.address
            if tables.drop_address(key):
                removed_names.append(name)
                continue
            if tables.brokers[name].enable_acting_master:
                if MASTER_ID not in addresses:
                    self._later(self._wiping(name))
                if was_lowest:
                    self._notify_lowest_id(name, offline=key.address)
        if removed_names:
            self._later(tables.dropping())
        for name in removed_names[:_NAMES_LOGGED_MAX]:
            self._info("the last broker named {name} is gone", name=name)
        if len(removed_names) > _NAMES_LOGGED_MAX:
            self._info("{count} more broker names are gone",
                       count=len(removed_names) - _NAMES_LOGGED_MAX)

    def _wiping(self, name: str) -> Generator[None, None, None]:
        """Keep producers away from a name as long as it has no master."""
        wiping = self.tables.wiping_write_permission(name)
        while (group := self.tables.brokers.get(name)) and MASTER_ID not in group.broker_addrs:
            try:
                yield next(wiping)
            except StopIteration:
                return

    def _notify_lowest_id(
        self, name: str, *, offline: str | None = None, ha_address: str | None = None
    ) -> None:
        """Notify a group's brokers of the lowest id, except the broker that just registered."""
        if self.notify is None or not self._flag("notifyMinBrokerIdChanged"):
            return
        addresses = self.tables.brokers[name].broker_addrs
        lowest = min(addresses)
        header = NotifyMinBrokerIdChangeRequestHeader(
            min_broker_id=lowest, min_broker_addr=addresses[lowest],
            offline_broker_addr=offline, ha_broker_addr=ha_address)
        for broker_id, address in addresses.items():
            if offline is not None or len(addresses) == 1 or broker_id != lowest:
                self.notify(address, header)
