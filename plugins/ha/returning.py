"""A master that starts: another one may have taken its place, or slaves its consumers.

Where its name has a live master whose log begins as its own does, a slave was promoted, and it does
not start: two masters would store different messages at the same places, and one of both would be
lost. An operator lets it start as a slave. A broker with another log took nobody's place, however:
anyone who reaches a name server can register there.

Consumers that went on with a slave committed there. Before a master answers requests and registers
it asks the slaves of its name for their offsets, and takes those that are larger than its own: no
consumer goes back, and none repeats what it has consumed. Apache's masters do so only with
enableSlaveActingMaster. Nothing is taken from a broker whose log does not begin as the one here.

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
from twistmq.plugins.ha.ask import ask, decode_body, log_range_of, message_of, runtime_info
from twistmq.plugins.ha.kernel_tables import offsets_of
from twistmq.plugins.ha.settings import OTHER_MASTER

if TYPE_CHECKING:
    from collections.abc import Mapping

    from twistmq.broker.api import Broker

__all__ = ["has_same_log", "return_as_master", "take_back"]

_log = Logger()


async def return_as_master(broker: Broker) -> None:
    """Look who is there, and take the larger offsets of the slaves; what fails is logged.

    A broker with an empty log has nothing that was consumed. An offset behind the end of its queue
    here is cut to that end: the messages of it are gone, and the next ones are not skipped.

    :raises SettingsError: when its name has another master, which may have taken its place.
    """
    if broker.is_slave or not broker.host.has_name_servers or not (
            broker.store.commit_log.max_offset):
        return
    try:
        members = await broker.host.find_members(broker.broker_name)
    except BrokerError as error:
        _log.warn("the slaves of this broker are not known, so that consumer offsets which they "
                  "took meanwhile are not taken back: {error}", error=str(error))
        return
    master = members.get(MASTER_ID, broker.broker_address)
    if master != broker.broker_address and await _is_master(broker, master):
        await _require_stranger(broker, master)
    slaves = [address for broker_id, address in sorted(members.items())
              if broker_id != MASTER_ID and address != broker.broker_address]
    await gatherResults([Deferred.fromCoroutine(take_back(broker, slave)) for slave in slaves])


async def _is_master(broker: Broker, address: str) -> bool:
    """Whether a broker answers, and is not a slave."""
    try:
        table = await runtime_info(broker, address)
    except BrokerError:
        return False
    return table.get("brokerActive") != "false"


async def _require_stranger(broker: Broker, master: str) -> None:
    """Let this broker start beside one that is not its successor.

    :raises SettingsError: when the other one may be, unless ``ha.other_master`` says that it is
        not.
    """
    name = broker.broker_name
    if broker.settings.flag(OTHER_MASTER):
        _log.warn("{name} has another live master, {master}: this one starts all the same, because "
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
                      "If you made that broker the master, start this one as its slave, by "
                      "brokerRole=SLAVE and a brokerId above 0. If you do not know it, do not: "
                      f"start this one with {OTHER_MASTER}=true")


async def has_same_log(broker: Broker, address: str) -> bool:
    """Whether the log of another broker begins as the one here.

    The first and the last message are compared that begin a file of both.

    :raises BrokerError: when that cannot be found out: it does not answer, or has none of the
        places that the log here has.
    """
    raw, log = broker.store.raw, broker.store.commit_log
    begin, end = await log_range_of(broker, address)
    starts = [start for start in log.starts if begin <= start < min(end, log.max_offset)]
    firsts = [next(raw.messages(start), None) for start in dict.fromkeys(starts[:1] + starts[-1:])]
    places = [each for each in firsts if each is not None and sum(each) <= end]
    if not places:
        raise BrokerError(f"its log goes from {begin} to {end}, the one here from "
                          f"{log.min_offset} to {log.max_offset}")
    for place, size in places:
        if await message_of(broker, address, place) == raw.read(place, size):
            return True
    return False


async def take_back(broker: Broker, slave: str) -> None:
    """Take the larger consumer offsets of a slave; a failure is logged."""
    try:
        if not await has_same_log(broker, slave):
            raise BrokerError("its log has none of the messages here")
        body = await ask(broker, slave, RequestCode.GET_ALL_CONSUMER_OFFSET)
        theirs = offsets_of(await decode_body(broker, LmqConsumerOffsetSerializeWrapper, body))
        # There is no client yet that would wait for slices.
        taken = run_to_completion(broker.consumer_offset.merging(
            _within_queues(broker, theirs), larger_wins=True))
    except BrokerError as error:
        _log.warn("the consumer offsets of the slave at {address} cannot be taken back: {error}",
                  address=slave, error=str(error))
        return
    await _take_tables_back(broker, slave)
    if taken:
        _log.info("{count} consumer offsets were taken back from the slave at {address}",
                  count=taken, address=slave)


async def _take_tables_back(broker: Broker, slave: str) -> None:
    """Take what a slave that stood in has done of the work of plugins."""
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
    """The offsets, none behind the end of its queue."""
    queues = broker.store.queues
    within = {}
    for key, by_queue in offsets.items():
        topic = key.partition("@")[0]
        within[key] = {queue_id: min(offset, queues.max_offset(topic, queue_id))
                       for queue_id, offset in by_queue.items()}
    return within
