"""Spark with a broker that enforces TLS and checks its clients, in both directions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.certificates import Authority
from tests.spark_bridge.session import run_to_end, spark_session
from twistmq.broker.testing import running_broker


class TlsTests(SynchronousTestCase):
    """Reads and writes, as batches and as streams."""

    def setUp(self) -> None:
        self.session = spark_session()
        self.folder = Path(self.mktemp()).absolute()  # type: ignore[no-untyped-call]
        self.folder.mkdir()
        self.authority = Authority(self.folder)
        server, pair = self.authority.pair("server"), self.authority.pair(
            "spark", password="open sesame")
        running = running_broker({
            "tls.server.mode": "enforcing", "tls.server.certPath": str(server.cert),
            "tls.server.keyPath": str(server.key), "tls.server.authClient": "true",
            "tls.server.trustCertPath": str(self.authority.cert),
            "tls.client.authServer": "true", "tls.client.certPath": str(pair.cert),
            "tls.client.keyPath": str(pair.key), "tls.client.keyPassword": "open sesame",
            "tls.client.trustCertPath": str(self.authority.cert)})
        broker = running.__enter__()
        self.addCleanup(running.__exit__, None, None, None)
        self.plain = {"nameServer": broker.namesrv_address, "fetchOffset.numRetries": "0"}
        self.tls = {"tls": "true", "tls.caFile": str(self.authority.cert),
                    "tls.certFile": str(pair.cert), "tls.keyFile": str(pair.key),
                    "tls.keyPassword": "open sesame"}

    def write(self, count: int) -> None:
        frame = self.session.range(count).selectExpr("concat('b', id) AS body", "'paid' AS tags")
        frame.write.format("rocketmq").options(
            nameServer=self.plain["nameServer"], topic="orders", **self.tls).mode("append").save()

    def read(self, **more: str) -> Any:
        return self.session.read.format("rocketmq").options(
            **self.plain, subscribe="orders", bodyFormat="string", **more).load()

    def test_round_trip(self) -> None:
        """Rows are written, read and streamed by clients with a certificate."""
        self.write(500)
        wanted = sorted(f"b{number}" for number in range(500))
        frame = self.read(**self.tls)
        self.assertEqual(sorted(row.body for row in frame.collect()), wanted)
        stream = self.session.readStream.format("rocketmq").options(
            **self.plain, **self.tls, subscribe="orders", bodyFormat="string",
            startingOffsets="earliest", maxOffsetsPerTrigger="200").load()
        output = str(self.folder / "output")
        query = run_to_end(lambda: stream.select("body").writeStream.format("parquet").option(
            "checkpointLocation", str(self.folder / "checkpoint")).trigger(
            availableNow=True).start(output))
        self.assertIsNone(query.exception())
        self.assertEqual(sorted(row.body for row in self.session.read.parquet(output).collect()),
                         wanted)
        kept = "".join(path.read_text() for path in (self.folder / "checkpoint").rglob("[0-9]*")
                       if path.is_file())
        self.assertNotIn("sesame", kept + frame._jdf.queryExecution().toString())

    def test_without_a_trusted_certificate_nothing_is_read(self) -> None:
        """A client needs TLS, a certificate, and the right authority."""
        self.write(1)
        other = Authority(self.folder, "other")
        for given, said in (
                ({}, "no name server answers"),
                ({"tls": "true", "tls.caFile": str(self.authority.cert)}, "certificate"),
                ({**self.tls, "tls.caFile": str(other.cert)}, "certificate verify failed")):
            with self.assertRaises(Exception) as caught:
                self.read(**given).collect()
            self.assertIn(said, str(caught.exception))
