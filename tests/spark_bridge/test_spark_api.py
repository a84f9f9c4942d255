"""The formats on an older PySpark, or on one that cannot run them."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.integrations.tables.topics import BROKER, topics
from tests.spark_bridge import records  # noqa: F401  (skips where the extra is not installed)
from tests.spark_bridge.test_stream_source import Driver, as_json

#: Takes from an installed PySpark what came after 4.0.
AS_4_0 = """
import sys
import pyspark.sql.datasource as datasource
for name in ("DataSourceStreamArrowWriter", "Filter"):
    delattr(datasource, name)
import pyspark.sql.streaming
if hasattr(pyspark.sql.streaming, "datasource"):
    del pyspark.sql.streaming.datasource
sys.modules["pyspark.sql.streaming.datasource"] = None
"""
#: What Spark does to find formats, with another package's beside ours.
LOOKUP = """
from importlib import import_module
from pkgutil import iter_modules
from pyspark.sql.datasource import DataSource
found = {}
for info in iter_modules():
    if info.name.startswith("pyspark_"):
        module = import_module(info.name)
        if hasattr(module, "DefaultSource") and issubclass(module.DefaultSource, DataSource):
            found[module.DefaultSource.name()] = module.DefaultSource
print(*sorted(found))
"""
OTHER = """
from pyspark.sql.datasource import DataSource
class DefaultSource(DataSource):
    @classmethod
    def name(cls):
        return "other"
"""
ALL = "other rocketmq rocketmq_store rocketmq_trace\n"


class FormatsTests(SynchronousTestCase):
    """The formats that Spark finds."""

    def run_with_other(self, program: str) -> str:
        """Run a program that also has a format of another package; :returns: its output."""
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "pyspark_zother.py").write_text(OTHER)
            done = subprocess.run(
                [sys.executable, "-c", f"import sys; sys.path.append({folder!r})\n{program}"],
                capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, msg=done.stderr)
        return done.stdout

    def test_all_formats_are_found_on_an_older_pyspark(self) -> None:
        """They are found without the additions after 4.0, and their classes have the right base."""
        self.assertEqual(self.run_with_other(AS_4_0 + LOOKUP + """
from twistmq.spark_bridge.sink import StreamWriter
assert issubclass(StreamWriter, datasource.DataSourceArrowWriter)
assert issubclass(StreamWriter, datasource.DataSourceStreamWriter)
import twistmq.spark_bridge.stream_source
"""), ALL)

    def test_an_export_on_an_older_pyspark(self) -> None:
        """The job repeats its queries until everything is read."""
        self.assertEqual(self.run_with_other(AS_4_0 + """
from twistmq.spark_bridge.export_plan import missing_packages
from twistmq.spark_bridge.export_job import HAS_READ_LIMITS
print(missing_packages("parquet"), HAS_READ_LIMITS)
"""), "None False\n")

    def test_an_unsuitable_environment_hides_no_source(self) -> None:
        """Without pyarrow all names are found, and each use of ours names the missing package."""
        shown = self.run_with_other("sys.modules['pyarrow'] = None\n" + LOOKUP + """
from pyspark.cloudpickle import dumps, loads
for name in ("rocketmq", "rocketmq_store", "rocketmq_trace"):
    source = loads(dumps(found[name]))({})
    for use in (source.schema, lambda: source.reader(None), lambda: source.streamReader(None),
                lambda: source.writer(None, False), lambda: source.streamWriter(None, False)):
        try:
            use()
        except RuntimeError as error:
            print(error)
""")
        self.assertTrue(shown.startswith(ALL))
        lines = shown.splitlines()[1:]
        self.assertEqual(len(lines), 15)
        for line in lines:
            self.assertIn("cannot be used in this environment: it needs pyspark 4.0 or later, "
                          "pyarrow 18 or later and pandas 2.2 or later; installed: pyspark 4.",
                          line)
            self.assertIn("pyarrow", line.partition("(")[2].partition("(")[2])

    def test_a_pyspark_without_python_sources(self) -> None:
        """A PySpark before 4.0 imports our modules without an error, and finds no format."""
        self.assertEqual(self.run_with_other("""
sys.modules['pyspark.sql.datasource'] = None
import pyspark_rocketmq, pyspark_rocketmq_store, pyspark_rocketmq_trace
print(*(hasattr(module, "DefaultSource") for module in (
    pyspark_rocketmq, pyspark_rocketmq_store, pyspark_rocketmq_trace)))
"""), "False False False\n")


class OlderStreamTests(SynchronousTestCase):
    """A stream reader that does not get the progress of the query, as in PySpark 4.0 and 4.1."""

    def test_goes_on_from_its_own_answer(self) -> None:
        """The first answer follows the initial offset, each other one the answer before it."""
        with topics() as box:
            box.fill("orders", [10])
            reader = Driver(box, subscribe="orders", startingOffsets="earliest",
                            maxOffsetsPerTrigger=4)._reader
            ends = [as_json(reader.latestOffset())["orders"][BROKER]["0"] for _ in range(4)]
            reader.stop()
        self.assertEqual(ends, [4, 8, 10, 10])

    def test_goes_on_from_a_checkpoint(self) -> None:
        """After a restart Spark shows the offset by asking for an empty range."""
        with topics() as box:
            box.fill("orders", [10])
            reader = Driver(box, subscribe="orders", startingOffsets="earliest",
                            maxOffsetsPerTrigger=4)._reader
            seen = {"orders": {BROKER: {"0": 3}}}
            self.assertEqual([part.value for part in reader.partitions(seen, seen)], [])
            end = as_json(reader.latestOffset())
            reader.stop()
        # A queue that the checkpoint does not name enters with its first offset.
        self.assertEqual(end["orders"][BROKER], {"0": 7, "1": 0, "2": 0, "3": 0})
