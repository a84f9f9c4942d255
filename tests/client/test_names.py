"""The names of ``twistmq.client``, which are imported when they are first used."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

import twistmq.broker.api
import twistmq.client
import twistmq.client.testing


class NameTests(SynchronousTestCase):
    """The package's ``__getattr__``."""

    def test_each_public_name_is_found(self) -> None:
        """The table of modules has every name of ``__all__`` and no other."""
        self.assertEqual(sorted(twistmq.client._HOMES), sorted(twistmq.client.__all__))
        for name in twistmq.client.__all__:
            self.assertIsNotNone(getattr(twistmq.client, name), msg=name)

    def test_completion_and_help_know_the_names(self) -> None:
        """The public names are listed, and no helper of the package is."""
        for package in (twistmq.client, twistmq.broker.api, twistmq.client.testing):
            listed = {name for name in dir(package) if not name.startswith("__")}
            self.assertEqual(listed, set(package.__all__), msg=package.__name__)

    def test_another_name_is_an_attribute_error(self) -> None:
        """As of any module."""
        with self.assertRaisesRegex(AttributeError, "'twistmq.client' has no attribute 'Nothing'"):
            twistmq.client.Nothing  # noqa: B018
