"""Headers of transactions (37, 39).

Source: EndTransactionRequestHeader, CheckTransactionStateRequestHeader @5.3.3.
"""

from __future__ import annotations

from twistmq.broker.wire.header import Int32, Int64
from twistmq.broker.wire.headers.rpc import RpcRequestHeader

__all__ = ["CheckTransactionStateRequestHeader", "EndTransactionRequestHeader"]


class EndTransactionRequestHeader(RpcRequestHeader, kw_only=True):
    """A producer says how its local transaction ended."""

    topic: str | None = None
    producer_group: str
    #: The half message's logical index in its queue.
    tran_state_table_offset: Int64
    #: Its commit-log offset, bytes.
    commit_log_offset: Int64
    #: 8 commit, 12 roll back, 0 not known.
    commit_or_rollback: Int32
    from_transaction_check: bool = False
    msg_id: str
    transaction_id: str | None = None


class CheckTransactionStateRequestHeader(RpcRequestHeader, kw_only=True):
    """To a producer: how did this transaction end? The body is the half message."""

    topic: str | None = None
    tran_state_table_offset: Int64
    commit_log_offset: Int64
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None
