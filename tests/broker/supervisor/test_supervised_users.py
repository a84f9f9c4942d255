"""Several brokers of one command with ACL 2.0, as real processes."""

from __future__ import annotations

import os
import signal
from unittest import mock

from tests.broker.supervisor.test_supervisor import SupervisorTestCase, broker_processes, until
from tests.tools.test_command_line import TWISTMQ, call
from twistmq.client import Credentials, Message, Producer, SendFailed

SETTINGS = ("authenticationEnabled=true", "authorizationEnabled=true",
            'initAuthenticationUser={"username":"root","password":"secret-of-root"}',
            'innerClientAuthenticationCredentials={"accessKey":"inner",'
            '"secretKey":"secret-of-inner"}')


class SupervisedUserTests(SupervisorTestCase):
    """``twistmq up --brokers 2`` with users."""

    def admin(self, *words: str) -> str:
        """Run a command as the super user; :returns: its output."""
        with mock.patch.dict(os.environ, {"ROCKETMQ_ACCESS_KEY": "root",
                                          "ROCKETMQ_SECRET_KEY": "secret-of-root"}):
            status, out, err = call("admin", words[0], "-n", self.namesrv, *words[1:])
        self.assertEqual((status, err), (0, ""))
        return out

    def test_each_broker_has_the_users_also_after_a_kill(self) -> None:
        """A command for the cluster reaches both; a broker that is back refuses strangers still."""
        seen = self.start(*TWISTMQ, settings=SETTINGS)
        cluster = ("-c", "DefaultCluster")
        self.admin("updateTopic", *cluster, "-t", "T")
        self.assertEqual(
            self.admin("createUser", *cluster, "-u", "shop", "-p", "secret-of-shop").count("shop"),
            2)
        self.admin("createAcl", *cluster, "-s", "User:shop", "-r", "Topic:T", "-a", "Pub", "-d",
                   "Allow")
        shop = Credentials("shop", "secret-of-shop")
        with Producer(self.namesrv, group="g", credentials=shop) as producer:
            sent = {producer.send("T", b"a").queue.broker_name for _ in range(20)}
            self.assertEqual(sent, {"b-0", "b-1"})
            os.kill(before := broker_processes(self.data)["b-0"], signal.SIGKILL)
            seen += self.read_until(r"boot success")
            until(lambda: broker_processes(self.data).get("b-0") not in (None, before), "b-0 again")
            until(lambda: producer.send("T", b"b").queue.broker_name == "b-0", "sends to b-0")
        for credentials in (None, Credentials("shop", "wrong"), Credentials("nobody", "secret")):
            with Producer(self.namesrv, group="g", credentials=credentials) as producer:
                self.assertRaises(SendFailed, producer.send, Message("T", b"refused"))
        self.assertEqual(self.stop(), 0)
        logs = "".join(path.read_text() for path in self.data.glob("logs/**/*.log"))
        self.assertNotIn("secret-of", seen + logs)
