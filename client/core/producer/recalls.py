"""Recalls a timed message before it is delivered (370).

Source: DefaultMQProducerImpl.recallMessage @5.3.3.
"""

from __future__ import annotations

from twistmq.client.base.errors import Denied, OptionError
from twistmq.client.base.messages import SendResult
from twistmq.client.core.producer.sender import Sender
from twistmq.protocol.codes import RequestCode
from twistmq.protocol.headers.send import RecallMessageRequestHeader

__all__ = ["recall"]


async def recall(sender: Sender, result: SendResult) -> None:
    """Recall a message, so that it is not delivered.

    :param result: the result of its send.
    :raises OptionError: when the broker returned no handle: the message is not timed, or the broker
        is older than 5.3.1 or is configured without recalls.
    :raises RequestRefused: when the broker refuses, for example because it is too late.
    """
    if not isinstance(result, SendResult):
        raise OptionError(f"{result!r} is not the result of a send, which a recall needs")
    if not result.recall_handle:
        raise OptionError(f"the message {result.id} has no recall handle")
    header = RecallMessageRequestHeader(
        topic=result.queue.topic, recall_handle=result.recall_handle,
        producer_group=sender.options.group)
    try:
        await sender.client.ask_queue(
            result.queue, RequestCode.RECALL_MESSAGE, header, of_slaves=False)
    except Denied as error:
        raise Denied(error.response_code, f"{error}; a broker recalls messages only with the "
                     "setting recallMessageEnable=true") from None
