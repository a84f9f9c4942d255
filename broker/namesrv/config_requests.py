"""Requests for key-value configuration and settings: 100, 101, 102, 219, 318, 319.

Source: DefaultRequestProcessor, Configuration @5.3.3.
"""

from __future__ import annotations

from typing import Final

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from twistmq.broker.config.setting_rows import NAMESRV_OPEN
from twistmq.broker.config.settings import Settings
from twistmq.broker.constants import LONG_HEADER_SIZE_MAX, SETTINGS_SIZE_MAX
from twistmq.broker.namesrv.kv_config import KVConfig
from twistmq.broker.remoting.messages import AnyHandler, Reply, Request, RequestHandler
from twistmq.broker.remoting.settings_update import change_settings, changed_reply
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.errors import RequestRefused
from twistmq.protocol.header import EmptyHeader
from twistmq.protocol.headers.namesrv import (
    DeleteKVConfigRequestHeader,
    GetKVConfigRequestHeader,
    GetKVConfigResponseHeader,
    GetKVListByNamespaceRequestHeader,
    PutKVConfigRequestHeader,
)
from twistmq.protocol.log_rate import LimitedLog

__all__ = ["ConfigRequests"]

#: Settings that no tool may change, whatever ``configBlackList`` contains.
_NEVER_CHANGED: Final = frozenset(
    {"configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome"})


class ConfigRequests:
    """Handlers of these requests."""

    log = Logger()

    def __init__(self, kv_config: KVConfig, settings: Settings) -> None:
        self._kv_config = kv_config
        self._settings = settings
        self._lines = LimitedLog(self.log)

    def handlers(self) -> list[AnyHandler]:
        code = RequestCode
        return [
            RequestHandler(code.PUT_KV_CONFIG, self.put, PutKVConfigRequestHeader,
                           header_size_max=LONG_HEADER_SIZE_MAX),
            RequestHandler(code.GET_KV_CONFIG, self.get, GetKVConfigRequestHeader),
            RequestHandler(code.DELETE_KV_CONFIG, self.delete, DeleteKVConfigRequestHeader),
            RequestHandler(code.GET_KVLIST_BY_NAMESPACE, self.namespace,
                           GetKVListByNamespaceRequestHeader),
            RequestHandler(code.UPDATE_NAMESRV_CONFIG, self.update_settings,
                           body_size_max=SETTINGS_SIZE_MAX),
            RequestHandler(code.GET_NAMESRV_CONFIG, self.settings),
        ]

    def put(self, request: Request[PutKVConfigRequestHeader]) -> Deferred[Reply]:
        header = request.header
        kept = self._kv_config.put(header.namespace, header.key, header.value)
        return kept.addCallback(lambda _: Reply())

    def get(self, request: Request[GetKVConfigRequestHeader]) -> Reply:
        header = request.header
        value = self._kv_config.get(header.namespace, header.key)
        if value is None:
            raise RequestRefused(
                ResponseCode.QUERY_NOT_FOUND,
                f"No config item, Namespace: {header.namespace} Key: {header.key}")
        return Reply(header=GetKVConfigResponseHeader(value=value))

    def delete(self, request: Request[DeleteKVConfigRequestHeader]) -> Deferred[Reply]:
        forgotten = self._kv_config.delete(request.header.namespace, request.header.key)
        return forgotten.addCallback(lambda _: Reply())

    def namespace(self, request: Request[GetKVListByNamespaceRequestHeader]) -> Reply:
        table = self._kv_config.table(request.header.namespace)
        if table is None:
            raise RequestRefused(ResponseCode.QUERY_NOT_FOUND,
                                 f"No config item, Namespace: {request.header.namespace}")
        return Reply(body=table.encode())

    def settings(self, request: Request[EmptyHeader]) -> Reply:
        return Reply(body=self._settings.format().encode())

    def update_settings(self, request: Request[EmptyHeader]) -> Reply:
        """Change settings that are open to tools; all of them are changed, or none.

        Differs from Apache: there any client may change any setting, even the listening address.
        """
        self._lines.info(request.now_ms, "settings changed by {peer}",
                         peer=request.channel.remote_address)
        settings = self._settings
        closed = {row.name for row in settings.rows} - NAMESRV_OPEN
        changes, _ = change_settings(
            settings, request.body, _NEVER_CHANGED, closed.union(settings.unknown))
        return changed_reply(self._settings, changes)
