"""Reports messages that a query should read but that no longer exist."""

from __future__ import annotations

import logging
from typing import Final

from twistmq.integrations.tables.errors import ShortError

__all__ = ["DataLoss", "report_loss"]

#: The logger for the warning of a query that continues. Spark shows the warning in the standard
#: error of the worker.
_LOG: Final = logging.getLogger("twistmq.tables")


class DataLoss(ShortError, RuntimeError):
    """Messages of the range no longer exist; the text names the topic, the queue and the offset."""


def report_loss(text: str, fails: bool, skipped: str = "") -> None:
    """Raise an error or log a warning about lost messages.

    :param fails: the value of the option failOnDataLoss.
    :param skipped: the second part of the warning, such as "3 offsets are skipped".
    :raises DataLoss: when ``fails`` is true.
    """
    if fails:
        raise DataLoss(f"{text}. Messages may be lost; with the option failOnDataLoss=false "
                       "the remaining ones are read")
    _LOG.warning("%s", f"{text}; {skipped}" if skipped else text)
