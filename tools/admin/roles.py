"""The commands ``twistmq admin promoteSlave`` and ``followMaster``, which change masters.

Each step is printed as a row as soon as it is done. Nothing is changed before all possible checks
have passed, and ``--dryRun`` ends after them. mqadmin has no such commands, because Apache's
brokers change their role only with a controller.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from twistmq.protocol.bodies import KVTable
from twistmq.protocol.codes import RequestCode
from twistmq.protocol.decimal_text import whole_number
from twistmq.protocol.errors import BrokerError
from twistmq.protocol.flags import MASTER_ID
from twistmq.protocol.headers.admin import NotifyBrokerRoleChangedRequestHeader
from twistmq.tools.admin.brokers import broker_settings
from twistmq.tools.admin.rows import Row
from twistmq.tools.admin.session import AdminError, Broker, Session

__all__ = ["follow_master", "promote_slave"]

#: The time that the slave may take to copy the last messages of its master, and the time between
#: two checks, seconds.
_CATCH_UP_SECONDS: Final = 60
_LOOK_SECONDS: Final = 0.1


@dataclass(frozen=True, slots=True)
class _State:
    """The state that a broker reports.

    :param address: where this command reaches it.
    :param own_address: the address under which other brokers and clients know it.
    :param log_end: the end of its commit log, bytes.
    :param fault: the fault of its store; empty without a fault.
    """

    name: str
    address: str
    own_address: str
    broker_id: int
    is_master: bool
    log_end: int
    fault: str


def promote_slave(
    session: Session, *, broker: str, switch: bool, force: bool, dry: bool
) -> Iterator[Row]:
    """Promote a slave to master; see the row of the command."""
    slave = _state(session, broker)
    if slave.is_master:
        raise AdminError(f"{broker} is already a master")
    master = _live_master(session, slave)
    yield _row(slave, "check", f"slave {slave.broker_id}, its log ends at {slave.log_end}")
    if slave.fault:
        raise AdminError(slave.fault)
    if master is not None:
        yield _row(master, "check", f"master, its log ends at {master.log_end}")
        if not switch and not force:
            raise AdminError(f"the master {master.address} is running: stop it, or use --switch "
                             "to make it a slave")
    if dry:
        yield _row(slave, "dry run", "nothing is changed")
        return
    if master is not None and switch:
        yield _row(master, "become slave", _change(session, master, slave.own_address,
                                                    slave.broker_id))
        end = _wait(session, slave, _state(session, master.address).log_end)
        yield _row(slave, "catch up", f"its log ends at {end}, like the log of {master.address}")
    yield _row(slave, "become master", _change(session, slave, slave.own_address, MASTER_ID))
    yield _checked(session, slave, is_master=True)


def follow_master(
    session: Session, *, broker: str, master: str, slave_id: int, dry: bool
) -> Iterator[Row]:
    """Turn a master into a slave of another one; see the row of the command."""
    old, new = _state(session, broker), _state(session, master)
    if old.own_address == new.own_address:
        raise AdminError("a broker cannot follow itself")
    if slave_id <= MASTER_ID:
        raise AdminError("the id of a slave must be above 0")
    if not new.is_master:
        raise AdminError(f"{master} is not a master")
    if not old.is_master:
        raise AdminError(f"{broker} is already a slave")
    yield _row(new, "check", f"master, its log ends at {new.log_end}")
    yield _row(old, "check", f"master, its log ends at {old.log_end}")
    if dry:
        yield _row(old, "dry run", "nothing is changed")
        return
    yield _row(old, "become slave", _change(session, old, new.own_address, slave_id))
    yield _checked(session, old, is_master=False)


# --- steps


def _row(state: _State, step: str, result: str) -> Row:
    return state.name, state.address, step, result


def _state(session: Session, address: str) -> _State:
    """Return the state of a broker; :raises BrokerError: when it does not answer."""
    broker = _broker_at(session, address)
    table = KVTable.decode(session.ask(address, RequestCode.GET_BROKER_RUNTIME_INFO).body).table
    # Apache's brokers do not report their role; a slave that stands in for its master is active.
    role = table.get("brokerRole")
    is_master = table.get("brokerActive") != "false" if role is None else role != "SLAVE"
    return _State(broker.name, address, broker.address, broker.broker_id, is_master,
                  whole_number(table.get("commitLogMaxOffset", "")) or 0,
                  table.get("fault.store", ""))


def _broker_at(session: Session, address: str) -> Broker:
    """Return a broker with the address under which it is registered.

    An operator may reach it at another one, such as 127.0.0.1 on its own host.

    :raises BrokerError: when it does not answer.
    """
    [broker] = session.brokers(address)
    if broker.name:
        return broker
    settings = broker_settings(session, broker)
    name, port = settings.get("brokerName", ""), address.rpartition(":")[2]
    own_address = f"{settings.get('brokerIP1', '')}:{settings.get('listenPort', '')}"
    members = [each for each in session.all_brokers() if each.name == name]
    # A broker that chose its port itself has the setting 0.
    known = ([each for each in members if each.address == own_address]
             or [each for each in members if each.address.rpartition(":")[2] == port])
    if len(known) == 1:
        return known[0]
    broker_id = whole_number(settings.get("brokerId", "")) or MASTER_ID
    return Broker(settings.get("brokerClusterName", ""), name, broker_id, own_address)


def _live_master(session: Session, slave: _State) -> _State | None:
    """Return the master of a slave, if name servers know one and it answers."""
    for each in session.all_brokers():
        if each.name == slave.name and each.broker_id == MASTER_ID:
            try:
                return _state(session, each.address)
            except BrokerError:
                return None
    return None


def _change(session: Session, state: _State, master: str, slave_id: int) -> str:
    """Let a broker change its role, and return its answer, which names the role.

    :raises BrokerError: when it does not change its role; the text names the broker.
    """
    reply = session.ask(state.address, RequestCode.NOTIFY_BROKER_ROLE_CHANGED,
                        NotifyBrokerRoleChangedRequestHeader(
                            master_address=master, master_broker_id=slave_id))
    return reply.remark or "done"


def _wait(session: Session, slave: _State, end: int) -> int:
    """Wait until the log of a slave has reached an end, and return its actual end.

    :raises AdminError: when the slave does not reach it in time.
    """
    give_up = time.monotonic() + _CATCH_UP_SECONDS
    while (reached := _state(session, slave.address).log_end) < end:
        if time.monotonic() > give_up:
            raise AdminError(
                f"the log of {slave.address} ends at {reached} and not at {end}: there is no "
                "master now; promote the slave with --force, or make the old master one again")
        time.sleep(_LOOK_SECONDS)
    return reached


def _checked(session: Session, before: _State, *, is_master: bool) -> Row:
    """:raises AdminError: when a broker does not have the role that it was given."""
    state = _state(session, before.address)
    if state.is_master != is_master:
        raise AdminError(f"{before.address} answered, but does not have the role that it was "
                         "given: its log says why")
    return _row(before, "verify", f"{'master' if is_master else 'slave'}, its log ends at "
                                  f"{state.log_end}")
