"""The plan of an export job, made before Spark starts.

Source: ecosystem notes 2.6, on formats that can be written without a jar.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Final

from twistmq.integrations.tables.errors import ShortError

__all__ = ["FORMATS", "MESSAGES", "TRACES", "ExportError", "ExportPlan", "missing_packages"]

#: The names of the two tables, which are also their folders in the output.
MESSAGES: Final = "messages"
TRACES: Final = "traces"
#: The formats, each with the package that it needs in addition to the extra ``spark``.
FORMATS: Final[Mapping[str, str | None]] = {
    "parquet": None, "delta": "deltalake", "iceberg": "pyiceberg"}
_EXTRAS: Final = {"deltalake": "delta", "pyiceberg": "iceberg"}


class ExportError(ShortError, RuntimeError):
    """The job cannot start or continue; the text gives the reason."""


@dataclass(frozen=True, slots=True)
class ExportPlan:
    """The parameters of one run of the job."""

    #: The options of ``format("rocketmq")`` for the connection.
    connection: Mapping[str, str]
    topics: tuple[str, ...]
    traces: bool
    #: A folder, or a URI that Spark can write to.
    output: str
    format: str = "parquet"
    #: Whether the job runs until it is stopped, instead of until it has exported all messages.
    continuous: bool = False
    #: The interval at which a continuous job writes, ms.
    interval_ms: int = 10_000
    #: The largest number of messages in a micro-batch.
    batch_messages: int = 200_000
    master: str = "local[*]"
    #: Additional settings of Spark.
    conf: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check the plan; :raises ExportError: when it names nothing to export or is not possible.
        """
        if not self.topics and not self.traces:
            raise ExportError("nothing to export: name topics by --topic, or let a broker name "
                              "them by its setting spark.export_topics")
        if self.format not in FORMATS:
            raise ExportError(f"format {self.format} is not one of {', '.join(FORMATS)}")
        if self.format != "parquet" and self.local_output is None:
            raise ExportError(f"format {self.format} needs a folder, not {self.output}")

    @property
    def local_output(self) -> Path | None:
        """The folder of the output; None for a remote output."""
        if self.output.startswith("file:"):
            return Path("/" + self.output.removeprefix("file:").lstrip("/"))
        return None if "://" in self.output else Path(self.output).absolute()

    @property
    def tables(self) -> tuple[str, ...]:
        """The tables that the job writes."""
        return ((MESSAGES,) if self.topics else ()) + ((TRACES,) if self.traces else ())

    def path(self, *names: str) -> str:
        """Return a path below the output."""
        root = self.local_output
        return "/".join([self.output.rstrip("/") if root is None else str(root), *names])


def missing_packages(format_name: str) -> str | None:
    """Return a text that names a missing package and how to install it; None if none is missing."""
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
