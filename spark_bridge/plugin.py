"""The plugin ``spark_bridge``: it advertises the topics to export and adds the export command.

A broker advertises its settings ``spark.export_topics`` and ``spark.export_traces`` in its runtime
table (request 28, `mqadmin brokerStatus`). The command ``twistmq spark export`` requests this table
from each broker of a name server. The table has these rows only if there is something to export.
The broker itself exports nothing and never imports Spark.

Source: AdminBrokerProcessor.prepareRuntimeInfo @5.3.3, which defines the table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from twistmq.broker.api import Setting, hookimpl
from twistmq.spark_bridge.advertised_exports import EXPORT_TOPICS, EXPORT_TRACES

if TYPE_CHECKING:
    import click

    from twistmq.broker.api import Broker

__all__ = ["Plugin"]


_SETTINGS: Final = (
    Setting("spark.export_topics", "names", (),
            "The topics that `twistmq spark export` exports if its options name none."),
    Setting("spark.export_traces", "flag", False,
            "Whether `twistmq spark export` also exports message traces."),
)


class Plugin:
    """Advertises the exports of one broker."""

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
