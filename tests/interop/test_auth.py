"""ACL 2.0: the same requests by the same users to Apache's brokers and ours."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from tests.interop.auth_matrix import LET_IN, USERS, outcomes, password_of, prepare
from tests.interop.auth_servers import apache_broker, our_broker
from tests.interop.clients import JavaTestCase
from tests.interop.console_login import check_logins

#: What Apache's brokers let every user send, because the headers have no annotation. Ours need:
UNANNOTATED: Final = {
    "create group": "Create on the group",
    "settings": "Get on the cluster",
    "change settings": "Update on the cluster",
    "figures": "Get on the cluster",
    "unserved code": "a super user: the code has no row",
}
#: The users whom ours let in nevertheless.
ALLOWED: Final = {
    "create group": {"kinds", "all", "deny", "inner", "near"},
    "settings": {"all", "deny", "reader", "keeper"},
    "change settings": {"all", "deny", "keeper"},
    "figures": {"all", "deny", "reader", "keeper"},
    "unserved code": set(),
}
#: In 5.3.3 the shorter prefix counts (issue 9539); later versions and ours take the longer one.
BY_THE_SHORTER_PREFIX: Final = "send TTx by inner"


class MatrixTests(JavaTestCase):
    """Each of more than sixty results is Apache's, except for the lists above."""

    def compare(self, version: str, others: set[str]) -> None:
        """Send the requests to both; ``others`` are the further differences of a version."""
        folder = tempfile.TemporaryDirectory(prefix="twistmq-")
        self.addCleanup(folder.cleanup)
        with ExitStack() as stack:
            apache = apache_broker(Path(folder.name), stack, version)
            ours = our_broker(Path(folder.name), stack)
            for broker in (apache, ours):
                prepare(broker)
            theirs, found = outcomes(apache), outcomes(ours)
            for broker in (apache, ours):
                check_logins(self, broker.namesrv, password_of("literal"))
        self.assertGreater(len(found), 60)
        expected = {f"{label} by {user}" for label in UNANNOTATED
                    for user in set(USERS) - ALLOWED[label]}
        different = {label for label in found if found[label] != theirs[label]}
        self.assertEqual(different, expected | others)
        for label in expected:
            self.assertEqual(theirs[label], LET_IN, msg=label)
            self.assertIn("has no permission to access", found[label], msg=label)

    def test_as_5_3_3(self) -> None:
        """This is the version of common tools and proxies."""
        self.compare("5.3.3", {BY_THE_SHORTER_PREFIX})

    def test_as_5_5_0(self) -> None:
        """The newest version, in which the order of prefixes is corrected."""
        self.compare("5.5.0", set())
