"""``twistmq spark export`` before Spark begins, and its summary."""

from __future__ import annotations

from click.testing import CliRunner
from twisted.trial.unittest import SynchronousTestCase

from tests.spark_bridge import records  # noqa: F401  (skips where the extra is not installed)
from twistmq.broker.testing.in_process_broker import running_broker
from twistmq.protocol.topic_names import TRACE_TOPIC
from twistmq.spark_bridge import export_command
from twistmq.spark_bridge.export_command import spark, summary
from twistmq.spark_bridge.export_job import TableSummary
from twistmq.spark_bridge.export_plan import ExportError, ExportPlan


class CommandTests(SynchronousTestCase):
    """Command lines that fail before Spark."""

    def run_command(self, *arguments: str) -> tuple[int, str]:
        ran = CliRunner().invoke(spark, ["export", *arguments], env={"NAMESRV_ADDR": None})
        return ran.exit_code, ran.output

    def test_nothing_to_export(self) -> None:
        """The command names no topic, and no broker does either."""
        with running_broker() as broker:
            status, text = self.run_command("-n", broker.namesrv_address, "-o", "out")
        self.assertEqual(status, 255)
        self.assertIn("nothing to export: name topics by --topic", text)

    def test_nobody_traced(self) -> None:
        """There is no topic of traces: other topics are exported, with a notice."""
        plans: list[ExportPlan] = []
        self.patch(export_command, "_run", plans.append)
        with running_broker() as broker:
            asked = ("-n", broker.namesrv_address, "-o", "out", "--traces")
            self.assertEqual(self.run_command(*asked), (
                255, "twistmq: there is no topic of traces: no client has traced yet\n"))
            status, text = self.run_command(*asked, "--topic", "orders")
            self.assertEqual(status, 0)
            self.assertIn("this run exports no traces: there is no topic of traces", text)
            with broker.client() as client:
                client.send(TRACE_TOPIC, b"")
            self.assertEqual(self.run_command(*asked, "--topic", "orders"), (0, ""))
        self.assertEqual([plan.tables for plan in plans],
                         [("messages",), ("messages", "traces")])

    def test_no_name_server(self) -> None:
        """The error names the server."""
        status, text = self.run_command(
            "-n", "127.0.0.1:1", "-o", "out", "--option", "fetchOffset.numRetries=0")
        self.assertEqual(status, 255)
        self.assertIn("no name server answers: connect to 127.0.0.1:1 failed: ", text)

    def test_bad_lines(self) -> None:
        """The error names the missing or invalid argument."""
        for arguments, wanted in (
                (("-o", "out"), "--namesrvAddr"), (("-n", "x:1"), "--output"),
                (("-n", "x:1", "-o", "o", "--conf", "a"), "'a' is not KEY=VALUE"),
                (("-n", "x:1", "-o", "o", "--format", "csv"), "'csv' is not one of"),
                (("-n", "x:1", "-o", "o", "--option", "what=1"), "option what")):
            status, text = self.run_command(*arguments)
            self.assertNotEqual(status, 0)
            self.assertIn(wanted, text)

    def test_a_table_format_that_needs_a_folder_is_not_written_elsewhere(self) -> None:
        """It is refused; paths are made absolute."""
        error = self.assertRaises(ExportError, ExportPlan, {}, ("a",), False, "s3a://b/c", "delta")
        self.assertIn("format delta needs a folder", str(error))
        plan = ExportPlan({}, ("a",), True, "s3a://b/c/")
        self.assertEqual((plan.path("messages"), plan.local_output, plan.tables),
                         ("s3a://b/c/messages", None, ("messages", "traces")))
        self.assertEqual(str(ExportPlan({}, ("a",), False, "file:///x/y").local_output), "/x/y")


class SummaryTests(SynchronousTestCase):
    """The table at the end."""

    def test_columns_are_aligned(self) -> None:
        """Columns are aligned, and each topic has its line."""
        found = summary([TableSummary("messages", 1_234_567, 12, 5 << 30,
                                      {"orders": 1_234_000, "b": 567}),
                         TableSummary("traces")], 10.04)
        self.assertEqual(found, [
            "table          rows  files     size   rows/s",
            "messages  1,234,567     12  5.0 GiB  122,965",
            "  b             567",
            "  orders  1,234,000",
            "traces            0      0      0 B        0",
            "10.0 s"])
