"""The consumer offsets that slaves took while the master was away, on their way back to it.

Consumers that went on with a slave committed there. A master that starts asks the brokers of its
name for their offsets before it answers requests and registers, and takes those that are larger
than its own: no consumer goes back, and none repeats what it has consumed. Apache's masters do so
only with enableSlaveActingMaster.

Source: BrokerPreOnlineService.syncMetadataReverse @5.3.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from twisted.internet.defer import Deferred, gatherResults
from twisted.logger import Logger

from twistmq.broker.api import BrokerError, RequestCode
from twistmq.broker.api.bodies import LmqConsumerOffsetSerializeWrapper
from twistmq.broker.api.requests import run_to_completion
from twistmq.plugins.ha.ask import ask, decode_body
from twistmq.plugins.ha.kernel_tables import offsets_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from twistmq.broker.api import Broker

__all__ = ["take_offsets_back"]

_log = Logger()
_MASTER_ID: Final = 0


async def take_offsets_back(broker: Broker) -> None:
    """Take the larger offsets of the slaves of this master; what cannot be asked is logged.

    A broker with an empty log has nothing that was consumed. An offset behind the end of its queue
    here is cut to that end: the messages of it are gone, and the next ones are not skipped.
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
    slaves = [address for broker_id, address in sorted(members.items())
              if broker_id != _MASTER_ID and address != broker.broker_address]
    await gatherResults([Deferred.fromCoroutine(_take_back(broker, slave)) for slave in slaves])


async def _take_back(broker: Broker, slave: str) -> None:
    try:
        body = await ask(broker, slave, RequestCode.GET_ALL_CONSUMER_OFFSET)
        theirs = offsets_of(await decode_body(broker, LmqConsumerOffsetSerializeWrapper, body))
        # There is no client yet that would wait for slices.
        taken = run_to_completion(broker.consumer_offset.merging(
            _within_queues(broker, theirs), larger_wins=True))
    except BrokerError as error:
        _log.warn("the consumer offsets of the slave at {address} cannot be taken back: {error}",
                  address=slave, error=str(error))
        return
    if taken:
        _log.info("{count} consumer offsets were taken back from the slave at {address}",
                  count=taken, address=slave)


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
