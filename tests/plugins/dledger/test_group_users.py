"""``twistmq up --group 3`` with ACL 2.0: users and policies survive a change of the master."""

from __future__ import annotations

import contextlib
import os
import signal
from unittest import mock

from tests.broker.supervisor.test_supervised_users import SETTINGS
from tests.broker.supervisor.test_supervisor import SupervisorTestCase, until
from tests.tools.test_command_line import TWISTMQ, call
from twistmq.client import Client, Credentials, Message, Producer, SendFailed
from twistmq.protocol.errors import BrokerError

ROOT = Credentials("root", "secret-of-root")
SHOP = Credentials("shop", "secret-of-shop")


class GroupUserTests(SupervisorTestCase):
    """A group of three processes."""

    def roles(self, client: Client) -> dict[int, str]:
        """The roles of the brokers that answer, by index."""
        roles = {}
        for index in range(3):
            with contextlib.suppress(BrokerError):
                figures = client.runtime_info(f"127.0.0.1:{self.base + 10 * index}")
                roles[index] = figures.get("brokerRole", "")
        return roles

    def masters(self, client: Client) -> list[int]:
        """Return the brokers that are masters now."""
        return [index for index, role in self.roles(client).items() if role == "SYNC_MASTER"]

    def admin(self, *words: str) -> str:
        """Run a command as the super user; :returns: its output."""
        with mock.patch.dict(os.environ, {"ROCKETMQ_ACCESS_KEY": ROOT.access_key,
                                          "ROCKETMQ_SECRET_KEY": ROOT.secret_key}):
            status, out, err = call("admin", words[0], "-n", self.namesrv, *words[1:])
        self.assertEqual((status, err), (0, ""))
        return out

    def test_users_outlive_their_master(self) -> None:
        """A user who was made on the first master has the same rights on the next one."""
        self.launch(*TWISTMQ, count=0, settings=["--group", "3", *SETTINGS])
        seen = self.read_until("Ctrl-C stops")
        with Client(self.namesrv, credentials=ROOT, timeout_s=10) as root:
            until(lambda: len(self.masters(root)) == 1, "a first master")
            [master] = self.masters(root)
            self.admin("updateTopic", "-c", "DefaultCluster", "-t", "T")
            self.admin("createUser", "-c", "DefaultCluster", "-u", "shop", "-p", SHOP.secret_key)
            self.admin("createAcl", "-c", "DefaultCluster", "-s", "User:shop", "-r", "Topic:T",
                       "-a", "Pub", "-d", "Allow")
            for index in range(3):
                saved = self.data / f"store/b-{index}/config/acls.json"
                until(lambda saved=saved: saved.exists() and "shop" in saved.read_text(),
                      f"the policies on broker {index}")
            with Producer(self.namesrv, group="g", credentials=SHOP, await_master=True,
                          timeout_s=30) as producer:
                producer.send("T", b"before")
                os.kill(int((self.data / f"store/b-{master}/abort").read_text()), signal.SIGKILL)
                producer.send("T", b"after")
                self.assertRaises(SendFailed, producer.send, Message("U", b"refused"))
            until(lambda: len(self.masters(root)) == 1 and len(self.roles(root)) == 3,
                  "a next master, and the killed broker again")
        for keys in (None, Credentials("shop", "wrong")):
            with Producer(self.namesrv, group="g", credentials=keys) as producer:
                self.assertRaises(SendFailed, producer.send, Message("T", b"refused"))
        self.assertEqual(self.stop(), 0)
        logs = "".join(path.read_text() for path in self.data.glob("logs/**/*.log"))
        self.assertNotIn("secret-of", seen + logs)
