"""Commands for connections."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tests.tools.admin.case import AdminCase
from twistmq.tools.admin.clients import version_name


class VersionTests(SynchronousTestCase):
    """The function ``version_name``."""

    def test_the_names_in_apaches_table(self) -> None:
        """The names in Apache's table. Source: MQVersion @5.3.3."""
        for version, name in ((479, "V5_3_3"), (478, "V5_3_3_SNAPSHOT"), (194, "V3_9_1_SNAPSHOT"),
                              (399, "V4_9_3"), (401, "V4_9_4"), (611, "V5_9_9"),
                              (612, "HIGHER_VERSION"), (317, "V4_5_2"), (0, "before V3_9_1 (0)"),
                              (-1, "before V3_9_1 (-1)")):
            self.assertEqual(version_name(version), name)


class ConnectionTests(AdminCase):
    """The connections of clients."""

    def test_consumers_and_producers(self) -> None:
        """A client is shown with its subscriptions."""
        self.rows("updateTopic", "-b", self.broker, "-t", "T")
        client = self.member("g", "T")
        [row] = self.rows("consumerConnection", "-g", "g")
        self.assertEqual(
            {name: row[name] for name in ("client", "language", "version", "type", "model",
                                          "from_where", "subscriptions")},
            {"client": client.client, "language": "PYTHON", "version": "V5_3_3",
             "type": "CONSUME_PASSIVELY", "model": "CLUSTERING",
             "from_where": "CONSUME_FROM_FIRST_OFFSET", "subscriptions": ["T: *"]})
        self.assertEqual(self.rows("consumerConnection", "-g", "g", "-b", self.broker), [row])
        [row] = self.rows("producerConnection", "-g", "g-producer", "-t", "T")
        self.assertEqual((row["client"], row["language"]), (client.client, "PYTHON"))

    def test_a_group_without_members_shows_no_connection(self) -> None:
        """The group has no members."""
        self.rows("updateTopic", "-b", self.broker, "-t", "T")
        self.assertIn("not exist", self.refusal("producerConnection", "-g", "g", "-t", "T"))
