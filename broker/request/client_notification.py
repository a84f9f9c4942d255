"""Notifies consumers that their group changed (40).

Source: ConsumerIdsChangeListener, Broker2Client.notifyConsumerIdsChanged @5.3.3.
"""

from __future__ import annotations

from twistmq.broker.request.client_table import ChangeKind, ClientChange, ClientTable
from twistmq.protocol.codes import RequestCode
from twistmq.protocol.headers.client import NotifyConsumerIdsChangedRequestHeader

__all__ = ["notify_members"]


def notify_members(clients: ClientTable, change: ClientChange) -> None:
    """Notify the members of a changed group, so that they rebalance their queues."""
    if change.kind is not ChangeKind.CHANGE or not change.notify:
        return
    group = clients.consumer_group(change.group)
    if group is None:
        return
    header = NotifyConsumerIdsChangedRequestHeader(consumer_group=change.group)
    for client in group.clients.values():
        client.channel.send_oneway(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, header)
