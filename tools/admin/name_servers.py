"""Commands of name servers.

Source: the classes of tools/command/namesrv @5.3.3.
"""

from __future__ import annotations

from collections.abc import Iterator

from twistmq.protocol.codes import RequestCode
from twistmq.protocol.command import RemotingCommand
from twistmq.protocol.headers.namesrv import (
    AddWritePermOfBrokerRequestHeader,
    AddWritePermOfBrokerResponseHeader,
    DeleteKVConfigRequestHeader,
    PutKVConfigRequestHeader,
    WipeWritePermOfBrokerRequestHeader,
    WipeWritePermOfBrokerResponseHeader,
)
from twistmq.tools.admin.files import read_settings
from twistmq.tools.admin.rows import Row
from twistmq.tools.admin.session import AdminError, Session

__all__ = ["add_write_perm", "delete_kv", "get_settings", "update_kv", "update_settings",
           "wipe_write_perm"]


def add_write_perm(session: Session, *, broker: str) -> Iterator[Row]:
    """Allow producers to choose a broker again."""
    header = AddWritePermOfBrokerRequestHeader(broker_name=broker)
    for address, reply in session.for_each(session.name_servers, lambda each: session.ask(
            each, RequestCode.ADD_WRITE_PERM_OF_BROKER, header)):
        assert isinstance(reply, RemotingCommand)
        yield (address, broker,
               reply.header(AddWritePermOfBrokerResponseHeader).add_topic_count)


def wipe_write_perm(session: Session, *, broker: str) -> Iterator[Row]:
    """Prevent producers from choosing a broker."""
    header = WipeWritePermOfBrokerRequestHeader(broker_name=broker)
    for address, reply in session.for_each(session.name_servers, lambda each: session.ask(
            each, RequestCode.WIPE_WRITE_PERM_OF_BROKER, header)):
        assert isinstance(reply, RemotingCommand)
        yield (address, broker,
               reply.header(WipeWritePermOfBrokerResponseHeader).wipe_topic_count)


def update_kv(session: Session, *, namespace: str, key: str, value: str) -> Iterator[Row]:
    """Store a value on every name server."""
    header = PutKVConfigRequestHeader(namespace=namespace, key=key, value=value)
    for address, _ in session.for_each(session.name_servers, lambda each: session.ask(
            each, RequestCode.PUT_KV_CONFIG, header)):
        yield address, namespace, key, value


def delete_kv(session: Session, *, namespace: str, key: str) -> Iterator[Row]:
    """Delete a value on every name server."""
    header = DeleteKVConfigRequestHeader(namespace=namespace, key=key)
    for address, _ in session.for_each(session.name_servers, lambda each: session.ask(
            each, RequestCode.DELETE_KV_CONFIG, header)):
        yield address, namespace, key


def get_settings(session: Session) -> Iterator[Row]:
    """Show the settings of every name server."""
    for address, reply in session.for_each(session.name_servers, lambda each: session.ask(
            each, RequestCode.GET_NAMESRV_CONFIG)):
        assert isinstance(reply, RemotingCommand)
        for name, text in sorted(read_settings(reply.body).items()):
            yield address, name, text


def update_settings(session: Session, *, key: str, value: str) -> Iterator[Row]:
    """Change a setting of every name server."""
    if not key.strip():
        raise AdminError("-k must name a setting")
    body = f"{key}={value}".encode()
    for address, _ in session.for_each(session.name_servers, lambda each: session.ask(
            each, RequestCode.UPDATE_NAMESRV_CONFIG, None, body)):
        yield address, key, value
