"""Our broker and Apache's with the same accounts, and raw requests that are signed or not."""

from __future__ import annotations

import re
import socket
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.interop.peer import Peer
from tests.interop.servers import Servers, free_port, servers
from twistmq.protocol.command import RemotingCommand, decode_command, encode_request
from twistmq.protocol.frame import FrameDecoder
from twistmq.protocol.signature import request_content, signature_of

__all__ = ["ACCOUNTS", "ADMIN", "ALICE", "BOB", "BROKER_NAME", "Broker", "both_brokers",
           "our_broker", "signed", "without_place"]

BROKER_NAME: Final = "broker-a"
#: Access key and secret key: of an administrator, of one who may do a little, and of one who may
#: do what any client does.
ADMIN: Final = ("admin-key", "secret-of-admin")
ALICE: Final = ("alice-key", "secret-of-alice")
BOB: Final = ("bob-key", "secret-of-bob")
ACCOUNTS: Final = """\
globalWhiteRemoteAddresses: [10.10.103.*]
accounts:
- accessKey: admin-key
  secretKey: secret-of-admin
  admin: true
- accessKey: alice-key
  secretKey: secret-of-alice
  whiteRemoteAddress:
  admin: false
  defaultTopicPerm: DENY
  defaultGroupPerm: SUB
  topicPerms:
  - AliceTopic=PUB|SUB
  - WriteTopic=PUB
  - ReadTopic=SUB
  - NoTopic=DENY
  groupPerms:
  - BobGroup=DENY
- accessKey: bob-key
  secretKey: secret-of-bob
  defaultTopicPerm: PUB|SUB
  defaultGroupPerm: PUB|SUB
dataVersion:
- counter: 3
  timestamp: 1700000000000
"""
#: The line of Java that Apache's broker adds.
_PLACE: Final = re.compile(r", [\w.]+\([A-Za-z]+\.java:\d+\)")


def without_place(text: str) -> str:
    """Return a remark of a broker, without its place in Java's code."""
    return _PLACE.sub("", text)


def signed(
    keys: tuple[str, str] | None, fields: dict[str, str], body: bytes, version: int
) -> dict[str, str]:
    """Return the fields with those that the signature adds."""
    if keys is None:
        return fields
    fields = {**fields, "AccessKey": keys[0]}
    return {**fields, "Signature": signature_of(request_content(fields, body, version), keys[1])}


@dataclass
class Broker:
    """A running broker, as its clients know it."""

    namesrv: str
    port: int
    #: Its home: the accounts are in ``conf`` there.
    home: Path
    #: Of ours.
    servers: Servers | None = None
    replies: list[RemotingCommand] = field(default_factory=list)

    @property
    def accounts(self) -> Path:
        return self.home / "conf" / "plain_acl.yml"

    def ask(self, code: int, fields: dict[str, str], body: bytes = b"") -> RemotingCommand:
        """Send a request as it is; :returns: the reply, which is kept as well."""
        with socket.create_connection(("127.0.0.1", self.port), 30) as connection:
            connection.sendall(encode_request(code, 1, None, body, extra_fields=fields))
            decoder = FrameDecoder()
            while True:
                data = connection.recv(65536)
                assert data, f"the connection was closed by code {code}"
                for command in map(decode_command, decoder.feed(data)):
                    if command.is_response:
                        self.replies.append(command)
                        return command


def _home(folder: Path, name: str) -> Path:
    home = folder / name
    (home / "conf").mkdir(parents=True)
    (home / "conf" / "plain_acl.yml").write_text(ACCOUNTS)
    return home


def our_broker(folder: Path, stack: ExitStack) -> Broker:
    """Start ours, which logs all it can."""
    home = _home(folder, "ours")
    running = stack.enter_context(servers(
        home, "aclEnable=true", f"brokerName={BROKER_NAME}", "log.level=debug",
        "brokerIP1=127.0.0.1"))
    return Broker(running.namesrv, running.broker_port, home, running)


def both_brokers(folder: Path, stack: ExitStack, version: str = "4.9.4") -> tuple[Broker, Broker]:
    """Start Apache's broker of a version, and ours."""
    peer = Peer(_home(folder, "apache"), version, free_port(), free_port(), "512m", settings={
        "aclEnable": "true", "brokerName": BROKER_NAME})
    stack.callback(peer.stop, kill=True)
    peer.start()
    return (Broker(peer.namesrv_address, peer.broker_port, peer.home),
            our_broker(folder, stack))
