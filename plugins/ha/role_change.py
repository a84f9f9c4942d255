"""NOTIFY_BROKER_ROLE_CHANGED (1008): an operator chooses which broker of a name is its master.

The request names the master. The broker with this address becomes the master, and any other broker
becomes its slave. The response is sent when the change is made, registered, and written into the
file of settings, so that the next start has the same role. If the next start would not have it, the
response states this: a broker without ``-c`` does not read a file, and the command line overrides
the file. No broker changes its role on its own initiative: a failover needs an operator.

Apache's controller sends this request to its brokers; its epochs have no meaning here.

Source: AdminBrokerProcessor.notifyBrokerRoleChanged, NotifyBrokerRoleChangedRequestHeader @5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred, DeferredLock
from twisted.logger import Logger

from twistmq.broker.api import (
    Handled,
    Reply,
    Request,
    RequestCode,
    RequestHandler,
    RequestRefused,
    ResponseCode,
    SettingsError,
)
from twistmq.broker.api.headers import NotifyBrokerRoleChangedRequestHeader
from twistmq.broker.api.requests import now_or_later
from twistmq.broker.api.wire import BROKER_ID_MAX, split_address

if TYPE_CHECKING:
    from twistmq.broker.api import Broker
    from twistmq.plugins.replica.tables import TableCopies

__all__ = ["RoleChange"]

_Header = NotifyBrokerRoleChangedRequestHeader


def _check_demotion(master_address: str, slave_id: int) -> None:
    """:raises RequestRefused: when a broker cannot become the slave of this master."""
    try:
        split_address(master_address)
    except ValueError as error:
        raise RequestRefused(ResponseCode.INVALID_PARAMETER, f"masterAddress {error}") from None
    if not 0 < slave_id <= BROKER_ID_MAX:
        raise RequestRefused(
            ResponseCode.INVALID_PARAMETER, "masterBrokerId must be the id of this broker as a "
            f"slave: 1 to {BROKER_ID_MAX}")


class RoleChange:
    """Changes the role of one broker.

    :param tables: the broker's copies of tables of its master.
    :param leave_master: stops following the master, before this broker becomes master itself.
    :param follow: follows the master again, if this broker still is a slave.
    """

    log = Logger()

    def __init__(
        self, broker: Broker, tables: TableCopies, leave_master: Callable[[], None],
        follow: Callable[[], None],
    ) -> None:
        self._broker = broker
        self._tables = tables
        self._leave_master = leave_master
        self._follow = follow
        self._lock: DeferredLock = DeferredLock()

    def handler(self) -> RequestHandler[_Header]:
        """Return the handler of the request."""
        return RequestHandler(RequestCode.NOTIFY_BROKER_ROLE_CHANGED, self._changed, _Header)

    def _changed(self, request: Request[_Header]) -> Handled:
        """Make one change after another.

        :raises RequestRefused: when the request makes no sense.
        """
        header, broker = request.header, self._broker
        if not header.master_address:
            raise RequestRefused(ResponseCode.INVALID_PARAMETER, "masterAddress is missing")
        is_master = header.master_address == broker.broker_address
        slave_id = header.master_broker_id or 0
        if not is_master and not broker.is_slave:
            _check_demotion(header.master_address, slave_id)
        return now_or_later(self._lock.run(
            lambda: Deferred.fromCoroutine(self._change(is_master, slave_id))))

    async def _change(self, is_master: bool, slave_id: int) -> Reply:
        """:raises StoreError: when the disk fails; the role stays as it was."""
        broker = self._broker
        if is_master and broker.is_slave:
            self._leave_master()
            try:
                await self._tables.copy_last()
                await broker.change_role("ASYNC_MASTER", 0)
            finally:
                self._follow()
        elif not is_master and not broker.is_slave:
            await broker.change_role("SLAVE", slave_id)
        else:
            return Reply(remark=f"it is {broker.role} already")
        self.log.info("this broker is now {role} with id {broker_id}, as an operator requested",
                      role=broker.role, broker_id=broker.broker_id)
        return Reply(remark=self._saved())

    def _saved(self) -> str:
        """Save the role for the next start; :returns: the role, and a task for the operator."""
        broker, settings = self._broker, self._broker.settings
        now = f"it is {broker.role} now"
        by_hand = (f"{now}; its settings must have brokerRole={broker.role} and "
                   f"brokerId={broker.broker_id} before it starts again")
        if settings.file is None:
            return by_hand
        settings.put("brokerRole", broker.role)
        settings.put("brokerId", broker.broker_id)
        try:
            settings.save(("brokerRole", "brokerId"))
        except SettingsError as error:
            self.log.error("the role cannot be saved: {error}", error=str(error))
            return by_hand
        if not all(map(settings.is_read_back, ("brokerRole", "brokerId"))):
            return f"{by_hand}: change the command that starts it"
        return f"{now}, and that is saved in its settings"
