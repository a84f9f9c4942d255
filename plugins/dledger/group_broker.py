"""A broker as a member of a group: its node, its role, and the hooks by which it takes part.

A group decides by terms and entries, and a broker by requests and roles. This module connects the
two. A send enters the ledger through the store, as without a group, and ``commit_stage`` holds its
answer until the group has agreed. In the other direction, the node reports the outcome of each
election, and ``roles`` makes the broker a master or a slave. Most parts exist only while the broker
runs, because they need the loaded store. A leader that stops gives the lead away first, because an
election after its end would take longer.

Source: DLedgerCommitLog, DLedgerRoleChangeHandler @5.3.3.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from twistmq.broker.api import AnyHandler, BrokerError, MessageRecord, PeriodicTask, hookimpl
from twistmq.broker.api.ledger import EntryLog, Ledger
from twistmq.broker.api.topics import is_system_topic
from twistmq.plugins.dledger.commit_stage import CommitStage
from twistmq.plugins.dledger.disk_watch import LOOK_MS, DiskWatch
from twistmq.plugins.dledger.families import families
from twistmq.plugins.dledger.leader_address import LeaderAddress
from twistmq.plugins.dledger.leader_settings import LeaderSettings
from twistmq.plugins.dledger.ledger_log import LedgerLog
from twistmq.plugins.dledger.ledger_storage import LedgerStorage
from twistmq.plugins.dledger.links import GroupLinks
from twistmq.plugins.dledger.node import GroupNode
from twistmq.plugins.dledger.peer_group import PeerGroup
from twistmq.plugins.dledger.roles import BrokerRoles
from twistmq.plugins.dledger.settings import GroupSettings
from twistmq.plugins.dledger.status_rows import status_rows
from twistmq.plugins.replica.ask import ROLE
from twistmq.plugins.replica.commits import Commits
from twistmq.plugins.replica.refusals import refusing_rows
from twistmq.plugins.replica.tables import TableCopies
from twistmq.raft.events import StorageFailed
from twistmq.raft.member import Member
from twistmq.raft.messages import Request, Response

if TYPE_CHECKING:
    from twistmq.broker.api import Broker, MetricFamily

__all__ = ["ConnectGroup", "GroupBroker"]

#: How often a follower checks which tables it has to copy, and looks for its leader, ms.
_COPY_PERIOD_MS: Final = 250
#: How often the sends that wait are checked, ms.
_EXPIRE_PERIOD_MS: Final = 100
#: How long a leader that stops may take to give the lead to another member, s.
_TRANSFER_SECONDS: Final = 1.0


class ConnectGroup(Protocol):
    """Opens the port for the other members."""

    def __call__(
        self, broker: Broker, group: PeerGroup, answer: Callable[[Request], Deferred[Response]],
        peer_gone: Callable[[str], None], find_leader: Callable[[], str],
    ) -> GroupLinks:
        """Listen for requests of other members.

        :param answer: returns the response to a request of a member; it fails when there is none.
        :param peer_gone: called with a member whose host refuses connections.
        :param find_leader: returns the id of the current leader, or an empty text.
        :raises SettingsError: when the port cannot be opened.
        """


class GroupBroker:
    """The hooks of one broker that is a member of a group.

    :param connect: opens the port for the other members.
    :param draw: returns a random number, 0 <= number < 1.
    """

    log = Logger()

    def __init__(
        self, broker: Broker, settings: GroupSettings, connect: ConnectGroup,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._broker = broker
        self._settings = settings
        self._connect = connect
        self._draw = draw
        #: The parts that exist while the broker runs.
        self.node: GroupNode | None = None
        self.roles: BrokerRoles | None = None
        self._links: GroupLinks | None = None
        self._disk_watch: DiskWatch | None = None
        identity = broker.identity
        identity.set_role("SLAVE", settings.broker_id)
        identity.registers = False
        self.leader_address = LeaderAddress(broker)
        self._leader_settings = LeaderSettings(broker, self.leader_address, self._find_lead)
        self._commits = Commits(broker, self.leader_address)
        self.tables = TableCopies(broker, lambda: self.leader_address.source, self._commits,
                                  lambda: self.leader_address.version)
        self.stage = CommitStage(broker, self._is_appendable, self._appended)

    # --- life

    @hookimpl
    def on_start(self) -> Deferred[None]:
        return Deferred.fromCoroutine(self._start())

    async def _start(self) -> None:
        """:raises SettingsError: when the port for the other members cannot be opened."""
        broker, settings = self._broker, self._settings
        log = broker.store.commit_log
        assert isinstance(log, EntryLog), "the store of a member has a ledger"
        flushed = broker.store.flush.flushed(log.max_offset)
        if flushed is not None:
            # The agreement relies on the entries that it finds at the start.
            await flushed
        ledger = Ledger(broker.store, log, broker.store_host)
        storage = LedgerStorage(broker.store, log.folder)
        member = Member(settings.of_member(), LedgerLog(ledger, broker.now_ms), storage.load(),
                        log.noted_index)
        roles = self.roles = BrokerRoles(
            broker, ledger, self.stage, self.leader_address, settings.broker_id, self._fail,
            lambda: member.has_joined)
        links = self._links = self._connect(
            broker, settings.of_peers(), lambda request: node.answer_request(request),
            lambda peer: node.note_peer_gone(peer), lambda: member.leader)
        node = self.node = GroupNode(
            member, storage, links, roles, broker.steady.now_ms, broker.host.call_later,
            self._draw)
        self._disk_watch = DiskWatch(broker.store, log, node, broker.steady.now_ms)
        broker.health_checks["group"] = roles.fault
        node.start()

    @hookimpl
    def on_stop(self) -> Deferred[None]:
        return Deferred.fromCoroutine(self._stop())

    async def _stop(self) -> None:
        if self.node is not None:
            await self._give_lead(self.node)
            self.node.stop()
        closed = None if self._links is None else self._links.close()
        if closed is not None:
            await closed

    async def _give_lead(self, node: GroupNode) -> None:
        """Give the lead to the best prepared member; an election after the stop takes longer."""
        successor = node.member.find_successor()
        if successor is None:
            return
        # A node that stops ends all transfers.
        timer = self._broker.host.call_later(_TRANSFER_SECONDS, node.stop)
        code = await node.transfer_lead(successor)
        if timer.active():
            timer.cancel()
        self.log.info("before the stop, the lead was offered to {peer}: {code}", peer=successor,
                      code=code.name)

    def _fail(self, reason: str) -> None:
        """Give up the lead, because the store cannot be used."""
        if self.node is not None:
            self.node.pass_event(StorageFailed(reason))

    def _find_lead(self) -> tuple[int, str]:
        """Return the current term and the id of its leader, which may be empty."""
        return (0, "") if self.roles is None else (self.roles.term, self.roles.leader)

    def _watch_disk(self, now_ms: int) -> None:
        if self._disk_watch is not None:
            self._disk_watch.look(now_ms)

    def _check_links(self, now_ms: int) -> None:
        if self._links is not None:
            self._links.tick(now_ms)

    def _disk_rest_ms(self) -> int | None:
        return None if self._disk_watch is None else self._disk_watch.rest_ms()

    def _links_rest_ms(self) -> int | None:
        return None if self._links is None else self._links.rest_ms()

    # --- appends

    def _is_appendable(self) -> bool:
        return self.node is not None and self.node.member.is_appendable

    def _appended(self) -> None:
        if self.node is not None:
            self.node.note_appended()

    @hookimpl
    def before_append(self, records: Sequence[MessageRecord]) -> dict[int, BrokerError] | None:
        if not self._broker.is_slave:
            self._make_lost_topics(records)
        return self.stage.before_append(records)

    def _make_lost_topics(self, records: Sequence[MessageRecord]) -> None:
        """Create the topics of delivered messages that the previous leader did not pass on.

        A follower that knows such a topic would otherwise delete it together with its messages,
        because the leader does not name it.
        """
        topics = self._broker.topic_config
        lost = {record.topic: [record.queue_id] for record in records
                if topics.get(record.topic) is None and not is_system_topic(record.topic)}
        if lost:
            topics.make_again(lost, lambda topic: False, of_lost_master=True)
            self._broker.topics_changed()

    # --- tables, requests, figures

    @hookimpl
    def register_periodic_tasks(self) -> Sequence[PeriodicTask]:
        return [
            PeriodicTask("check the requests to other members", _EXPIRE_PERIOD_MS,
                         _EXPIRE_PERIOD_MS, self._check_links, self._links_rest_ms),
            PeriodicTask("look at the disk of the leader", LOOK_MS, LOOK_MS, self._watch_disk,
                         self._disk_rest_ms),
            PeriodicTask("answer sends that the group has not confirmed", _EXPIRE_PERIOD_MS,
                         _EXPIRE_PERIOD_MS, self.stage.expire, self.stage.rest_ms),
            PeriodicTask("look for the leader of the group", _COPY_PERIOD_MS, _COPY_PERIOD_MS,
                         self.leader_address.ask_due, self.leader_address.rest_ms),
            PeriodicTask("compare settings with the leader's", _COPY_PERIOD_MS, _COPY_PERIOD_MS,
                         self._leader_settings.compare_due, self._leader_settings.rest_ms),
            PeriodicTask("copy the leader's tables", _COPY_PERIOD_MS, _COPY_PERIOD_MS,
                         self.tables.copy_due, self.tables.rest_ms)]

    @hookimpl
    def wrap_request_handlers(self, handlers: Mapping[int, AnyHandler]) -> Sequence[AnyHandler]:
        return [*refusing_rows(self._broker, handlers), *self._commits.rows(handlers)]

    @hookimpl
    def on_role_change(self, role: str, broker_id: int) -> None:
        self._commits.role_changed()

    @hookimpl
    def add_runtime_info(self) -> Mapping[str, str]:
        rows = {ROLE: self._broker.role}
        log = self._broker.store.commit_log
        if self.node is not None and isinstance(log, EntryLog):
            rows |= status_rows(self._settings.of_peers(), self.node.member, log)
        return rows

    @hookimpl
    def collect_metrics(self) -> Sequence[MetricFamily]:
        log = self._broker.store.commit_log
        if self.node is None or self.roles is None or not isinstance(log, EntryLog):
            return []
        return families(self.node, self.roles, self.stage, log,
                        self._broker.store.dispatch.repeated_offsets)
