"""Reads and changes the broker's settings: 25, 26.

Source: AdminBrokerProcessor.updateBrokerConfig, getBrokerConfig @5.3.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from twistmq.broker.api import EmptyHeader, Handled, Reply, Request, RequestCode, RequestHandler
from twistmq.broker.api.bodies import DataVersion
from twistmq.broker.api.config import change_settings, changed_reply
from twistmq.broker.api.headers import GetBrokerConfigResponseHeader
from twistmq.broker.api.limits import SETTINGS_SIZE_MAX
from twistmq.broker.api.observe import LimitedLog

if TYPE_CHECKING:
    from twistmq.broker.api import Broker

__all__ = ["SettingRequests"]

#: Settings that tools must not change, whatever ``configBlackList`` contains.
_NEVER_CHANGED: Final = frozenset({"configBlackList", "brokerConfigPath", "rocketmqHome"})


class SettingRequests:
    """The handlers of requests about settings."""

    log = Logger()

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._lines = LimitedLog(self.log)
        self._version = DataVersion(timestamp=broker.started_ms)

    def handlers(self) -> list[RequestHandler[Any]]:
        return [
            RequestHandler(RequestCode.UPDATE_BROKER_CONFIG, self._update, EmptyHeader,
                           body_size_max=SETTINGS_SIZE_MAX),
            RequestHandler(RequestCode.GET_BROKER_CONFIG, self._read, EmptyHeader),
        ]

    def _read(self, request: Request[EmptyHeader]) -> Reply:
        version = self._version.encode_standard().decode()
        return Reply(header=GetBrokerConfigResponseHeader(version=version),
                     body=self._broker.settings.format().encode())

    def _update(self, request: Request[EmptyHeader]) -> Handled:
        """Change all of the named settings, or none.

        A change of permissions is answered after the name servers were informed.
        """
        broker = self._broker
        changes, changed = change_settings(broker.settings, request.body, _NEVER_CHANGED)
        # Values are not logged, because the setting of a plugin may contain a secret.
        self._lines.info(
            request.now_ms, "{peer} changed the settings {names}",
            names=", ".join(sorted(changes)), peer=request.channel.remote_address)
        self._version.next_version(broker.now_ms())
        reply = changed_reply(broker.settings, changes)
        if "brokerPermission" not in changed:
            return reply
        registration = broker.topics_saved_and_registered()
        if registration is None:
            return reply
        answer: Deferred[Reply] = registration.addCallback(lambda _: reply)
        return answer
