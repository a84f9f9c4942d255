"""Log lines about hosts, with a limit for each host."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from twistmq.plugins.replica.host_lines import HostLines


class HostLinesTests(SynchronousTestCase):
    """Lines of two kinds about several hosts."""

    def setUp(self) -> None:
        self.now_ms = 1_000_000
        self.written: list[str] = []
        self.lines = HostLines(lambda: self.now_ms)

    def write(self, peer: str, text: str = "{peer} came") -> None:
        def keep(line: str, **values: Any) -> None:
            self.written.append(line.format(**values))

        self.lines.write(keep, peer, text)

    def test_ten_lines_a_minute_of_each_kind_and_host(self) -> None:
        """All ports of a host share one limit, and the next line counts the omitted ones."""
        for port in range(15):
            self.write(f"10.0.0.1:{port}")
        self.assertEqual(len(self.written), 10)
        self.write("10.0.0.2:1")
        self.write("10.0.0.1:1", "{peer} went")
        self.assertEqual(self.written[10:], ["10.0.0.2:1 came", "10.0.0.1:1 went"])
        self.now_ms += 60_000
        self.write("10.0.0.1:1")
        self.assertEqual(self.written[-1], "10.0.0.1:1 came (5 lines left out)")

    def test_few_hosts_are_remembered(self) -> None:
        """A host that was forgotten has its whole limit again."""
        for _ in range(11):
            self.write("10.0.0.1:1")
        for number in range(256):
            self.write(f"10.0.1.{number}:1")
        self.write("10.0.0.1:1")
        self.assertEqual(self.written[-1], "10.0.0.1:1 came")
        self.assertEqual(len(self.written), 10 + 256 + 1)
