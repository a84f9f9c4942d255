"""Each command in the guides of README.md is run, in the order of the page."""

from __future__ import annotations

import os
import re
import shlex
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from unittest import mock

from twisted.trial.unittest import SynchronousTestCase

from tests.tools.admin.case import call
from twistmq.broker.testing.in_process_broker import running_broker

PAGE: Final = Path(__file__).resolve().parents[2] / "acl" / "README.md"
#: The end of a command that the broker refuses.
REFUSED: Final = "# refused"
#: The address of the name server on the page.
NAMESRV: Final = "127.0.0.1:9876"
#: The sections with commands.
FIRST_USERS: Final = "Five minutes from no accounts to a working set"
MIGRATION: Final = "From ACL 1.0 to 2.0"
COPIES: Final = "From one broker to another"
ACCOUNTS_1_0: Final = "Accounts in a file: ACL 1.0"


def commands_of(title: str) -> list[str]:
    """Return the commands of a section; a command that goes on in the next line is one."""
    section = PAGE.read_text().partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    blocks = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)
    return [line for block in blocks for line in block.replace("\\\n", " ").splitlines() if line]


class GuideTests(SynchronousTestCase):
    """A reader types the commands of the page."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="twistmq-")
        self.addCleanup(folder.cleanup)
        self.home = Path(folder.name)
        self.enterContext(mock.patch.dict(os.environ))
        self.outputs: list[str] = []

    @contextmanager
    def server(self, line: str) -> Iterator[dict[str, str]]:
        """Start the servers of a command; :returns: what stands for words of the page.

        The servers listen on other ports than on the page, and their data are elsewhere.
        """
        words = shlex.split(line)
        program = ["up", "--data", "demo"] if words[1] == "up" else ["broker", "-n", NAMESRV]
        self.assertEqual(words[: 1 + len(program)], ["twistmq", *program])
        pairs = dict(word.split("=", 1) for word in words[1 + len(program):])
        settings = {"brokerIP1": "127.0.0.1", **pairs, "rocketmqHome": str(self.home)}
        with running_broker(settings) as running:
            yield {NAMESRV: running.namesrv_address, "127.0.0.1:10911": running.broker_address,
                   "demo": str(self.home)}

    def follow(self, title: str) -> None:
        """Run the commands of a section, of which the first one starts the servers."""
        first, *others = commands_of(title)
        with self.server(first) as replaced:
            for line in others:
                self.type(line, replaced)

    def type(self, line: str, replaced: Mapping[str, str]) -> None:
        """Run one command as a shell does, and check the effect that the page promises."""
        words = shlex.split(line, comments=True)
        if words[0] == "export":
            os.environ.update({
                name: replaced.get(text, text)
                for name, text in (word.split("=", 1) for word in words[1:])})
            return
        given = dict(word.split("=", 1) for word in words if re.match(r"[A-Z_]+=", word))
        arguments = [replaced.get(word, word) for word in words[len(given):]]
        self.assertEqual(arguments[:2], ["twistmq", "admin"], msg=line)
        with mock.patch.dict(os.environ, given):
            status, out, err = call(*arguments[2:])
        self.assertEqual(status, 1 if line.endswith(REFUSED) else 0, msg=f"{line}\n{out}{err}")
        self.outputs.append(out + err)

    def write_accounts(self) -> None:
        """Write the page's own example of accounts."""
        example = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)[0]
        (self.home / "conf").mkdir()
        (self.home / "conf" / "plain_acl.yml").write_text(example)

    def test_every_command_is_in_a_section_that_is_run(self) -> None:
        """A new section with commands needs a test in this module."""
        titles = re.findall(r"^## (.*)$", PAGE.read_text(), re.MULTILINE)
        self.assertEqual([title for title in titles if commands_of(title)],
                         [FIRST_USERS, MIGRATION, COPIES, ACCOUNTS_1_0])

    def test_from_no_accounts_to_a_working_set(self) -> None:
        """Two users get different rights, and a refusal names the missing permission."""
        self.follow(FIRST_USERS)
        shown = "".join(self.outputs)
        self.assertIn("User:billing has no permission to access Topic:Orders", shown)
        self.assertNotIn("secret-of", shown)

    def test_from_1_0_to_2_0(self) -> None:
        """The account of the page's own example is shown first, and then becomes a user with
        policies.
        """
        self.write_accounts()
        self.follow(MIGRATION)
        preview, creation, users, policies = self.outputs[:4]
        rows = [each.splitlines()[2:] for each in (preview, creation)]
        self.assertEqual([row.split() for row in rows[1]],
                         [row.replace("would be created", "created").split() for row in rows[0]])
        self.assertTrue(all("would be created" in row for row in rows[0]), msg=preview)
        self.assertTrue(rows[0])
        self.assertIn("orders-service", users)
        self.assertNotIn("a-long-secret", "".join(self.outputs))
        for text in ("Topic:orders", "Group:billing", "Default"):
            self.assertIn(text, policies)

    def test_from_one_broker_to_another(self) -> None:
        """The users of the first guide are shown first, and then exist on another broker too."""
        first, *others = commands_of(FIRST_USERS)
        with self.server(first) as old, self.server(first) as new:
            for line in others[:7]:
                self.type(line, old)
            for line in commands_of(COPIES):
                self.type(line, {"OLD:10911": old["127.0.0.1:10911"],
                                 "NEW:10911": new["127.0.0.1:10911"]})
            preview, users, policies = self.outputs[-3:]
            self.assertIn("would be created", preview)
            self.assertIn("created", users)
            self.assertIn("created", policies)
            status, out, _ = call("listAcl", "-b", new["127.0.0.1:10911"])
        self.assertEqual(status, 0)
        for text in ("User:shop", "User:billing", "Topic:Orders"):
            self.assertIn(text, out)

    def test_accounts_in_a_file(self) -> None:
        """The command of ACL 1.0 starts a broker that knows only the account of the example."""
        self.write_accounts()
        [line] = commands_of(ACCOUNTS_1_0)
        message = ("sendMessage", "-t", "orders", "-p", "paid")
        with self.server(line) as replaced:
            for keys, expected in (({}, 1), ({"ROCKETMQ_ACCESS_KEY": "orders-service",
                                              "ROCKETMQ_SECRET_KEY": "a-long-secret"}, 0)):
                with mock.patch.dict(os.environ, keys):
                    status, out, err = call(*message, "-n", replaced[NAMESRV])
                self.assertEqual(status, expected, msg=out + err)
