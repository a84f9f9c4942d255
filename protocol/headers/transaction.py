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
    """A producer reports the result of its local transaction."""

    is_hot = True

    topic: str | None = None
    producer_group: str | None = None
    #: The half message's logical index in its queue.
    tran_state_table_offset: Int64
    #: The commit log offset of the half message, bytes.
    commit_log_offset: Int64
    #: 8 commit, 12 roll back, 0 unknown.
    commit_or_rollback: Int32
    from_transaction_check: bool = False
    msg_id: str | None = None
    transaction_id: str | None = None


class CheckTransactionStateRequestHeader(RpcRequestHeader, kw_only=True):
    """Asks a producer for the result of a transaction; the body is the half message."""

    topic: str | None = None
    tran_state_table_offset: Int64
    commit_log_offset: Int64
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None


class ResumeCheckHalfMessageRequestHeader(CommandHeader, kw_only=True):
    """Resumes the checks of a half message that was given up."""

    topic: str | None = None
    #: Contains the position of the message; see offset_message_id.
    msg_id: str | None = None
