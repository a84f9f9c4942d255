"""The plugin in the broker: its row in the runtime table, and its imports."""

from __future__ import annotations

import subprocess
import sys

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.testing.in_process_broker import running_broker
from twistmq.client import Client
from twistmq.spark_bridge.advertised_exports import (
    EXPORT_TOPICS,
    EXPORT_TRACES,
    Advertised,
    ask_brokers,
)

#: Run in a process where nothing of the extra can be imported, as where it is not installed.
WITHOUT_EXTRA = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"pyspark", "pyarrow", "numpy", "pandas"}:
            raise ModuleNotFoundError(name, name=name)
sys.meta_path.insert(0, Missing())
from click.testing import CliRunner
from twistmq.client import Client
from twistmq.tools.command_line import twistmq
from twistmq.broker.testing.in_process_broker import running_broker
from twistmq.spark_bridge.advertised_exports import ask_brokers
with running_broker({"spark.export_topics": "a"}) as broker, \\
        Client([broker.namesrv_address]) as client:
    print(ask_brokers(client).topics)
    print(CliRunner().invoke(twistmq, ["spark", "export", "--help"]).exit_code)
    run = CliRunner().invoke(twistmq, ["spark", "export", "-n", broker.namesrv_address, "-o", "o"])
    print(run.exit_code, run.output.strip())
"""


class PluginTests(SynchronousTestCase):
    """The data of a broker."""

    def test_the_exported_topics_are_in_the_runtime_table(self) -> None:
        """The table has the topics of the settings, and is found through the name server."""
        with running_broker({"spark.export_topics": "b, a", "spark.export_traces": "true"}) as \
                broker, Client([broker.namesrv_address]) as client:
            self.assertEqual(ask_brokers(client), Advertised(("a", "b"), True))
            table = client.runtime_info(broker.broker_address)
            self.assertEqual((table[EXPORT_TOPICS], table[EXPORT_TRACES]), ("b,a", "true"))

    def test_nothing_to_export(self) -> None:
        """The runtime table is then Apache's."""
        with running_broker() as broker, Client([broker.namesrv_address]) as client:
            table = client.runtime_info(broker.broker_address)
            self.assertIn("runtime", table)
            self.assertFalse({EXPORT_TOPICS, EXPORT_TRACES} & table.keys())
            self.assertEqual(ask_brokers(client), Advertised((), False))

    def test_a_broker_that_does_not_answer(self) -> None:
        """It is named with the reason, and the others are asked."""
        with running_broker() as broker, \
                Client([broker.namesrv_address], retries=0) as client:
            addresses = {"gone": "127.0.0.1:1", "there": broker.broker_address}
            self.patch(client, "broker_addresses", lambda: addresses)
            found = ask_brokers(client)
            self.assertEqual((found.topics, len(found.silent)), ((), 1))
            self.assertIn("gone: ", found.silent[0])

    def test_without_the_extra(self) -> None:
        """The broker and the command line work without Spark; the job names the package."""
        ran = subprocess.run([sys.executable, "-c", WITHOUT_EXTRA], capture_output=True, text=True,
                             timeout=60, check=False)
        self.assertEqual(ran.stdout.splitlines(), [
            "('a',)", "0",
            "255 twistmq: pyspark is not installed: pip install 'twistmq[spark]'"],
            msg=ran.stderr)
