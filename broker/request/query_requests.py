"""Requests that look up messages by key and by position: 12, 33.

Source: QueryMessageProcessor @5.3.3.
"""

from __future__ import annotations

from typing import Any, Final

from twistmq.broker.config.settings import Settings
from twistmq.broker.remoting.dispatcher import Dispatcher
from twistmq.broker.remoting.long_answers import LongAnswers, Work
from twistmq.broker.remoting.messages import Handled, Reply, Request, RequestHandler
from twistmq.broker.request.message_access import require_readable
from twistmq.broker.store.message_store import MessageStore
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.errors import RequestRefused
from twistmq.protocol.headers.query import (
    QueryMessageRequestHeader,
    QueryMessageResponseHeader,
    ViewMessageRequestHeader,
)
from twistmq.protocol.record import decode_record

__all__ = ["QueryRequests"]

#: Marks the key of a query as a unique key. Source: MixAll.UNIQUE_MSG_QUERY_FLAG.
_UNIQUE_KEY_FLAG: Final = "_UNIQUE_KEY_QUERY"


class QueryRequests:
    """The handlers of queries for messages."""

    def __init__(
        self, settings: Settings, store: MessageStore, dispatcher: Dispatcher,
        long_answers: LongAnswers,
    ) -> None:
        self._settings = settings
        self._store = store
        self._dispatcher = dispatcher
        self._long_answers = long_answers

    def handlers(self) -> list[RequestHandler[Any]]:
        return [
            RequestHandler(RequestCode.QUERY_MESSAGE, self._query, QueryMessageRequestHeader),
            RequestHandler(RequestCode.VIEW_MESSAGE_BY_ID, self._view, ViewMessageRequestHeader),
        ]

    def _query(self, request: Request[QueryMessageRequestHeader]) -> Handled:
        return self._long_answers.answer(self._look_up(request), request.channel)

    def _look_up(self, request: Request[QueryMessageRequestHeader]) -> Work:
        header = request.header
        unique = request.command.fields().get(_UNIQUE_KEY_FLAG) == "true"
        messages, newest_ms, newest_offset = yield from self._store.reader.querying(
            header.topic, header.key,
            self._settings.int("defaultQueryMaxNum") if unique else header.max_num,
            header.begin_timestamp, header.end_timestamp)
        if not messages:
            return Reply(ResponseCode.QUERY_NOT_FOUND, QueryMessageResponseHeader(
                index_last_update_timestamp=0, index_last_update_phyoffset=0),
                remark="can not find message, maybe time range not correct")
        answer = QueryMessageResponseHeader(
            index_last_update_timestamp=newest_ms, index_last_update_phyoffset=newest_offset)
        return Reply(header=answer, body=b"".join(messages))

    def _view(self, request: Request[ViewMessageRequestHeader]) -> Reply:
        record = self._store.look_message(request.header.offset)
        if record is None:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR,
                f"can not find message by the offset, {request.header.offset}")
        require_readable(self._dispatcher, request, decode_record(record, 0, False))
        return Reply(body=record)
