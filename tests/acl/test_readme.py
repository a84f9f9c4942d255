"""README.md from the top: each command of its two guides is run, in order."""

from __future__ import annotations

import os
import re
import shlex
import tempfile
from pathlib import Path
from typing import Final
from unittest import mock

from twisted.trial.unittest import SynchronousTestCase

from tests.tools.admin.case import call
from twistmq.broker.testing.in_process_broker import running_broker

PAGE: Final = Path(__file__).resolve().parents[2] / "acl" / "README.md"
#: The end of a command that the broker refuses.
REFUSED: Final = "# refused"


def commands_of(title: str) -> list[str]:
    """Return the commands of a section; a command that goes on in the next line is one."""
    section = PAGE.read_text().partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    blocks = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)
    return [line for block in blocks for line in block.replace("\\\n", " ").splitlines() if line]


class GuideTests(SynchronousTestCase):
    """A person types what the page says."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="twistmq-")
        self.addCleanup(folder.cleanup)
        self.home = Path(folder.name)
        self.enterContext(mock.patch.dict(os.environ))
        self.outputs: list[str] = []

    def follow(self, title: str) -> None:
        """Run the commands of a section.

        The servers listen on other ports than on the page, and their data are elsewhere.
        """
        first, *others = commands_of(title)
        self.assertTrue(first.startswith("twistmq up "), msg=first)
        pairs = [word.split("=", 1) for word in shlex.split(first)[4:]]
        settings = {"brokerIP1": "127.0.0.1", "rocketmqHome": str(self.home),
                    **dict(pairs)}
        with running_broker(settings) as running:
            for line in others:
                self.type(line, running.namesrv_address)

    def type(self, line: str, namesrv: str) -> None:
        """Run one command as a shell does, and check the effect that the page promises."""
        words = shlex.split(line, comments=True)
        if words[0] == "export":
            os.environ.update(dict(word.split("=", 1) for word in words[1:]))
            os.environ["NAMESRV_ADDR"] = namesrv
            return
        given = dict(word.split("=", 1) for word in words if re.match(r"[A-Z_]+=", word))
        arguments = words[len(given):]
        self.assertEqual(arguments[:2], ["twistmq", "admin"], msg=line)
        with mock.patch.dict(os.environ, given):
            status, out, err = call(*arguments[2:])
        self.assertEqual(status, 1 if line.endswith(REFUSED) else 0, msg=f"{line}\n{out}{err}")
        self.outputs.append(out + err)

    def test_from_no_accounts_to_a_working_set(self) -> None:
        """Two users with different rights, and a refusal that says what is missing."""
        self.follow("Five minutes from no accounts to a working set")
        shown = "".join(self.outputs)
        self.assertIn("User:billing has no permission to access Topic:Orders", shown)
        self.assertNotIn("secret-of", shown)

    def test_from_1_0_to_2_0(self) -> None:
        """The account of the page's own example becomes a user with policies."""
        example = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)[0]
        (self.home / "conf").mkdir()
        (self.home / "conf" / "plain_acl.yml").write_text(example)
        self.follow("From ACL 1.0 to 2.0")
        users, policies = self.outputs[:2]
        self.assertIn("orders-service", users)
        self.assertNotIn("a-long-secret", users)
        for text in ("Topic:orders", "Group:billing", "Default"):
            self.assertIn(text, policies)
