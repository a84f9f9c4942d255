"""A kernel with accounts, and clients that sign, for the tests of this folder."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from twistmq.acl import plain
from twistmq.broker.testing.kernel import KernelBox, Peer
from twistmq.plugins import admin
from twistmq.protocol.command import VERSION, RemotingCommand
from twistmq.protocol.header import CommandHeader, ext_fields_of
from twistmq.protocol.signature import request_content, signature_of

__all__ = ["ADMIN", "ALICE", "BOB", "PREFIX", "AclTestCase"]

#: The beginning of the remarks of refusals.
PREFIX = "org.apache.rocketmq.acl.common.AclException: "
#: The access key and the secret key of an administrator, of an account with few permissions, and of
#: an account in a file of its own.
ADMIN = ("admin-key", "secret-of-admin")
ALICE = ("alice-key", "secret-of-alice")
BOB = ("bob-key", "secret-of-bob")

_PLAIN = """\
accounts:
- accessKey: admin-key
  secretKey: secret-of-admin
  admin: true
- accessKey: alice-key
  secretKey: secret-of-alice
  whiteRemoteAddress: 10.1.1.1
  defaultTopicPerm: DENY
  defaultGroupPerm: SUB
  topicPerms: [hers=PUB|SUB, read=SUB, write=PUB]
  groupPerms: [not-hers=DENY]
globalWhiteRemoteAddresses: [10.2.2.*]
dataVersion: [{counter: 3, timestamp: 1600000000000}]
"""
_BOB = "accounts: [{accessKey: bob-key, secretKey: secret-of-bob}]\n"


class AclTestCase(SynchronousTestCase):
    """A test with a broker whose accounts are in a separate folder."""

    settings: Mapping[str, str] = {"aclEnable": "true"}
    #: The plugins that run together with those of access control and administration.
    plugins: Sequence[tuple[str, object]] = ()
    accounts = _PLAIN

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="twistmq-")
        self.addCleanup(folder.cleanup)
        self.home = Path(folder.name)
        (self.home / "conf/acl").mkdir(parents=True)
        self.plain = self.home / "conf/plain_acl.yml"
        self.plain.write_text(self.accounts)
        self.bobs = self.home / "conf/acl/bob.yml"
        self.bobs.write_text(_BOB)
        self.box = self.start()

    def start(self, **settings: str) -> KernelBox:
        """Start a broker that reads the accounts of the folder."""
        box = KernelBox([("acl", plain.Plugin), ("admin", admin.Plugin), *self.plugins],
                        {"rocketmqHome": str(self.home), **self.settings, **settings})
        self.addCleanup(box.stop)
        return box

    def peer(self, address: str = "127.0.0.1:50000") -> Peer:
        """Return a connection from an address."""
        peer = self.box.peer()
        peer.remote_address = address
        return peer

    def ask(
        self, keys: tuple[str, str] | None, code: int, header: CommandHeader | None = None,
        body: bytes = b"", *, peer: Peer | None = None, signed_body: bytes | None = None,
    ) -> RemotingCommand:
        """Send a request that is signed with these keys, if any.

        :param signed_body: None: the body.
        """
        fields = ext_fields_of(header) if header else {}
        return self.ask_fields(keys, code, fields, body, peer=peer, signed_body=signed_body)

    def ask_fields(
        self, keys: tuple[str, str] | None, code: int, fields: Mapping[str, str],
        body: bytes = b"", *, peer: Peer | None = None, signed_body: bytes | None = None,
    ) -> RemotingCommand:
        """Send a request with these fields, even if the header of its code does not have them."""
        extra = dict(fields)
        if keys is not None:
            extra["AccessKey"] = keys[0]
            content = request_content(extra, body if signed_body is None else signed_body, VERSION)
            extra["Signature"] = signature_of(content, keys[1])
        reply = self.box.send(peer or self.peer(), code, None, body, extra_fields=extra)
        assert reply is not None, "the reply waits"
        return reply

    def look_at_files(self) -> None:
        """Let the time pass until the files are checked again."""
        [task] = [task for task in self.box.kernel.periodic_tasks if "accounts" in task.name]
        task.run(self.box.now_ms)
