"""The public module of the codecs."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twistmq import client
from twistmq.client import codecs
from twistmq.client.base.errors import Undecodable


class CodecsTests(SynchronousTestCase):
    """The functions for programs without a consumer."""

    def test_a_body_is_compressed_and_decompressed(self) -> None:
        """One function returns the flag that the other one needs."""
        body = b"order" * 1000
        compressed, sys_flag = codecs.compress(body)
        self.assertLess(len(compressed), len(body))
        self.assertTrue(sys_flag & codecs.SYS_COMPRESSED)
        self.assertEqual(codecs.decompress(compressed, sys_flag), body)
        with self.assertRaises(Undecodable):
            codecs.decompress(compressed, sys_flag, 100)

    def test_the_package_lists_it(self) -> None:
        """Completion shows the module, and an attribute access imports it."""
        self.assertIn("codecs", dir(client))
        self.assertIs(client.codecs, codecs)
        self.assertEqual(sorted(codecs.__all__), codecs.__all__)
