"""Account files: their meaning, the refused forms, and the parts that a change keeps."""

from __future__ import annotations

import re
from pathlib import Path

import yaml
from twisted.trial.unittest import SynchronousTestCase

from twistmq.acl.accounts import PlainAccessConfig
from twistmq.acl.acl_file import (
    read_acl_file,
    with_account,
    with_white_addresses,
    without_account,
)
from twistmq.acl.addresses import parse_pattern
from twistmq.acl.errors import AclError
from twistmq.protocol.bodies import DataVersion

NOW_MS = 1_800_000_000_000
#: An account file in the form of Apache's distribution.
DISTRIBUTED = b"""\
# A comment.
globalWhiteRemoteAddresses:
  - 10.10.103.*
  - 192.168.0.*

accounts:
  - accessKey: RocketMQ
    secretKey: 01234567
    whiteRemoteAddress:
    admin: false
    defaultTopicPerm: DENY
    defaultGroupPerm: SUB
    topicPerms:
      - topicA=DENY
      - topicB=PUB|SUB
    groupPerms:
      # A group.
      - groupA=DENY
    note: kept

  - accessKey: rocketmq2
    secretKey: 12345678
    whiteRemoteAddress: 192.168.1.*
    admin: true
dataVersion:
- counter: 3
  timestamp: 1700000000000
"""
#: An account file as Apache's broker 5.2.0 writes it after a change.
WRITTEN_BY_5_2 = b"""\
accounts:
- accessKey: rocketmqadmin
  admin: true
  defaultGroupPerm: null
  defaultTopicPerm: null
  groupPerms: null
  secretKey: '12345678'
  topicPerms: null
  whiteRemoteAddress: null
dataVersion:
- counter: 5
  timestamp: 1795279370593
globalWhiteRemoteAddresses:
- 10.0.0.1
"""


class ReadTests(SynchronousTestCase):
    """The meaning of a file."""

    def test_distributed_file(self) -> None:
        """The form of Apache's distribution is read, and digits stay as they are written."""
        file = read_acl_file(DISTRIBUTED)
        self.assertEqual(file.white_addresses, ("10.10.103.*", "192.168.0.*"))
        first, second = file.configs
        self.assertEqual(
            first, PlainAccessConfig("RocketMQ", "01234567", None, False, "DENY", "SUB",
                                     ["topicA=DENY", "topicB=PUB|SUB"], ["groupA=DENY"]))
        self.assertEqual((second.admin, second.secret_key, second.white_remote_address),
                         (True, "12345678", "192.168.1.*"))
        self.assertEqual(file.version, DataVersion(timestamp=1_700_000_000_000, counter=3))
        self.assertTrue(file.accounts[1].white_address.matches("192.168.1.7"))

    def test_file_of_5_2(self) -> None:
        """A null counts as a missing value."""
        [config] = read_acl_file(WRITTEN_BY_5_2).configs
        self.assertEqual(config, PlainAccessConfig("rocketmqadmin", "12345678", admin=True))

    def test_flow_style_and_merges(self) -> None:
        """The other forms of a map in YAML are read too."""
        file = read_acl_file(b"base: &base {secretKey: 12345678, admin: yes}\n"
                             b"accounts: [{<<: *base, accessKey: merged-key}]\n")
        self.assertEqual(file.configs, (PlainAccessConfig("merged-key", "12345678", admin=True),))

    def test_documented_file(self) -> None:
        """The example on the plugin's page has the meaning that the page describes."""
        page = (Path(__file__).parents[2] / "acl" / "README.md").read_text()
        [example] = re.findall(r"^```yaml$(.*?)^```$", page, re.MULTILINE | re.DOTALL)
        file = read_acl_file(example.encode())
        self.assertEqual(file.white_addresses, ("10.10.103.*",))
        self.assertEqual(file.configs, (PlainAccessConfig(
            "orders-service", "a-long-secret", None, False, "DENY", "SUB", ["orders=PUB|SUB"],
            ["billing=DENY"]),))
        patterns = re.search(r"# need no account: (.*)", example)
        assert patterns is not None
        for pattern in patterns[1].split():
            parse_pattern(pattern)

    def test_an_empty_file_differs_from_one_without_accounts(self) -> None:
        """A file without data differs from a file without accounts."""
        for data in (b"", b"# nothing\n", b"{}", b"---\n"):
            self.assertFalse(read_acl_file(data).has_data, msg=repr(data))
        file = read_acl_file(b"accounts:\nglobalWhiteRemoteAddresses:\n")
        self.assertEqual((file.has_data, file.accounts, file.white_addresses), (True, (), ()))

    def test_a_file_with_a_fault_is_refused_as_a_whole(self) -> None:
        """A file with a meaningless value is refused as a whole."""
        start = b"accounts:\n- accessKey: alice-key\n  secretKey: secret-of-alice\n"
        faults = {
            "not YAML": b"accounts: [", "tab": start + b"\tadmin: true\n", "a list": b"- a\n",
            "text": b"secret-of-alice", "accounts a map": b"accounts: {a: b}\n",
            "accounts of text": b"accounts: [secret-of-alice]\n",
            "admin": start + b"  admin: secret-of-alice\n",
            "address": start + b"  whiteRemoteAddress: 1.2.3\n",
            "topic": start + b"  topicPerms: [a]\n",
            "short key": b"accounts: [{accessKey: abc, secretKey: secret-of-alice}]\n",
            "version": start + b"dataVersion: 3\n", "python": start + b"x: !!python/name:os.x ''\n",
            "alias": b"accounts: *secret-of-alice\n", "anchor": start + b"  topicPerms: *secret\n",
            "not UTF-8": b"\xff\xfe\xff", "control": b"a: \x01\n",
            "white": b"globalWhiteRemoteAddresses: [1.2.3]\n",
            "duplicate colon": b"secretKey: secret-of-alice: x\n",
            "deep": b"[" * 5000,
        }
        for name, data in faults.items():
            error = self.assertRaises(AclError, read_acl_file, data)
            self.assertNotIn("secret-of-alice", str(error), msg=name)

    def test_place_of_fault(self) -> None:
        """The error contains the line number and no text of the line."""
        error = self.assertRaises(AclError, read_acl_file, b"a: b\nsecretKey: 'secret: x\n")
        self.assertRegex(str(error), r"^line \d+, column \d+: not YAML$")


