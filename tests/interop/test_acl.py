"""Access control: other people's clients that sign, and answers like those of Apache's broker."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final

import yaml
from twisted.trial.unittest import SkipTest

from tests.interop import clients
from tests.interop.acl_questions import answers
from tests.interop.acl_servers import (
    ADMIN,
    ALICE,
    BOB,
    BROKER_NAME,
    Broker,
    both_brokers,
    our_broker,
    signed,
    without_place,
)
from tests.interop.clients import HERE, JavaTestCase, java_classes, java_missing
from tests.interop.console_login import check_logins
from tests.interop.kept import at_once, kept
from tests.interop.mqadmin import mqadmin
from tests.interop.peer import class_path, java_command
from tests.interop.servers import wait_until
from twistmq.protocol.codes import RequestCode

#: What is answered otherwise than by 4.9.4, and why.
DIFFERENT: Final = {
    "batch": "4.9.4 lets batches into every topic; 5.2.0 does not",
    "LITE_PULL_MESSAGE of AliceTopic for BobGroup": "11 and 361 read alike",
    "LITE_PULL_MESSAGE of WriteTopic for OtherGroup": "11 and 361 read alike",
    "LITE_PULL_MESSAGE of OtherTopic for OtherGroup": "11 and 361 read alike",
    "LITE_PULL_MESSAGE of RMQ_SYS_TRACE_TOPIC for OtherGroup": "11 and 361 read alike",
    "send to the retry topic of BobGroup as another": "the topic's own group counts",
    "query by unique key": "4.9.4 leaves the flag out that its own client signs",
    "accounts by Alice": "secret keys are for administrators",
    "versions by Alice": "the paths of the host's files are for administrators",
    "as the new account": "lists of all topics are for administrators",
    "short key": "the remark does not tell the secret key",
    "faulty white addresses": "what cannot be read again is not written",
}
#: Of 5.2.0: it has no 54, tells an explicit DENY apart, and has other words here and there.
WORDS_OF_5: Final = ((re.compile("No permission for"), "No default permission for"),
                     (re.compile("NetAddress"), "Netaddress"),
                     (re.compile("netAddress"), "netaddress"),
                     (re.compile("The accessKey\\["), "The accesskey["))
DIFFERENT_FROM_5: Final = {
    "topicPerms=": "5.2.0 takes it for no permissions, 4.9.4 for one that is none",
    **{name: why for name, why in DIFFERENT.items()
       if name not in ("batch", "query by unique key")},
}

#: The commands of mqadmin 4.9.4 about accounts; {0} is the broker.
COMMANDS: Final = (
    "getAclConfig -b {0}", "clusterAclConfigVersion -b {0}",
    "updateAclConfig -b {0} -a carol-key -s secret-of-carol -i SUB -u DENY -t a=PUB,b=PUB|SUB "
    "-g g=SUB -w 10.0.0.* -m false",
    "getAclConfig -b {0}",
    "updateAclConfig -b {0} -a alice-key -s secret-of-alice -i PUB",
    "updateAclConfig -b {0} -a dave -s secret-of-dave",
    "updateAclConfig -b {0} -a dave-key -s secret-of-dave -t a=ANY",
    "updateGlobalWhiteAddr -b {0} -g 10.0.0.1,10.0.1.*",
    "updateGlobalWhiteAddr -b {0} -g 10.0.0.1 -p /nowhere.yml",
    "deleteAclConfig -b {0} -a bob-key", "deleteAclConfig -b {0} -a nobody-key",
    "updateAclConfig -c DefaultCluster -a erin-key -s secret-of-erin -m true",
    "deleteAclConfig -c DefaultCluster -a erin-key",
    "getAclConfig -c DefaultCluster", "clusterAclConfigVersion -c DefaultCluster",
)
_VOLATILE: Final = (
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"), "<time>"),
    (re.compile(r"127\.0\.0\.1:\d+"), "<address>"),
    (re.compile(r"/\S+/conf/"), "<conf>/"),
    # Where in Java a command failed, and the object a command prints.
    (re.compile(r"^\s+at .*\n", re.MULTILINE), ""), (re.compile(r"@[0-9a-f]+\b"), "@<object>"),
    (re.compile(r"secretKey=\*{6}"), "secretKey=secret-of-dave"), (re.compile(r" {2,}"), "  "),
)


def steady(text: str) -> str:
    """Return the output of a command, without the parts that differ between runs."""
    text = without_place(text)
    for pattern, name in _VOLATILE:
        text = pattern.sub(name, text)
    return text


class AclTestCase(JavaTestCase):
    """A test with brokers that have ``ACCOUNTS``."""

    version = "4.9.4"

    def stack(self) -> ExitStack:
        """Return a stack of brokers of this test, whose accounts it may change."""
        stack = ExitStack()
        self.addCleanup(stack.close)
        return stack

    @staticmethod
    def log(broker: Broker) -> str:
        assert broker.servers is not None
        return broker.servers.log()


def java_rounds(folder: Path, stack: ExitStack) -> dict[str, Future[str]]:
    """The round of each version of the Java client with our broker."""
    broker = our_broker(folder, stack)
    return at_once(stack, {version: partial(
        clients.java_round, version, "phase1", broker.namesrv, folder / version, keys=BOB)
        for version in clients.JAVA_VERSIONS})


class ClientTests(AclTestCase):
    """Clients that sign do everything they do without access control, as no administrator."""

    def java(self, version: str) -> None:
        reason = java_missing(version)
        if reason:
            raise SkipTest(reason)
        self.assertRegex(kept(self, java_rounds)[version].result(), r"ok \d{3,} checks")

    def test_java_client_5(self) -> None:
        """The client is version 5.3.3."""
        self.java("5.3.3")

    def long_java_client_5_with_binary_headers(self) -> None:
        """The same with ROCKETMQ headers: the same fields are signed."""
        output = clients.java_round(
            "5.3.3", "phase1", kept(self, our_broker).namesrv, self.folder / "state",
            serialize_type="ROCKETMQ", keys=BOB)
        self.assertRegex(output, r"ok \d{3,} checks")

    def test_java_client_4(self) -> None:
        """The client is version 4.9.4."""
        self.java("4.9.4")

    def test_go_client(self) -> None:
        """The Go client is used."""
        reason = clients.go_missing()
        if reason:
            raise SkipTest(reason)
        output = clients.go_round(kept(self, our_broker).namesrv, keys=BOB)
        self.assertRegex(output, r"ok \d{3,} checks")

    def test_python_client(self) -> None:
        """PyPI's rocketmq 0.4.4, a C++ client, is used."""
        reason = clients.python_client_missing()
        if reason:
            raise SkipTest(reason)
        output = clients.python_client_round(kept(self, our_broker).namesrv, keys=BOB)
        self.assertRegex(output, r"ok \d{3,} checks")

    def refused(self, client_round: Callable[..., str]) -> None:
        """Check that a client with a wrong secret key fails, with the reason in the
        broker's log.
        """
        broker = kept(self, our_broker)
        before = len(self.log(broker))
        wrong = (BOB[0], "secret-of-nobody")
        self.assertRaises(clients.RoundError, client_round, broker.namesrv, keys=wrong)
        self.assertIn(f"Check signature failed for accessKey={BOB[0]}", self.log(broker)[before:])

    def test_go_client_with_a_wrong_key(self) -> None:
        """The Go client's first send fails."""
        reason = clients.go_missing()
        if reason:
            raise SkipTest(reason)
        self.refused(clients.go_round)

    def test_python_client_with_a_wrong_key(self) -> None:
        """The C++ client's first send fails."""
        reason = clients.python_client_missing()
        if reason:
            raise SkipTest(reason)
        self.refused(clients.python_client_round)


