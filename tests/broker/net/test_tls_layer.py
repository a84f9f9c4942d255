"""Bytes that pass through TLS: records, batches, back-pressure, and ends."""

from __future__ import annotations

import os
import ssl

from tests.broker.edge.tls_case import BIG, ECHO, FRAME, TlsTestCase
from tests.broker.edge.tls_peer import TlsPeer
from twistmq.broker.constants import CONNECTION_BYTES_UNSENT_FREE, TLS_HANDSHAKE_BYTES
from twistmq.protocol.command import encode_request


class BytesTests(TlsTestCase):
    """Bytes in both directions."""

    def setUp(self) -> None:
        super().setUp()
        self.server = self.make_server()

    def test_any_cut(self) -> None:
        """Handshake and frames in pieces of any size give the same replies."""
        for cut in (1, 3, 100, 16_384):
            peer = TlsPeer(self.server, cut=cut)
            peer.shake_hands()
            peer.says(*[encode_request(ECHO, i, None, b"b" * 300 * i) for i in range(5)])
            self.assertEqual([(r.opaque, len(r.body)) for r in peer.heard()],
                             [(i, 300 * i) for i in range(5)], msg=f"cut by {cut}")

    def test_one_read_is_one_batch(self) -> None:
        """The requests of one read form one batch, whatever the records of TLS are."""
        peer = TlsPeer(self.server)
        peer.shake_hands()
        frames = [encode_request(ECHO, i, None, bytes(6000)) for i in range(8)]
        for frame in frames:
            peer.tls.write(frame)
        peer.flush()
        self.assertEqual(peer.hears(), [(i, 0) for i in range(8)])
        self.assertEqual(self.batches, [8])

    def test_many_records(self) -> None:
        """Megabytes arrive complete in both directions."""
        peer = TlsPeer(self.server)
        peer.shake_hands()
        body = os.urandom(3 * 1024 * 1024)
        peer.says(encode_request(ECHO, 1, None, body))
        [reply] = peer.heard()
        self.assertEqual(reply.body, body)

    def test_peer_that_takes_nothing(self) -> None:
        """Its requests are not read while it reads no replies, and are read afterwards."""
        peer = TlsPeer(self.server)
        peer.shake_hands()
        connection = peer.conversation.connection
        connection.peer_reads = False
        peer.says(encode_request(BIG, 1))
        self.assertGreater(peer.conversation.protocol.unsent_bytes, CONNECTION_BYTES_UNSENT_FREE)
        self.assertFalse(connection.is_reading)
        connection.peer_reads = True
        self.assertEqual(peer.hears(), [(1, 0)])
        self.assertEqual(peer.conversation.protocol.unsent_bytes, 0)
        self.assertEchoes(peer, 2)

    def test_what_tls_has_to_say(self) -> None:
        """The bytes of TLS itself count, so that a peer cannot cause endless answers."""
        peer = TlsPeer(self.server)
        peer.shake_hands()
        connection = peer.conversation.connection
        connection.peer_reads = False
        peer.conversation.protocol.write_encrypted(bytes(CONNECTION_BYTES_UNSENT_FREE))
        self.assertTrue(connection.is_reading)
        peer.conversation.protocol.write_encrypted(bytes(1))
        self.assertFalse(connection.is_reading)

    def test_handshakes_count(self) -> None:
        """An open handshake counts towards the limit of its peer; above it the oldest one ends."""
        kept = self.server.kept
        kept.maximum_bytes = 3 * TLS_HANDSHAKE_BYTES
        done = TlsPeer(self.server)
        done.shake_hands()
        self.assertEqual(kept.total_bytes, 0)
        peers = [TlsPeer(self.server) for _ in range(4)]
        for number, peer in enumerate(peers, 1):
            self.assertRaises(ssl.SSLWantReadError, peer.tls.do_handshake)
            peer.flush()
            self.assertEqual(kept.total_bytes, min(number, 3) * TLS_HANDSHAKE_BYTES)
        self.assertEqual([peer.is_closed for peer in peers], [True, False, False, False])
        peers[1].shake_hands()
        self.assertEqual(kept.total_bytes, 2 * TLS_HANDSHAKE_BYTES)
        self.assertEchoes(peers[1], 1)
        self.assertEchoes(done, 1)
        for peer in peers[2:]:
            peer.conversation.protocol.abort("is a test")
        self.assertEqual(kept.total_bytes, 0)

    def test_close_of_either_side(self) -> None:
        """Each end closes TLS before the connection; requests before it are answered."""
        peer = TlsPeer(self.server)
        peer.shake_hands()
        peer.conversation.protocol.close()
        peer.conversation.connection.pump()
        self.assertTrue(peer.is_closed)
        peer._hear()
        self.assertEqual(peer.tls.read(), b"", msg="it says that nothing more comes")
        peer = TlsPeer(self.server)
        peer.shake_hands()
        peer.tls.write(FRAME)
        with self.assertRaises(ssl.SSLWantReadError):
            peer.tls.unwrap()
        peer.flush()
        self.assertTrue(peer.is_closed)
        self.assertEqual(self.batches, [1])
        self.assertEqual(self.lines("TLS: "), [])

    def test_broken_frame(self) -> None:
        """An invalid frame ends the connection; later records are not read."""
        peer = TlsPeer(self.server)
        peer.shake_hands()
        peer.tls.write(FRAME)
        peer.tls.write(bytes(8))
        peer.tls.write(encode_request(ECHO, 2))
        peer.flush()
        self.assertTrue(peer.is_closed)
        self.assertEqual(peer.hears(), [(1, 0)])

    def test_nothing_runs_after_the_end(self) -> None:
        """No request of a connection that was aborted is executed."""
        peer = TlsPeer(self.server)
        peer.shake_hands()
        peer.conversation.protocol.abort("is a test")
        self.assertTrue(peer.is_closed)
        self.assertEqual(self.batches, [])
