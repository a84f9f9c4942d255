"""The plugin ``spark_bridge``: names the topics to export, and adds the command that exports them.

A broker advertises what ``spark.export_topics`` and ``spark.export_traces`` say in its runtime
table (request 28, `mqadmin brokerStatus`); ``twistmq spark export`` asks every broker of a name
server for it. The rows are there only where there is something to export. The broker itself
exports nothing and never imports Spark.

Source: AdminBrokerProcessor.prepareRuntimeInfo @5.3.3, for the table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from twistmq.broker.api import Setting, hookimpl
from twistmq.spark_bridge.export_config import EXPORT_TOPICS, EXPORT_TRACES

if TYPE_CHECKING:
    import click

    from twistmq.broker.api import Broker

__all__ = ["Plugin"]


_SETTINGS: Final = (
    Setting("spark.export_topics", "names", (),
            "The topics that `twistmq spark export` exports when it is given none."),
    Setting("spark.export_traces", "flag", False,
            "Whether it exports message traces too."),
)


class Plugin:
    """The exports that one broker names."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    @staticmethod
    @hookimpl
    def register_settings() -> Sequence[Setting]:
        return _SETTINGS

    @staticmethod
    @hookimpl
    def register_commands() -> Sequence[click.Command]:
        from twistmq.spark_bridge.export_command import spark  # only when commands are asked for

        return (spark,)

    @hookimpl
    def add_runtime_info(self) -> Mapping[str, str] | None:
        rows = {}
        topics = self._broker.settings.names("spark.export_topics")
        if topics:
            rows[EXPORT_TOPICS] = ",".join(topics)
        if self._broker.settings.flag("spark.export_traces"):
            rows[EXPORT_TRACES] = "true"
        return rows or None
