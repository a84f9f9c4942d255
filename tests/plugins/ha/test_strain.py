"""The costs of strangers, and of slaves that do not read, for a master in its own process.

``python -m tests.long.replication stall``, ``slow`` and ``probe`` take a minute each, ``soak`` an
hour.
"""

from __future__ import annotations

import random
import socket
import struct
import tempfile
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.hostile.case import BUG_MARKS
from tests.interop.load import Load
from tests.interop.replica_strain import open_sockets, probe, slow_peer, soak, stall
from tests.interop.replicas import Group, OurReplica
from tests.interop.servers import rss_anon_kib, wait_until

#: How far memory may be from where it was, KiB.
_BACK_KIB = 1024
#: What a master may grow by in its first seconds of work, KiB; the long forms are stricter.
_FIRST_KIB = 16 * 1024
#: Connections of each kind in a round.
_STRANGERS = 60
#: A close that sends a reset.
_RESET = struct.pack("ii", 1, 0)


class StrainTests(SynchronousTestCase):
    """Short forms; the memory of the master is measured."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="twistmq-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def test_a_slave_that_is_stopped_costs_no_memory(self) -> None:
        """Its connection is closed after 20 s; when it continues, it gets everything.

        A master that kept what it cannot send would grow by all that.
        """
        strain = stall(self.folder, 1, {"size_max": 200_000, "window": 8})
        self.assertEqual(strain.problems, [])
        self.assertGreater(strain.figures["closed after s"], 19)
        self.assertLess(strain.figures["KiB more"], strain.figures["KiB it was sent"] / 3)

    def test_a_peer_that_reads_slowly_costs_no_memory(self) -> None:
        """It stays connected, and the sends that wait for the other slave are not late."""
        strain = slow_peer(self.folder, 3, _FIRST_KIB)
        self.assertEqual(strain.problems, [])
        self.assertEqual(strain.figures["slaves"], 2)

    def test_nothing_of_a_pair_grows_while_it_works(self) -> None:
        """No send is late, and the logs are equal at the end; the long form takes an hour."""
        self.assertEqual(soak(self.folder, 4, _FIRST_KIB).problems, [])

    def test_connections_that_come_and_go(self) -> None:
        """The slave stays connected; the number of descriptors is limited, and they are closed."""
        self.assertEqual(probe(self.folder, 1, 500, 300, _FIRST_KIB).problems, [])

    def test_garbage_and_half_open_connections_leave_nothing(self) -> None:
        """Random bytes, an incomplete report, and connections that are reset immediately."""
        with Group(self.folder) as group:
            master = group.ours("master")
            master.start()
            with Load(master.address, senders=1, window=1) as load:
                load.wait_for(100)
            self.strangers(master)
            sockets = open_sockets(master.pid)
            before = rss_anon_kib(master.pid)
            for _ in range(3):
                self.strangers(master)
            wait_until("descriptors are given back", lambda: open_sockets(master.pid) <= sockets)
            self.assertLess(rss_anon_kib(master.pid) - before, _BACK_KIB)
            with Load(master.address, 1, senders=1, window=1) as load:
                load.wait_for(10)
            self.assertEqual([line for line in master.log().splitlines()
                              if any(mark in line for mark in BUG_MARKS)], [])

    def strangers(self, master: OurReplica) -> None:
        """Make connections of three kinds; all are closed in the end."""
        chance, silent = random.Random(1), []
        for _ in range(_STRANGERS):
            made = self.connect(master)
            # The master closes it, at times before all was sent.
            try:
                made.sendall(b"\xff" + chance.randbytes(10_000))
                made.recv(1)
            except ConnectionError:
                pass
            made.close()
            silent.append(self.connect(master))
            silent[-1].sendall(bytes(7))
            half = self.connect(master)
            half.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            half.close()
        for made in silent:
            made.close()

    @staticmethod
    def connect(master: OurReplica) -> socket.socket:
        """Return a connection to the port for slaves."""
        return socket.create_connection(("127.0.0.1", master.port + 1), 30)
