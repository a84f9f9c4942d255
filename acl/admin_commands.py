"""The account commands that mqadmin has up to version 5.2: ``twistmq admin updateAclConfig``, ...

No command prints a secret key. A secret key that is given as ``-`` is read interactively.

Source: the classes of tools/command/acl @4.9.4.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from twistmq.acl.requests import (
    CreateAccessConfigRequestHeader,
    DeleteAccessConfigRequestHeader,
    GetBrokerAclConfigResponseHeader,
    GetBrokerClusterAclConfigResponseBody,
    UpdateGlobalWhiteAddrsConfigRequestHeader,
)
from twistmq.broker.api import CommandHeader, RequestCode
from twistmq.broker.api.admin_commands import Millis, Row, Session
from twistmq.broker.api.bodies import DataVersion
from twistmq.broker.api.wire import RemotingCommand

__all__ = ["accounts", "delete_account", "update_account", "update_white_addresses", "versions"]


def _change(
    session: Session, code: RequestCode, header: CommandHeader, broker: str | None,
    cluster: str | None, shown: str,
) -> Iterator[Row]:
    # Each broker of a broker name has its own file.
    for server, _ in session.for_each(session.brokers(broker, cluster, slaves=True),
                                  lambda each: session.ask(each.address, code, header)):
        yield server.name, server.address, shown


def update_account(
    session: Session, *, broker: str | None, cluster: str | None, account: str, secret: str,
    white: str | None, topic_perm: str | None, group_perm: str | None, topic_perms: str | None,
    group_perms: str | None, admin: bool,
) -> Iterator[Row]:
    """Add an account, or change it."""
    header = CreateAccessConfigRequestHeader(
        access_key=account, secret_key=secret, white_remote_address=white, admin=admin,
        default_topic_perm=topic_perm, default_group_perm=group_perm, topic_perms=topic_perms,
        group_perms=group_perms)
    return _change(session, RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, header, broker, cluster,
                   account)


def delete_account(
    session: Session, *, broker: str | None, cluster: str | None, account: str
) -> Iterator[Row]:
    """Delete an account."""
    return _change(session, RequestCode.DELETE_ACL_CONFIG,
                   DeleteAccessConfigRequestHeader(access_key=account), broker, cluster, account)


def update_white_addresses(
    session: Session, *, broker: str | None, cluster: str | None, addresses: str, file: str | None
) -> Iterator[Row]:
    """Set the addresses that need no account."""
    header = UpdateGlobalWhiteAddrsConfigRequestHeader(
        global_white_addrs=addresses, acl_file_full_path=file)
    return _change(session, RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, header, broker, cluster,
                   addresses)


def versions(session: Session, *, broker: str | None, cluster: str | None) -> Iterator[Row]:
    """Return the versions of the account files."""
    servers = session.brokers(broker, cluster, slaves=True)
    for server, reply in session.for_each(servers, lambda each: session.ask(
            each.address, RequestCode.GET_BROKER_CLUSTER_ACL_INFO)):
        assert isinstance(reply, RemotingCommand)
        header = reply.header(GetBrokerAclConfigResponseHeader)
        files = msgspec.json.decode(header.all_acl_file_version, type=dict[str, DataVersion])
        for file, version in sorted(files.items()):
            yield (header.cluster_name, header.broker_name, server.address, file, version.counter,
                   Millis(version.timestamp))


def accounts(session: Session, *, broker: str | None, cluster: str | None) -> Iterator[Row]:
    """Return the accounts."""
    servers = session.brokers(broker, cluster, slaves=True)
    for server, reply in session.for_each(servers, lambda each: session.ask(
            each.address, RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG)):
        assert isinstance(reply, RemotingCommand)
        configs = GetBrokerClusterAclConfigResponseBody.decode(reply.body)
        for each in configs.plain_access_configs:
            yield (server.name, server.address, each.access_key, each.admin,
                   each.default_topic_perm, each.default_group_perm, list(each.topic_perms or []),
                   list(each.group_perms or []), each.white_remote_address)
