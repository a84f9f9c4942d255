"""A kernel with users and policies, and clients that sign, for the tests of this folder."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from twistmq.acl import auth
from twistmq.broker.testing.kernel import KernelBox, Peer
from twistmq.plugins import admin
from twistmq.protocol.bodies import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from twistmq.protocol.command import VERSION, RemotingCommand
from twistmq.protocol.header import CommandHeader, ext_fields_of
from twistmq.protocol.headers.auth import AclRequestHeader, UserRequestHeader
from twistmq.protocol.signature import request_content, signature_of

__all__ = ["ALICE", "ROOT", "SETTINGS", "AuthTestCase", "ask_fields", "policy"]

ROOT = ("root", "secret-of-root")
ALICE = ("alice", "secret-of-alice")
SETTINGS = {
    "authenticationEnabled": "true", "authorizationEnabled": "true",
    "initAuthenticationUser": json.dumps({"username": ROOT[0], "password": ROOT[1]})}


def policy(
    resource: str, actions: str = "All", decision: str = "Allow", *sources: str,
    policy_type: str | None = None,
) -> AclInfo:
    """Return the body of a request with one entry; the subject is in the header."""
    return AclInfo(None, [PolicyInfo(policy_type, [PolicyEntryInfo(
        resource, actions.split(","), list(sources) or None, decision)])])


def ask_fields(
    box: KernelBox, keys: tuple[str, str] | None, code: int, fields: Mapping[str, str],
    body: bytes = b"", peer: Peer | None = None,
) -> RemotingCommand:
    """Send a request with these fields, signed with these keys, if any."""
    extra = dict(fields)
    if keys is not None:
        extra["AccessKey"] = keys[0]
        extra["Signature"] = signature_of(request_content(extra, body, VERSION), keys[1])
    if peer is None:
        peer = box.peer()
        peer.remote_address = "127.0.0.1:50000"
    reply = box.send(peer, code, None, body, extra_fields=extra)
    assert reply is not None, "the reply waits"
    return reply


class AuthTestCase(SynchronousTestCase):
    """A test with a broker that has the super user root and the normal user alice."""

    settings: Mapping[str, str] = SETTINGS
    plugins: Sequence[tuple[str, object]] = ()

    def setUp(self) -> None:
        self.box = self.start()
        self.add_user(*ALICE)

    def start(self, disk: Any = None, **settings: str) -> KernelBox:
        """Start a broker with these plugins and settings."""
        box = KernelBox([("auth", auth.Plugin), ("admin", admin.Plugin), *self.plugins],
                        {**self.settings, **settings}, **({} if disk is None else {"disk": disk}))
        self.addCleanup(box.stop)
        return box

    def ask(
        self, keys: tuple[str, str] | None, code: int, header: CommandHeader | None = None,
        body: bytes = b"", *, peer: Peer | None = None,
    ) -> RemotingCommand:
        """Send a request that is signed with these keys, if any."""
        return self.ask_fields(keys, code, ext_fields_of(header) if header else {}, body, peer=peer)

    def ask_fields(
        self, keys: tuple[str, str] | None, code: int, fields: Mapping[str, str],
        body: bytes = b"", *, peer: Peer | None = None,
    ) -> RemotingCommand:
        """Send a request with these fields, even if the header of its code does not have them."""
        return ask_fields(self.box, keys, code, fields, body, peer)

    def peer(self, address: str = "127.0.0.1:50000") -> Peer:
        """Return a connection from an address."""
        peer = self.box.peer()
        peer.remote_address = address
        return peer

    def add_user(self, name: str, password: str, user_type: str = "Normal") -> None:
        """Create a user."""
        self.accepted(self.ask(ROOT, 3001, UserRequestHeader(username=name),
                               UserInfo(password=password, user_type=user_type).encode()))

    def add_policy(self, name: str, acl: AclInfo) -> None:
        """Add entries to a user's policies."""
        self.accepted(self.ask(ROOT, 3006, AclRequestHeader(subject=f"User:{name}"), acl.encode()))

    def accepted(self, reply: RemotingCommand) -> bytes:
        """Return the body of a reply, which must be a success."""
        self.assertEqual((reply.code, reply.remark), (0, None))
        return reply.body

    def refused(self, reply: RemotingCommand, text: str, code: int = 16) -> None:
        """Check the code and the text of a refusal."""
        self.assertEqual((reply.code, reply.remark), (code, text))
