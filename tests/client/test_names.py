"""The names of ``twistmq.client``, which are imported when they are first used."""

from __future__ import annotations

import subprocess
import sys

from twisted.trial.unittest import SynchronousTestCase

import twistmq.broker.api
import twistmq.client
import twistmq.client.testing
from twistmq.broker.testing import running_broker
from twistmq.client import Client, Consumer, Producer


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


class ShownTests(SynchronousTestCase):
    """What a program sees of its objects."""

    def test_objects_show_their_servers_groups_and_topics(self) -> None:
        """Also whether they are closed."""
        with running_broker() as broker:
            where = broker.namesrv_address
            with Client(where) as client:
                producer = Producer(client=client, group="p")
                consumer = Consumer(client=client, group="g", topics=["b", "a"])
                self.assertEqual(repr(producer), "<producer of group p>")
                self.assertEqual(repr(consumer), "<consumer of group g with topics a, b>")
                self.assertEqual(repr(client), f"<client of {where}, producer of group p, "
                                               "consumer of group g with topics a, b>")
                consumer.close()
            self.assertEqual(repr(consumer), "<consumer of group g with topics a, b, closed>")
            self.assertEqual(repr(client), f"<client of {where}, closed>")

    def test_a_client_that_was_never_closed(self) -> None:
        """The end of the program warns of it, if the program shows such warnings."""
        with running_broker() as broker:
            where = broker.namesrv_address
            code = ("from twistmq.client import Producer\n"
                    f"producer = Producer({where!r}, group='p')\n"
                    "producer.send_soon('T', b'1')")
            for arguments, count in (("-Wdefault", 1), ("-Werror", 1), ("-Wignore", 0)):
                done = subprocess.run([sys.executable, arguments, "-c", code], text=True,
                                      capture_output=True, check=True)
                self.assertEqual(done.stderr.count(
                    f"never closed: <client of {where}, producer of group p>"), count,
                    msg=done.stderr)