class ChangeTests(SynchronousTestCase):
    """The content of a file after a change."""

    def test_new_account(self) -> None:
        """The new account is the last one, and the version counts the change."""
        data = with_account(DISTRIBUTED, PlainAccessConfig("new-key", "new-secret"), NOW_MS)
        file = read_acl_file(data)
        self.assertEqual(file.configs[:2], read_acl_file(DISTRIBUTED).configs)
        self.assertEqual(file.configs[2], PlainAccessConfig("new-key", "new-secret"))
        self.assertEqual(file.version, DataVersion(timestamp=NOW_MS, counter=4))
        self.assertEqual(file.white_addresses, ("10.10.103.*", "192.168.0.*"))

    def test_an_empty_file_gets_an_account_and_a_version(self) -> None:
        """The empty file gets one account, and its version begins."""
        file = read_acl_file(with_account(b"", PlainAccessConfig("new-key", "new-secret"), NOW_MS))
        self.assertEqual(len(file.accounts), 1)
        self.assertEqual(file.version, DataVersion(timestamp=NOW_MS, counter=1))

    def test_changed_account(self) -> None:
        """Given values change, other values stay, and the account becomes the last one."""
        change = PlainAccessConfig("RocketMQ", "another-secret", "", True, "", None, ["b=SUB"])
        data = with_account(DISTRIBUTED, change, NOW_MS)
        second, first = read_acl_file(data).configs
        self.assertEqual(second.access_key, "rocketmq2")
        self.assertEqual(first, PlainAccessConfig("RocketMQ", "another-secret", "", True, "DENY",
                                                  "SUB", ["b=SUB"], ["groupA=DENY"]))
        self.assertIn(b"note: kept", data)

    def test_deleted_account(self) -> None:
        """The other account stays."""
        [left] = read_acl_file(without_account(DISTRIBUTED, "RocketMQ", NOW_MS)).configs
        self.assertEqual(left.access_key, "rocketmq2")

    def test_white_addresses(self) -> None:
        """The addresses are replaced, and the accounts stay."""
        file = read_acl_file(with_white_addresses(DISTRIBUTED, ["10.0.0.1"], NOW_MS))
        self.assertEqual(file.white_addresses, ("10.0.0.1",))
        self.assertEqual(file.configs, read_acl_file(DISTRIBUTED).configs)

    def test_kinds_for_java(self) -> None:
        """Numbers and flags are written where Java casts to them, and a key of digits is quoted."""
        tree = yaml.safe_load(without_account(DISTRIBUTED, "RocketMQ", NOW_MS))
        self.assertEqual(tree["dataVersion"], [{"counter": 4, "timestamp": NOW_MS}])
        self.assertEqual(tree["accounts"][0]["admin"], True)
        self.assertEqual(tree["accounts"][0]["secretKey"], "12345678")

    def test_text_outside_ascii(self) -> None:
        """Keys and names are read back unchanged."""
        config = PlainAccessConfig("ключ-доступа", "секрет: 'x' #y", topic_perms=["тема=SUB"])
        self.assertEqual(read_acl_file(with_account(b"", config, NOW_MS)).configs, (config,))
