"""The start of a master that may have been replaced, or whose consumers may have moved to slaves.

If another live master has the same name, and its log begins in the same way, then a slave was
promoted, and this broker does not start: two masters would store different messages at the same
places, and the messages of one of them would be lost. An operator can start this broker as a slave.
A master with a different log, however, did not take this broker's place: anyone who can connect to
a name server can register there.

Consumers that continued with a slave committed their offsets there. Before a master answers
requests and registers, it asks the slaves of its name for their offsets, and adopts the ones that
are larger than its own. So consumers do not go back, and do not process messages again. Apache's
masters do so only with enableSlaveActingMaster. Nothing is adopted from a broker whose log begins
differently.

Source: BrokerPreOnlineService.syncMetadataReverse @5.3.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred, gatherResults
from twisted.logger import Logger

from twistmq.broker.api import BrokerError, RequestCode
from twistmq.broker.api.bodies import LmqConsumerOffsetSerializeWrapper
from twistmq.broker.api.requests import run_to_completion
from twistmq.broker.api.wire import MASTER_ID
from twistmq.plugins.ha.settings import OTHER_MASTER
from twistmq.plugins.replica.ask import ask, decode_body, log_range_of, message_of, runtime_info
from twistmq.plugins.replica.kernel_tables import offsets_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from twistmq.broker.api import Broker

__all__ = ["has_same_log", "return_as_master", "take_back"]

_log = Logger()


async def return_as_master(broker: Broker) -> None:
    """Look for other brokers of the name, and adopt the larger offsets of slaves; log failures.

    A broker with an empty log has no messages that were consumed. An offset after the end of its
    local queue is reduced to that end: the messages up to it are gone, and must not cause the next
    messages to be skipped.

    :raises SettingsError: when the name has another master, which may have replaced this one.
    """
    if broker.is_slave or not broker.host.has_name_servers or not (
            broker.store.commit_log.max_offset):
        return
    try:
        members = await broker.host.find_members(broker.broker_name)
    except BrokerError as error:
        _log.warn("the slaves of this broker are not known, so consumer offsets that were "
                  "committed there are not taken back: {error}", error=str(error))
        return
    master = members.get(MASTER_ID, broker.broker_address)
    if master != broker.broker_address and await _is_master(broker, master):
        await _require_stranger(broker, master)
    slaves = [address for broker_id, address in sorted(members.items())
              if broker_id != MASTER_ID and address != broker.broker_address]
    await gatherResults([Deferred.fromCoroutine(take_back(broker, slave)) for slave in slaves])


async def _is_master(broker: Broker, address: str) -> bool:
    """Whether a broker answers and is not a slave."""
    try:
        table = await runtime_info(broker, address)
    except BrokerError:
        return False
    return table.get("brokerActive") != "false"


async def _require_stranger(broker: Broker, master: str) -> None:
    """Let this broker start beside a master that is not its successor.

    :raises SettingsError: when the other master may be its successor, unless
        ``ha.other_master`` is set.
    """
    name = broker.broker_name
    if broker.settings.flag(OTHER_MASTER):
        _log.warn("{name} has another live master, {master}: this one starts nevertheless, because "
                  "of {setting}=true", name=name, master=master, setting=OTHER_MASTER)
        return
    why = ""
    try:
        if not await has_same_log(broker, master):
            _log.error("name servers know {master} as the master {name}, but its log has none of "
                       "the messages here: it did not take this broker's place. This broker "
                       "starts; find out who registered it", master=master, name=name)
            return
    except BrokerError as error:
        why = f", whose log cannot be compared with the one here ({error})"
    raise broker.settings.error(
        "brokerRole", f"cannot be used: the broker name {name} has a live master, {master}{why}. "
                      "If you made that broker the master, start this one as its slave, with "
                      "brokerRole=SLAVE and a brokerId above 0. If you do not know that broker, "
                      f"start this one with {OTHER_MASTER}=true")


async def has_same_log(broker: Broker, address: str) -> bool:
    """Whether the log of another broker begins like the local one.

    The function compares the first and the last of the messages that begin a file in both logs.

    :raises BrokerError: when the comparison fails: the other broker does not answer, or its log
        and the local one have no places in common.
    """
    raw, log = broker.store.raw, broker.store.commit_log
    begin, end = await log_range_of(broker, address)
    starts = [start for start in log.starts if begin <= start < min(end, log.max_offset)]
    firsts = [next(raw.messages(start), None) for start in dict.fromkeys(starts[:1] + starts[-1:])]
    ranges = [each for each in firsts if each is not None and sum(each) <= end]
    if not ranges:
        raise BrokerError(f"its log reaches from {begin} to {end}, the local one from "
                          f"{log.min_offset} to {log.max_offset}")
    for log_offset, size in ranges:
        if await message_of(broker, address, log_offset) == raw.read(log_offset, size):
            return True
    return False


async def take_back(broker: Broker, slave: str) -> None:
    """Adopt the larger consumer offsets of a slave; a failure is logged."""
    try:
        if not await has_same_log(broker, slave):
            raise BrokerError("its log has none of the messages here")
        body = await ask(broker, slave, RequestCode.GET_ALL_CONSUMER_OFFSET)
        theirs = offsets_of(await decode_body(broker, LmqConsumerOffsetSerializeWrapper, body))
        # No client is connected yet that would have to wait, so this runs without slices.
        merged_count = run_to_completion(broker.consumer_offset.merging(
            _within_queues(broker, theirs), larger_wins=True))
    except BrokerError as error:
        _log.warn("the consumer offsets of the slave at {address} cannot be taken back: {error}",
                  address=slave, error=str(error))
        return
    await _take_tables_back(broker, slave)
    if merged_count:
        _log.info("{count} consumer offsets were taken back from the slave at {address}",
                  count=merged_count, address=slave)


async def _take_tables_back(broker: Broker, slave: str) -> None:
    """Adopt the progress of plugins' work that a slave made while it stood in."""
    for table in broker.hooks.collect_synced_tables():
        if table.take_back is None:
            continue
        try:
            table.take_back(await ask(broker, slave, table.code))
        except BrokerError as error:
            _log.warn("the {name} of the slave at {address} cannot be taken back: {error}",
                      name=table.name, address=slave, error=str(error))


def _within_queues(
    broker: Broker, offsets: Mapping[str, Mapping[int, int]]
) -> dict[str, dict[int, int]]:
    """Return the offsets, each reduced to the end of its queue if it is after it."""
    queues = broker.store.queues
    within = {}
    for key, by_queue in offsets.items():
        topic = key.partition("@")[0]
        within[key] = {queue_id: min(offset, queues.max_offset(topic, queue_id))
                       for queue_id, offset in by_queue.items()}
    return within
