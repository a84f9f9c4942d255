"""Our broker and Apache's with ACL 2.0 and the same super user."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from tests.interop.acl_servers import BROKER_NAME, Broker
from tests.interop.auth_matrix import ROOT
from tests.interop.peer import Peer
from tests.interop.servers import free_port, servers

__all__ = ["APACHE", "SETTINGS", "apache_broker", "our_broker"]

SETTINGS: Final = {
    "authenticationEnabled": "true", "authorizationEnabled": "true", "brokerName": BROKER_NAME,
    "initAuthenticationUser": json.dumps({"username": ROOT[0], "password": ROOT[1]}),
    "innerClientAuthenticationCredentials": json.dumps(
        {"accessKey": ROOT[0], "secretKey": ROOT[1]})}
_AUTH: Final = "org.apache.rocketmq.auth"
#: The classes that Apache's broker does not use unless they are named.
APACHE: Final = {
    "authenticationProvider": f"{_AUTH}.authentication.provider.DefaultAuthenticationProvider",
    "authenticationMetadataProvider":
        f"{_AUTH}.authentication.provider.LocalAuthenticationMetadataProvider",
    "authorizationProvider": f"{_AUTH}.authorization.provider.DefaultAuthorizationProvider",
    "authorizationMetadataProvider":
        f"{_AUTH}.authorization.provider.LocalAuthorizationMetadataProvider"}


def apache_broker(folder: Path, stack: ExitStack, version: str) -> Broker:
    """Start Apache's broker of a version."""
    peer = Peer(folder / f"apache-{version}", version, free_port(), free_port(), "512m",
                settings={**SETTINGS, **APACHE})
    stack.callback(peer.stop, kill=True)
    peer.start()
    return Broker(peer.namesrv_address, peer.broker_port, peer.home)


def our_broker(folder: Path, stack: ExitStack) -> Broker:
    """Start our broker."""
    home = folder / "ours"
    running = stack.enter_context(servers(
        home, *[f"{name}={value}" for name, value in SETTINGS.items()], "brokerIP1=127.0.0.1"))
    return Broker(running.namesrv, running.broker_port, home, running)
