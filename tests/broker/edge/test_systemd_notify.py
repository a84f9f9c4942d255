"""The datagrams that a service manager gets."""

from __future__ import annotations

import os
import socket

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.edge.systemd_notify import NOTIFY_SOCKET, notify_ready, notify_stopping


class SystemdNotifyTests(SynchronousTestCase):
    """The datagrams that go to the socket that ``NOTIFY_SOCKET`` names."""

    def listen(self, address: str, name: str) -> socket.socket:
        """Listen at an address as a service manager does; the environment calls the address
        ``name``.
        """
        manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.addCleanup(manager.close)
        manager.bind(address)
        manager.setblocking(False)
        self.patch(os, "environ", {**os.environ, NOTIFY_SOCKET: name})
        return manager

    def test_a_socket_in_the_file_system(self) -> None:
        """Each state is one datagram."""
        path = f"/tmp/twistmq-readiness-{os.getpid()}"
        self.addCleanup(os.unlink, path)
        manager = self.listen(path, path)
        notify_ready()
        notify_stopping()
        self.assertEqual([manager.recv(100), manager.recv(100)], [b"READY=1", b"STOPPING=1"])

    def test_an_abstract_socket(self) -> None:
        """A name with @ means a name that begins with a zero byte."""
        name = f"twistmq-readiness-{os.getpid()}"
        manager = self.listen("\0" + name, "@" + name)
        notify_ready()
        self.assertEqual(manager.recv(100), b"READY=1")

    def test_nobody_listens(self) -> None:
        """A service runs even if its manager cannot be reached, or none exists."""
        for name in ("/tmp/twistmq-readiness-of-nobody", "@twistmq-readiness-of-nobody",
                     "relative", "vsock:2:1234", "/" + 200 * "x", ""):
            self.patch(os, "environ", {**os.environ, NOTIFY_SOCKET: name})
            notify_ready()
        self.patch(os, "environ", {})
        notify_stopping()
