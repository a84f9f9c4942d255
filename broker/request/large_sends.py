"""Handles batches of many messages in slices: a batch of 4 MB has tens of thousands of them.

Making the records of such a batch, encoding them, entering them into queue and index, and writing
the reply would block all other clients for most of a second. Each of these steps is therefore done
for a part of the batch at a time, and the reactor serves other clients in between. Only one step is
not divided: the records get their positions and are written at once, so that either all of them are
stored, in their order and next to each other, or none. The broker works on one such batch at a
time, because the records of a batch take many times as much memory as its bytes. Other sends of the
same connection wait until the batch is done.

Source: SendMessageProcessor.sendBatchMessage @5.3.3, which runs this on threads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any, Final

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from twistmq.broker.config.identity import Identity
from twistmq.broker.plugin.hooks import Hooks
from twistmq.broker.remoting.messages import DeferredReply, Handled, Reply, Request, defer_until
from twistmq.broker.request.send_context import SendBatch
from twistmq.broker.scheduling.scheduler import Scheduler
from twistmq.broker.store.message_store import MessageStore
from twistmq.protocol.batch import BATCH_COUNT_MAX, decode_batch_part, too_many
from twistmq.protocol.errors import BrokerError, CopiedError
from twistmq.protocol.message_id import offset_message_id
from twistmq.protocol.record import MessageRecord

if TYPE_CHECKING:
    from twistmq.broker.request.send import SendRequests
    from twistmq.broker.store.append_fast_path import EncodedRecords

__all__ = ["PART_COUNT", "LargeBatch", "LargeSends"]

#: The number of messages in one part, which takes about half a millisecond.
PART_COUNT = 128
#: The turn that all batches share, so that the oldest is served first.
_ALL: Final = ("large",)


class LargeBatch(CopiedError):
    """Reports that a request contains a batch of many messages.

    :param queue_id: the queue of the batch.
    :param sys_flag: the flag of each of its messages.
    :param common: properties of all messages.
    """

    def __init__(self, queue_id: int, sys_flag: int, common: dict[str, str]) -> None:
        super().__init__()
        self.queue_id = queue_id
        self.sys_flag = sys_flag
        self.common = common


class LargeSends:
    """The large batches of one broker, and the requests that wait for them.

    :param scheduler: gives slices to the batches, for which producers wait.
    :param sends: makes records and replies.
    """

    def __init__(
        self, scheduler: Scheduler, identity: Identity, hooks: Hooks, store: MessageStore,
        sends: SendRequests,
    ) -> None:
        self._lane = scheduler.lane(one_at_a_time=True)
        self._identity = identity
        self._hooks = hooks
        self._store = store
        self._sends = sends
        #: The number of waiting requests by channel id.
        self.channels: Counter[int] = Counter()

    def wait(self, requests: Sequence[Request[Any]]) -> list[Handled]:
        """Let requests wait for their turn; :returns: a Deferred of the reply of each."""
        answers: list[Deferred[Any]] = [Deferred() for _ in requests]
        self.channels.update(request.channel.channel_id for request in requests)
        self._lane.run(self._serve(list(zip(requests, answers, strict=True))), _ALL)
        return list(answers)

    def _serve(
        self, waiting: Sequence[tuple[Request[Any], Deferred[Any]]]
    ) -> Generator[None, None, None]:
        """Serve requests, the oldest first."""
        for request, answer in waiting:
            handled: Handled | Failure
            try:
                handled = yield from self._handle(request)
            except Exception:
                handled = Failure()
            channel_id = request.channel.channel_id
            self.channels[channel_id] -= 1
            if not self.channels[channel_id]:
                del self.channels[channel_id]
            _answer(answer, handled)
            yield

    def _handle(self, request: Request[Any]) -> Generator[None, None, Handled]:
        sends = self._sends
        try:
            records = sends.records(request)
        except LargeBatch as batch:
            try:
                records = yield from self._records(request, batch)
            except BrokerError as error:
                return sends.refused(error)
            return (yield from self._complete(request, records))
        except BrokerError as error:
            return sends.refused(error)
        return sends.complete([request], [records], [None])[0]

    def _records(
        self, request: Request[Any], batch: LargeBatch
    ) -> Generator[None, None, list[MessageRecord]]:
        """Split a batch into records.

        :raises BrokerError: when the body is not a batch, or a message of it is refused.
        """
        body = request.command.body
        records: list[MessageRecord] = []
        position = 0
        while position < len(body):
            if len(records) >= BATCH_COUNT_MAX:
                raise too_many()
            messages, position = decode_batch_part(
                body, position, len(records), min(PART_COUNT, BATCH_COUNT_MAX - len(records)))
            records += self._sends.batch_part(request, batch, messages)
            yield
        return records

    def _complete(
        self, request: Request[Any], records: list[MessageRecord]
    ) -> Generator[None, None, Handled]:
        """Call the hooks for a batch, then store and answer it."""
        sends, hooks = self._sends, self._hooks
        replies: list[Handled] = [None]
        batch = SendBatch([request], [records], replies)
        if hooks.before_send:
            for refusal in hooks.refuse_send(batch).values():
                replies[0] = sends.refused(refusal)
            yield
        if replies[0] is None:
            # A plugin may redirect a record; the reply names the queue of the request.
            queue_id = records[0].queue_id
            try:
                yield from self._append(request, records)
            except BrokerError as error:
                replies[0] = sends.refused(sends.not_stored(error))
            else:
                message_ids = yield from self._message_ids(records)
                sends.stored([request], [records], replies, [queue_id], message_ids)
        saved = sends.save_created_topics()
        if saved is not None:
            defer_until(saved, replies)
        if hooks.after_send:
            hooks.sent(batch)
        return replies[0]

    def _append(
        self, request: Request[Any], records: list[MessageRecord]
    ) -> Generator[None, None, None]:
        """Store records and make them readable.

        :raises BrokerError: when a plugin or the store refuses one; then none is stored.
        """
        store = self._store
        encoded: list[EncodedRecords] = []
        for begin in range(0, len(records), PART_COUNT):
            part = records[begin:begin + PART_COUNT]
            if self._hooks.before_append:
                for refusal in self._hooks.refuse_append(part).values():
                    raise refusal
            encoded.append(store.encode_ahead(part))
            yield
        # The topic may have been deleted, or the broker may have stopped writing.
        self._sends.require_topic(request)
        store.append_encoded(encoded)
        encoded.clear()
        yield
        end = records[-1].next_offset
        while store.dispatch.offset < end and store.dispatch.step():
            yield

    def _message_ids(self, records: list[MessageRecord]) -> Generator[None, None, str]:
        """Make the ids of messages, which contain their positions."""
        host = self._identity.store_host
        parts: list[str] = []
        for begin in range(0, len(records), PART_COUNT):
            parts += [offset_message_id(host, record.physical_offset)
                      for record in records[begin:begin + PART_COUNT]]
            yield
        return ",".join(parts)


def _answer(answer: Deferred[Any], handled: Handled | Failure) -> None:
    """Fire a Deferred with a reply once the reply is available."""
    if isinstance(handled, Deferred):
        handled.addBoth(answer.callback)
    elif isinstance(handled, DeferredReply):
        reply: Reply = handled.reply

        def held(result: Any) -> Any:
            answer.callback(result if isinstance(result, Failure) else reply)
            return None if isinstance(result, Failure) else result

        handled.until.addBoth(held)
    else:
        answer.callback(handled)
