"""The table of the needs of each code: every code has a row, and the page shows the table."""

from __future__ import annotations

import re
from importlib.metadata import entry_points
from pathlib import Path

from tests.acl.box import ADMIN, PREFIX, AclTestCase
from twistmq.acl.access_table import ACCESS, Action, Kind, access_page, needs_administrator
from twistmq.acl.resources import needed_resources
from twistmq.broker.plugin.discovery import ENTRY_POINT_GROUP
from twistmq.broker.testing.kernel import KernelBox
from twistmq.protocol.bodies import (
    CheckClientRequestBody,
    ConsumerData,
    HeartbeatData,
    LockBatchRequestBody,
    MessageQueue,
    SubscriptionData,
)
from twistmq.protocol.codes import RequestCode, ResponseCode

ROOT = Path(__file__).resolve().parents[2]
CAROL = ("carol-key", "secret-of-carol")
#: The codes that an account without any permission may send, each with the reason.
_UNREFUSED = {
    305: "the names of the system's topics",
    37: "the half message that is there decides: see test_touched",
    33: "the message that is there decides",
    324: "the handler decides: see test_touched",
    325: "the handler decides",
}


def served() -> dict[int, list[str]]:
    """Return the plugins whose handlers serve each code; the list is empty for the kernel's own
    codes.
    """
    found: dict[int, list[str]] = {code: [] for code in KernelBox().kernel.handler_table()}
    for point in entry_points(group=ENTRY_POINT_GROUP):
        if point.value.startswith("twistmq."):
            box = KernelBox(plugins=[(point.name, point.load())])
            for code in box.kernel.handler_table():
                found.setdefault(code, []).append(point.name)
    return found


def body(code: int) -> bytes:
    """Return a body that names the topic B and the group GB, for the codes that have one."""
    subscription = SubscriptionData("B")
    queue = LockBatchRequestBody("GB", "c", mq_set=(MessageQueue("B", "b", 0),)).encode_standard()
    asked = b'{"topic":"B","consumerGroup":"GB","clientId":"c"}'
    return {
        34: HeartbeatData("c", consumer_data_set=(
            ConsumerData("GB", subscription_data_set=(subscription,)),)).encode(),
        41: queue, 42: queue, 400: asked, 401: asked,
        46: CheckClientRequestBody("c", "GB", subscription).encode_standard(),
        200151: b'{"acks":[{"t":"B","c":"GB"}]}',
    }.get(code, b"")


class TableTests(AclTestCase):
    """The table, and a broker with an account that has no permission."""

    accounts = """\
accounts:
- {accessKey: admin-key, secretKey: secret-of-admin, admin: true}
- {accessKey: carol-key, secretKey: secret-of-carol, defaultTopicPerm: DENY, defaultGroupPerm: DENY}
"""

    def test_every_served_code_has_a_row(self) -> None:
        """A code without a row would be open to every account."""
        self.assertEqual({code for code in served() if code not in ACCESS}, set())
        self.assertGreater(len(ACCESS), 80)

    def test_no_row_is_of_a_code_that_nobody_serves(self) -> None:
        """A row of an unserved code would suggest that the broker serves it."""
        self.assertEqual(set(ACCESS) - set(served()), set())

    def test_an_account_without_permissions_is_refused_everything_else(self) -> None:
        """Every code that is not listed here is refused to the account before it is served."""
        codes = sorted(ACCESS)
        fields = {"topic": "B", "b": "B", "a": "P", "producerGroup": "P", "consumerGroup": "GB",
                  "group": "GB", "srcGroup": "GB", "destGroup": "GB", "compareGroup": "GB"}
        for code in codes:
            answer = self.ask_fields(CAROL, code, fields, body(code))
            is_refused = answer.code == ResponseCode.SYSTEM_ERROR and (
                answer.remark or "").startswith(PREFIX)
            self.assertEqual(is_refused, code not in _UNREFUSED, msg=f"{code} {answer.remark}")

    def test_the_rows_of_headers_are_what_is_looked_at(self) -> None:
        """Each field of each row is enough for a request to need its resource."""
        for code, access in ACCESS.items():
            for need in access.needs:
                if not need.field or needs_administrator(code):
                    continue
                found = needed_resources(code, {need.field: "x"}, body(code))
                name = "x" if need.kind is Kind.TOPIC else "%RETRY%x"
                if code not in (324, 325):
                    self.assertIn(name, found, msg=f"{code} {need}")

    def test_administrators_have_what_has_no_permission(self) -> None:
        """Lists and changes are reserved for administrators, and they are served."""
        for code in (21, 28, 201, 52):
            self.assertTrue(needs_administrator(code))
            if code in self.box.kernel.dispatcher.handlers:
                answer = self.ask(ADMIN, code)
                self.assertEqual(answer.code, ResponseCode.SUCCESS, msg=f"{code} {answer.remark}")
        self.assertFalse(needs_administrator(RequestCode.PULL_MESSAGE))
        self.assertFalse(needs_administrator(29_999))

    def test_rows_can_be_read_by_another_scheme(self) -> None:
        """Each need names its kind and the source of the name, except for needs of the cluster."""
        for code, access in ACCESS.items():
            for need in (*access.needs, *access.of_users):
                self.assertEqual(bool(need.field or need.named_by), need.kind is not Kind.CLUSTER,
                                 msg=str(code))
                self.assertFalse(need.field and need.named_by, msg=str(code))
                if {Action.PUB, Action.SUB} & {need.action, *need.actions}:
                    self.assertIsNot(need.kind, Kind.CLUSTER)

    def test_the_page_shows_the_table(self) -> None:
        """README.md contains the table that the code makes."""
        page = (ROOT / "acl/README.md").read_text()
        self.assertIn(access_page(), page,
                      "write it again: python -m twistmq.acl.access_table")
        self.assertEqual(len(re.findall(r"^\| \d+ \| [A-Z]", page, re.MULTILINE)), len(ACCESS))
