"""Headers of transactions (37, 39, 323).

Source: EndTransactionRequestHeader, CheckTransactionStateRequestHeader,
ResumeCheckHalfMessageRequestHeader @5.3.3.
"""

from __future__ import annotations

from twistmq.protocol.header import CommandHeader, Int32, Int64
from twistmq.protocol.headers.rpc import RpcRequestHeader

__all__ = ["CheckTransactionStateRequestHeader", "EndTransactionRequestHeader",
           "ResumeCheckHalfMessageRequestHeader"]


class EndTransactionRequestHeader(RpcRequestHeader, kw_only=True):
    """A producer says how its local transaction ended."""

    is_hot = True

    topic: str | None = None
    producer_group: str | None = None
    #: The half message's logical index in its queue.
    tran_state_table_offset: Int64
    #: Its commit-log offset, bytes.
    commit_log_offset: Int64
    #: 8 commit, 12 roll back, 0 not known.
    commit_or_rollback: Int32
    from_transaction_check: bool = False
    msg_id: str | None = None
    transaction_id: str | None = None


class CheckTransactionStateRequestHeader(RpcRequestHeader, kw_only=True):
    """To a producer: how did this transaction end? The body is the half message."""

    topic: str | None = None
    tran_state_table_offset: Int64
    commit_log_offset: Int64
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None


class ResumeCheckHalfMessageRequestHeader(CommandHeader, kw_only=True):
    """Check a half message again that was given up."""

    topic: str | None = None
    #: Names the message's place; see offset_message_id.
    msg_id: str | None = None
