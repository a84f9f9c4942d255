"""The plan of an export job, made before Spark starts.

Source: ecosystem notes 2.6 of what can be written without a jar.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Final

from twistmq.spark_bridge.errors import ShortError

__all__ = ["FORMATS", "MESSAGES", "TRACES", "ExportError", "ExportPlan", "missing_packages"]

#: Names of the two tables, as folders of the output.
MESSAGES: Final = "messages"
TRACES: Final = "traces"
#: Formats, and what must be installed for each beside the extra spark.
FORMATS: Final[Mapping[str, str | None]] = {
    "parquet": None, "delta": "deltalake", "iceberg": "pyiceberg"}
_EXTRAS: Final = {"deltalake": "delta", "pyiceberg": "iceberg"}


class ExportError(ShortError, RuntimeError):
    """The job cannot start or continue; the text says why."""


@dataclass(frozen=True, slots=True)
class ExportPlan:
    """One run of the job."""

    #: Options of ``format("rocketmq")`` that say how to connect.
    connection: Mapping[str, str]
    topics: tuple[str, ...]
    traces: bool
    #: A folder, or where Spark can write to.
    output: str
    format: str = "parquet"
    #: Until there is nothing more, or until it is stopped.
    continuous: bool = False
    #: Of a continuous job: how often it writes, ms.
    interval_ms: int = 10_000
    #: Messages it takes at a time.
    batch_messages: int = 200_000
    master: str = "local[*]"
    #: Spark's own settings.
    conf: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """:raises ExportError: when there is nothing to do, or no way to do it."""
        if not self.topics and not self.traces:
            raise ExportError("nothing to export: name topics by --topic, or let a broker name "
                              "them by its setting spark.export_topics")
        if self.format not in FORMATS:
            raise ExportError(f"format {self.format} is not one of {', '.join(FORMATS)}")
        if self.format != "parquet" and self.local_output is None:
            raise ExportError(f"format {self.format} needs a folder, not {self.output}")

    @property
    def local_output(self) -> Path | None:
        """The output's folder; None when it is elsewhere."""
        if self.output.startswith("file:"):
            return Path("/" + self.output.removeprefix("file:").lstrip("/"))
        return None if "://" in self.output else Path(self.output).absolute()

    @property
    def tables(self) -> tuple[str, ...]:
        """The tables that are written."""
        return ((MESSAGES,) if self.topics else ()) + ((TRACES,) if self.traces else ())

    def place(self, *names: str) -> str:
        """A path below the output."""
        root = self.local_output
        return "/".join([self.output.rstrip("/") if root is None else str(root), *names])


def missing_packages(format_name: str) -> str | None:
    """Say what must be installed first; None when nothing is missing."""
    for package, extra in (("pyspark", "spark"), ("pyarrow", "spark"),
                           (FORMATS[format_name], "")):
        if package is None:
            continue
        try:
            import_module(package)
        except ImportError:
            return (f"{package} is not installed: pip install "
                    f"'twistmq[{extra or _EXTRAS[package]}]'")
    return None
