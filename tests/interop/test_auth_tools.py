"""ACL 2.0 compared with Apache's brokers: mqadmin's twelve commands, and copies of tables."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from tests.interop.clients import JavaTestCase
from tests.interop.mqadmin import mqadmin
from tests.interop.peer import Peer
from tests.interop.servers import servers

ADMIN: Final = ("admin", "secret-of-admin")
_USER: Final = '{"username":"admin","password":"secret-of-admin"}'
_INNER: Final = '{"accessKey":"inner","secretKey":"secret-of-inner"}'
OURS: Final = ("authenticationEnabled=true", "authorizationEnabled=true",
               f"initAuthenticationUser={_USER}", "brokerName=broker-peer",
               f"innerClientAuthenticationCredentials={_INNER}")
_AUTH: Final = "org.apache.rocketmq.auth"
THEIRS: Final[Mapping[str, str]] = {
    "authenticationEnabled": "true", "authorizationEnabled": "true",
    "initAuthenticationUser": _USER, "innerClientAuthenticationCredentials": _INNER,
    "authenticationProvider":
        f"{_AUTH}.authentication.provider.DefaultAuthenticationProvider",
    "authenticationMetadataProvider":
        f"{_AUTH}.authentication.provider.LocalAuthenticationMetadataProvider",
    "authorizationProvider": f"{_AUTH}.authorization.provider.DefaultAuthorizationProvider",
    "authorizationMetadataProvider":
        f"{_AUTH}.authorization.provider.LocalAuthorizationMetadataProvider",
}
_ENTRY: Final = "-b {0} -s User:shop -r"
#: What is typed, in this order, with the address of the broker.
COMMANDS: Final = (
    "createUser -b {0} -u shop -p secret-of-shop",
    "createUser -b {0} -u shop -p secret-of-other",
    "createUser -c DefaultCluster -u billing -p secret-of-billing -t Super",
    "getUser -b {0} -u shop", "getUser -b {0} -u nobody", "getUser -c DefaultCluster -u billing",
    "updateUser -b {0} -u shop -s disable", "getUser -b {0} -u shop",
    "updateUser -c DefaultCluster -u shop -s enable",
    "updateUser -b {0} -u shop -p secret-that-is-new",
    "updateUser -b {0} -u shop -t Super", "updateUser -b {0} -u shop -t Normal",
    "updateUser -b {0} -u nobody -p secret-of-nobody",
    "listUser -b {0} -f shop", "listUser -c DefaultCluster -f shop", "listUser -b {0} -f nobody",
    f"createAcl {_ENTRY} Topic:a -a Pub,Sub -i 10.0.0.0/8 -d Allow",
    f"createAcl {_ENTRY} Group:g* -a sub -d Deny",
    "createAcl -b {0} -s User:nobody -r Topic:a -a Pub -d Allow",
    f"createAcl {_ENTRY} Topic:a -a Pub -d Perhaps",
    f"createAcl {_ENTRY} Topic:a -a Fly -d Allow",
    f"createAcl {_ENTRY} Topic:a -a Pub -i 10.0.0.300 -d Allow",
    "getAcl -b {0} -s User:shop",
    "updateAcl -c DefaultCluster -s User:shop -r Topic:a -a All -d Deny",
    "getAcl -c DefaultCluster -s User:shop", "getAcl -b {0} -s User:nobody",
    "listAcl -b {0} -s shop", "listAcl -b {0} -r Topic:a", "listAcl -b {0} -s nobody",
    f"deleteAcl {_ENTRY} Topic:a", "getAcl -b {0} -s User:shop",
    "deleteAcl -c DefaultCluster -s User:shop", "getAcl -b {0} -s User:shop",
    "deleteUser -b {0} -u shop", "deleteUser -b {0} -u shop", "listUser -b {0} -f shop",
)


def without_places(text: str) -> str:
    """Return an output without addresses, and without lines of Java's stacks."""
    lines = [line for line in text.splitlines() if not re.match(r"\s+(at |\.\.\. )", line)]
    return re.sub(r"[\w.]+:\d{4,5}", "ADDRESS", "\n".join(lines))


class ToolTests(JavaTestCase):
    """Both brokers, with the tool of the same version."""

    def peer(self) -> Peer:
        """Start Apache's servers with users."""
        return self.start_apache(settings=dict(THEIRS))

    def outputs(self, namesrv: str, port: int) -> dict[str, str]:
        """Type the commands; :returns: the output of each, with its number."""
        typed = [command.format(f"127.0.0.1:{port}") for command in COMMANDS]
        printed = mqadmin(namesrv, typed, version=self.version, keys=ADMIN)
        return {f"{number} {command}": without_places(text) for number, (command, text)
                in enumerate(zip(COMMANDS, printed, strict=True))}

    def test_all_commands_print_the_same(self) -> None:
        """Tables, and the texts of refusals, are compared."""
        with servers(self.folder / "ours", *OURS) as running:
            ours = self.outputs(running.namesrv, running.broker_port)
        peer = self.peer()
        theirs = self.outputs(peer.namesrv_address, peer.broker_port)
        self.assertEqual({name: text for name, text in ours.items() if text != theirs[name]},
                         {name: theirs[name] for name, text in ours.items()
                          if text != theirs[name]})
        self.assertIn("success", theirs[f"0 {COMMANDS[0]}"])

    def test_users_and_policies_are_copied_there_and_back(self) -> None:
        """After that, the same password is right at both brokers."""
        peer = self.peer()
        with servers(self.folder / "ours", *OURS) as running:
            here, there = (f"127.0.0.1:{running.broker_port}", f"127.0.0.1:{peer.broker_port}")
            mqadmin(peer.namesrv_address, [
                f"createUser -b {there} -u shop -p secret-of-shop",
                f"createAcl -b {there} -s User:shop -r Cluster:* -a Get -d Allow",
                f"copyUser -f {there} -t {here} -u shop",
                f"copyAcl -f {there} -t {here} -s User:shop",
            ], version=self.version, keys=ADMIN)
            shop = ("shop", "secret-of-shop")
            [listed] = mqadmin(running.namesrv, [f"getUser -b {here} -u shop"],
                               version=self.version, keys=shop)
            self.assertRegex(listed, r"shop +\*{6} +Normal +enable")
            printed = mqadmin(running.namesrv, [
                f"createUser -b {here} -u billing -p secret-of-billing",
                f"createAcl -b {here} -s User:billing -r Cluster:* -a Get -d Allow",
                f"copyUser -f {here} -t {there}", f"copyAcl -f {here} -t {there}",
            ], version=self.version, keys=ADMIN)
            self.assertIn("copy user of billing", printed[2])
            self.assertIn("copy acl of User:billing", printed[3])
            [listed] = mqadmin(peer.namesrv_address, [f"getAcl -b {there} -s User:billing"],
                               version=self.version, keys=("billing", "secret-of-billing"))
            self.assertRegex(listed, r"User:billing +Custom +Cluster:\* +\[Get\]")


class NewerToolTests(ToolTests):
    """The same with 5.5.0."""

    version = "5.5.0"