class AnswerTests(AclTestCase):
    """Both brokers have the same accounts and get the same requests."""

    def compare(self, brokers: tuple[Broker, Broker], different: dict[str, str]) -> None:
        theirs, ours = ({name: (code, self.words(remark)) for name, (code, remark)
                         in answers(broker).items()} for broker in brokers)
        found = {name for name in theirs if theirs[name] != ours[name]}
        self.assertEqual(found, set(different), "\n".join(
            f"{name}\n  Apache {theirs[name]}\n  ours   {ours[name]}"
            for name in found ^ set(different)))
        self.assertGreater(sum(code == 1 for code, _ in ours.values()), 30)

    def words(self, remark: str) -> str:
        remark = without_place(remark)
        for pattern, word in WORDS_OF_5 if self.version >= "5" else ():
            remark = pattern.sub(word, remark)
        return remark

    def test_answers_of_4(self) -> None:
        """Code and remark of Apache's 4.9.4, but where that lets too much pass."""
        self.compare(kept(self, both_brokers), DIFFERENT)

    def test_logins_of_the_console(self) -> None:
        """Each of the two brokers accepts only the right keys of an account."""
        for broker in kept(self, both_brokers):
            check_logins(self, broker.namesrv, ALICE)

    def long_answers_of_5(self) -> None:
        """Code and remark of Apache's 5.2.0, the last with these accounts."""
        self.version = "5.2.0"
        self.compare(both_brokers(self.folder, self.stack(), self.version), DIFFERENT_FROM_5)

    def calls(self, brokers: tuple[Broker, Broker], version: str) -> list[list[str]]:
        """The results of the Java client's calls to each broker."""
        classes = java_classes(version, HERE / "acl_java")
        with tempfile.TemporaryDirectory(prefix="client-home-") as home:
            command = java_command(Path(home), [str(classes), class_path(version)])
            output = clients.run(
                [*command, "AclCalls", BROKER_NAME, *[broker.namesrv for broker in brokers]],
                clients.ROUND_TIMEOUT)
        marks = [f"CALL\t{broker.namesrv}\t" for broker in brokers]
        return [[steady(line.removeprefix(mark)) for line in output.splitlines()
                 if line.startswith(mark)] for mark in marks]

    def test_what_java_clients_see(self) -> None:
        """Clients 4.9.4 and 5.3.3 get the same results from both brokers, call by call."""
        reason = java_missing("5.3.3")
        if reason:
            raise SkipTest(reason)
        for version in ("4.9.4", "5.3.3"):
            theirs, mine = self.calls(kept(self, both_brokers), version)
            self.assertEqual(mine, theirs)
            self.assertEqual(len(mine), 12)
            self.assertEqual([line.split("\t")[0] for line in mine if line.split("\t")[1] == "0"],
                             ["signed", "administrator", "write only", "pull"])

    def test_secret_keys_stay_secret(self) -> None:
        """Only an administrator who asks for all accounts gets the keys; no log has them."""
        broker = our_broker(self.folder, self.stack())
        answers(broker)
        reply = broker.ask(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
                           signed(BOB, {}, b"", 479))
        self.assertEqual(reply.code, 0)
        broken = broker.accounts.read_text() + "- secret-of-broken: [secret-of-broken\n"
        broker.accounts.write_text(broken)
        assert broker.servers is not None
        wait_until("the broken file is noticed", lambda: "cannot be used" in self.log(broker))
        self.assertEqual(broker.ask(305, signed(ALICE, {}, b"", 479)).code, 0)
        log = self.log(broker)
        self.assertIn("alice-key", log)
        self.assertNotIn("secret-of", log)
        for reply in broker.replies:
            self.assertNotIn("secret-of", f"{reply.remark} {reply.fields()} {reply.body!r}")
        accounts = broker.ask(54, signed(ADMIN, {}, b"", 479)).body
        self.assertIn(b"secret-of-alice", accounts, msg="what is looked for is there to be found")


