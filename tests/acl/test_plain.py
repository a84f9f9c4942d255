"""The plugin ``acl``: its activation, the files it reads, and the requests that it refuses."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from typing import Any
from unittest import mock

from twisted.logger import LogLevel, globalLogPublisher, textFileLogObserver
from twisted.trial.unittest import SynchronousTestCase

from tests.acl.box import ADMIN, ALICE, BOB, AclTestCase
from twistmq.acl import plain
from twistmq.acl.requests import CreateAccessConfigRequestHeader
from twistmq.broker.config.setting_rows import broker_rows
from twistmq.broker.config.settings import Settings
from twistmq.broker.errors import SettingsError
from twistmq.broker.supervisor.members import members_of
from twistmq.broker.testing.kernel import KernelBox
from twistmq.broker.testing.raw_client import send_header
from twistmq.protocol.bodies import HeartbeatData
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.headers.transaction import EndTransactionRequestHeader
from twistmq.transaction import plugin as transaction


class StartTests(AclTestCase):
    """The effect of settings and files on a start."""

    def test_without_acl_enable_no_key_is_asked_and_files_are_not_read(self) -> None:
        """Without aclEnable no request needs a key, and the files do not have to be readable."""
        self.plain.write_text("accounts: [")
        self.box = self.start(aclEnable="false")
        self.assertEqual(self.ask(None, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER).code, 0)
        names = [task.name for task in self.box.kernel.periodic_tasks]
        self.assertNotIn("watch the accounts' files", names)

    def test_faulty_file(self) -> None:
        """The broker does not start, and the error names the file."""
        self.plain.write_text("accounts: [{accessKey: abc, secretKey: secret-of-nobody}]\n")
        error = self.assertRaises(SettingsError, self.start)
        self.assertEqual(str(error), f"aclEnable=true: {self.plain}: The accessKey=abc and "
                         "secretKey=****** cannot be null and length should longer than 6")

    def test_asked_for_while_running(self) -> None:
        """A change that the next start would refuse is refused now: with a faulty file, or without
        a plugin.
        """
        self.box = self.start(aclEnable="false")
        text = self.plain.read_text()
        self.plain.write_text("accounts: [")
        self.box.settings.update({"fileReservedTime": "1"})
        error = self.assertRaises(SettingsError, self.box.settings.update, {"aclEnable": "true"})
        self.assertIn(str(self.plain), str(error))
        self.plain.write_text(text)
        self.box.settings.update({"aclEnable": "true"})
        self.assertEqual(self.box.settings.pending(["aclEnable"]), ["aclEnable"])
        bare = KernelBox([])
        self.addCleanup(bare.stop)
        error = self.assertRaises(SettingsError, bare.settings.update, {"aclEnable": "true"})
        self.assertIn("no plugin that is in use", str(error))

    def test_plugin_left_out(self) -> None:
        """A broker that must check requests does not start without a plugin that checks them."""
        error = self.assertRaises(SettingsError, KernelBox, [], {"aclEnable": "true"})
        self.assertIn("aclEnable=true", str(error))

    def test_without_a_file_everything_is_refused(self) -> None:
        """Without accounts every request is refused."""
        self.box = self.start(rocketmqHome=str(self.home / "empty"))
        self.assertEqual(self.ask(ADMIN, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER).code, 1)

    def test_other_plain_file(self) -> None:
        """The setting names another file below the home."""
        self.plain.rename(self.home / "other.yml")
        self.box = self.start(**{"rocketmq.acl.plain.file": "other.yml"})
        self.assertEqual(self.ask(ADMIN, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER).code, 0)

    def test_a_change_of_a_file_holds_after_the_next_look(self) -> None:
        """A changed file takes effect at the next check, and a broken file changes nothing."""
        self.plain.write_text("accounts: [")
        self.look_at_files()
        self.assertEqual(self.ask(ALICE, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER).code, 0)
        self.bobs.write_text(self.bobs.read_text().replace(BOB[1], "new-secret-of-bob"))
        self.look_at_files()
        self.assertEqual(self.ask(BOB, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER).code, 1)
        self.assertEqual(
            self.ask((BOB[0], "new-secret-of-bob"),
                     RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER).code, 0)

    def test_the_files_are_checked_every_five_seconds(self) -> None:
        """The first check also takes place after five seconds."""
        [task] = [task for task in self.box.kernel.periodic_tasks
                  if task.name == "watch the accounts' files"]
        self.assertEqual((task.first_ms, task.period_ms), (5000, 5000))


class HomeTests(SynchronousTestCase):
    """The home in which the accounts are."""

    def home(self, **settings: str) -> str:
        return plain.home_of(Settings.load([*broker_rows(), *plain.Plugin.register_settings()],
                                           overrides=settings))

    def test_home_is_the_setting_then_environment_then_store_parent(self) -> None:
        """The setting comes first, then the environment, then the parent folder of the store."""
        with mock.patch.dict(os.environ):
            os.environ.pop("ROCKETMQ_HOME", None)
            self.assertEqual(self.home(storePathRootDir="/data/store"), "/data")
            os.environ["ROCKETMQ_HOME"] = "/opt/rocketmq"
            self.assertEqual(self.home(storePathRootDir="/data/store"), "/opt/rocketmq")
            self.assertEqual(self.home(rocketmqHome="/home/mq"), "/home/mq")

    def test_brokers_of_one_command_have_one_home(self) -> None:
        """The stores are folders below the store of the command, and they share its home."""
        rows = [*broker_rows(), *plain.Plugin.register_settings()]
        with mock.patch.dict(os.environ):
            os.environ.pop("ROCKETMQ_HOME", None)
            for given, home in (({}, "/data"), ({"rocketmqHome": "/home/mq"}, "/home/mq")):
                given = {"storePathRootDir": "/data/store", **given}
                members = members_of(Settings.load(rows, overrides=given), 2)
                self.assertEqual([self.home(**{**given, **member.values}) for member in members],
                                 [home, home])

    def test_yaml_is_not_imported(self) -> None:
        """A broker without access control does not import the YAML library."""
        program = ("import sys; from twistmq.broker.config.settings import Settings; "
                   "from twistmq.broker.edge.services import load_hooks; "
                   "from twistmq.broker.config.setting_rows import broker_rows; "
                   "from twistmq.acl import plain; load_hooks(Settings.load(broker_rows())); "
                   "raise SystemExit('yaml' in sys.modules)")
        self.assertEqual(subprocess.run([sys.executable, "-c", program], check=False).returncode, 0)


class TransactionTests(AclTestCase):
    """The end of a transaction, whose header is read several times and is of another form."""

    def start(self, **settings: str) -> KernelBox:
        box = KernelBox([("acl", plain.Plugin), ("transaction", transaction.Plugin)],
                        {"rocketmqHome": str(self.home), **self.settings, **settings})
        self.addCleanup(box.stop)
        return box

    def test_an_end_of_a_transaction_is_answered_each_time(self) -> None:
        """Each request gets an answer, however often it is sent."""
        header = EndTransactionRequestHeader(
            producer_group="g", tran_state_table_offset=0, commit_log_offset=0,
            commit_or_rollback=8, msg_id="1")
        for keys, expected in ((None, "accessKey"), ((ALICE[0], "another"), "signature"),
                               (ALICE, "message"), (ALICE, "message")):
            reply = self.ask(keys, RequestCode.END_TRANSACTION, header)
            self.assertEqual(reply.code, ResponseCode.SYSTEM_ERROR)
            self.assertIn(expected, reply.remark or "")


class SecretTests(AclTestCase):
    """Secret keys appear in files and in the answer to 54, and in no other place."""

    def test_logs_and_answers(self) -> None:
        """A round with every kind of fault is run, and all log lines and answers are searched."""
        text = io.StringIO()
        events: list[Any] = []
        for observer in (textFileLogObserver(text), events.append):
            globalLogPublisher.addObserver(observer)
            self.addCleanup(globalLogPublisher.removeObserver, observer)
        answers = []
        header = send_header("hers", 0)
        peers = [self.peer(), self.peer("10.2.2.2:1")]
        for keys in (ADMIN, ALICE, BOB, (ALICE[0], "secret-of-other"), ("nobody-key", ALICE[1])):
            for peer in peers:
                for code in (26, 28, 52, 25, 9999):
                    answers.append(self.ask(keys, code, peer=peer))
                answers.append(self.ask(keys, 310, header, b"x", peer=peer))
                answers.append(self.ask(keys, 34, None, HeartbeatData("c").encode(), peer=peer))
                answers.append(self.ask(keys, 34, None, b"{junk", peer=peer))
                for secret in ("secret-of-carol", "short", "secret-of-\x00"):
                    for more in ({}, {"topic_perms": "x"}, {"white_remote_address": "1.2"}):
                        answers.append(self.ask(keys, 50, CreateAccessConfigRequestHeader(
                            "carol-key", secret, **more), peer=peer))
        for broken in ("accounts: [secret-of-broken", "accounts: [{secretKey: [secret-of-list]}]",
                       "a: *secret-of-alias", "a: 'secret-of-quote: x\n b: c"):
            self.plain.write_text(broken)
            self.look_at_files()
        self.flushLoggedErrors()
        self.assertGreater(len(events), 100, msg="the round is logged")
        self.assertTrue([e for e in events if e["log_level"] is LogLevel.error])
        shown = text.getvalue() + "".join(
            f"{answer.remark} {answer.fields()} {answer.body!r}" for answer in answers)
        shown += "".join(repr(sorted(event.items(), key=str)) for event in events)
        self.assertIn("alice-key", shown)
        self.assertNotIn("secret-of", shown)
