"""Apache's proxy with ACL 2.0 in front of twistmq, from which it reads users and policies."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from twisted.trial.unittest import SkipTest, SynchronousTestCase

from tests.interop import proxy
from tests.interop.clients import HERE, client_home, java_classes, run
from tests.interop.peer import class_path, java_command
from tests.interop.ports import free_port
from tests.interop.proxy import BROKER_SETTINGS, QUICK, Proxy
from tests.interop.servers import servers
from twistmq.client import Client, Credentials
from twistmq.protocol.bodies import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from twistmq.protocol.codes import RequestCode
from twistmq.protocol.headers.auth import AclRequestHeader, UserRequestHeader
from twistmq.protocol.headers.topic import CreateTopicRequestHeader

ROOT: Final = ("root", "secret-of-root")
INNER: Final = ("inner", "secret-of-inner")
TOPIC, GROUP = "ProxyUsers", "ProxyUsers"
USERS: Final = {"shop": [("Topic:ProxyUsers", "Pub")],
                "billing": [("Topic:ProxyUsers", "Sub"), ("Group:ProxyUsers", "Sub")],
                "idle": []}
_INNER: Final = json.dumps({"accessKey": INNER[0], "secretKey": INNER[1]})
OURS: Final = {
    **BROKER_SETTINGS, "authenticationEnabled": "true", "authorizationEnabled": "true",
    "initAuthenticationUser": json.dumps({"username": ROOT[0], "password": ROOT[1]}),
    "innerClientAuthenticationCredentials": _INNER}
_AUTH: Final = "org.apache.rocketmq.auth"
#: The proxy signs its own requests with the inner user, and asks a broker for other users.
THEIRS: Final = {
    **QUICK, "authenticationEnabled": True, "authorizationEnabled": True,
    "authenticationProvider": f"{_AUTH}.authentication.provider.DefaultAuthenticationProvider",
    "authenticationMetadataProvider":
        "org.apache.rocketmq.proxy.auth.ProxyAuthenticationMetadataProvider",
    "authorizationProvider": f"{_AUTH}.authorization.provider.DefaultAuthorizationProvider",
    "authorizationMetadataProvider":
        "org.apache.rocketmq.proxy.auth.ProxyAuthorizationMetadataProvider",
    "innerClientAuthenticationCredentials": _INNER, "enableAclRpcHookForClusterMode": True}


def make_users(namesrv: str, broker: str) -> None:
    """Make the topic, the group, and the users."""
    with Client(namesrv, credentials=Credentials(*ROOT), timeout_s=60) as root:
        root.ask(broker, RequestCode.UPDATE_AND_CREATE_TOPIC, CreateTopicRequestHeader(
            topic=TOPIC, default_topic="TBW102", read_queue_nums=4, write_queue_nums=4, perm=6,
            topic_filter_type="SINGLE_TAG", attributes="+message.type=NORMAL"))
        root.ask(broker, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None,
                 json.dumps({"groupName": GROUP}).encode())
        for name, policies in USERS.items():
            root.ask(broker, RequestCode.AUTH_CREATE_USER, UserRequestHeader(username=name),
                     UserInfo(password=f"secret-of-{name}").encode())
            for resource, action in policies:
                root.ask(broker, RequestCode.AUTH_CREATE_ACL,
                         AclRequestHeader(subject=f"User:{name}"), AclInfo(None, [PolicyInfo(
                             None, [PolicyEntryInfo(resource, [action], None, "Allow")])]).encode())


class ProxyTests(SynchronousTestCase):
    """The proxy 5.3.3, and the Java client 5.1.0."""

    def setUp(self) -> None:
        reason = proxy.programs_missing()
        if reason:
            raise SkipTest(reason)
        self.folder = Path(tempfile.mkdtemp(prefix="twistmq-proxy-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def outcomes(self, endpoints: str, *users: tuple[str, str]) -> list[dict[str, str]]:
        """Run the client as some users; :returns: the results of its attempts for each."""
        version, modules = proxy.JAVA_CLIENT_VERSION, proxy.JAVA_CLIENT
        classes = java_classes(version, HERE / "proxy_auth_java", "ProxyUsers", modules)
        with client_home() as home:
            command = java_command(home, [str(classes), class_path(version, modules)])
            printed = run([*command, "ProxyUsers", endpoints, TOPIC, GROUP,
                           *["=".join(user) for user in users]], 400, cwd=home)
        found: list[dict[str, str]] = [{} for _ in users]
        for number, what, outcome in re.findall(r"(?m)^(\d) (\w+) (.*)$", printed):
            found[int(number)][what] = re.sub(r"request-id=[\w-]+, ", "", outcome)
        return found

    def test_clients_have_the_rights_of_their_users(self) -> None:
        """The proxy asks with 3004 and 3009, signed as the inner user."""
        with ExitStack() as stack:
            running = stack.enter_context(servers(
                self.folder / "ours", *[f"{name}={value}" for name, value in OURS.items()],
                "brokerIP1=127.0.0.1", "log.level=debug"))
            make_users(running.namesrv, f"127.0.0.1:{running.broker_port}")
            front = Proxy(self.folder / "proxy", running.namesrv, free_port(), free_port(),
                          dict(THEIRS))
            stack.callback(front.stop)
            front.start()
            shop, billing, evil, idle, nobody, unsigned = self.outcomes(
                f"127.0.0.1:{front.port}", *[(name, f"secret-of-{name}") for name in USERS][:2],
                ("shop", "secret-of-evil"), ("idle", "secret-of-idle"),
                ("nobody", "secret-of-nobody"), ("-", ""))
            log = running.log()
        self.assertEqual(shop["send"], "ok")
        self.assertEqual(billing["receive"], "got shop")
        # The client asks again and again for a route that it may not have, so no text is left.
        self.assertTrue(billing["send"].startswith("refused "), billing)
        self.assertTrue(shop["receive"].startswith("refused "), shop)
        for user, text in ((evil, "check signature failed."),
                           (idle, "User:idle has no permission to access Topic:ProxyUsers from "
                                  "127.0.0.1, no matched policies."),
                           (nobody, "User:nobody is not found."),
                           (unsigned, "username cannot be null.")):
            self.assertEqual(user, dict.fromkeys(
                ("send", "receive"), f"refused [response-code=40100] {text}"))
        # The broker let the inner user in every time, and no client came to it by itself.
        self.assertNotIn("access denied", log)