class MqadminTests(AclTestCase):
    """mqadmin 4.9.4 changes and shows accounts."""

    def test_same_output(self) -> None:
        """Each command has the same output for both brokers, and so do the files."""
        apache, ours = both_brokers(self.folder, self.stack())
        printed = [[steady(text) for text in mqadmin(
            broker.namesrv, [command.format(f"127.0.0.1:{broker.port}") for command in COMMANDS],
            version=self.version, keys=ADMIN)] for broker in (apache, ours)]
        for command, theirs, mine in zip(COMMANDS, *printed, strict=True):
            self.assertEqual(mine, theirs, msg=command)
        self.assertIn("success", printed[1][2])
        self.assertEqual(self.accounts(ours), self.accounts(apache))
        # Each broker reads what the other wrote.
        theirs_text, ours_text = apache.accounts.read_text(), ours.accounts.read_text()
        apache.accounts.write_text(ours_text.replace("secret-of-carol", "new-secret-of-carol"))
        ours.accounts.write_text(theirs_text.replace("secret-of-carol", "new-secret-of-carol"))
        carol = signed(("carol-key", "new-secret-of-carol"), {}, b"", 479)
        for broker in (apache, ours):
            wait_until("the other's file is read",
                       lambda broker=broker: broker.ask(305, carol).code == 0)

    @staticmethod
    def accounts(broker: Broker) -> object:
        """Return the content of a file, without kinds of numbers and the time of its version."""
        tree = yaml.safe_load(broker.accounts.read_text())
        tree["dataVersion"][0].pop("timestamp")
        for account in tree["accounts"]:
            account.setdefault("admin", False)
        return tree
