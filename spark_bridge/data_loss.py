"""The handling of messages that were to be read and are not there any more."""

from __future__ import annotations

import logging
from typing import Final

from twistmq.spark_bridge.errors import ShortError

__all__ = ["DataLoss", "report_loss"]

#: The place of the warning when the query is not to fail: Spark shows it in the worker's standard
#: error.
_LOG: Final = logging.getLogger("twistmq.spark_bridge")


class DataLoss(ShortError, RuntimeError):
    """Messages of the range are not there; the text names topic, queue and offset."""


def report_loss(text: str, fails: bool, skipped: str = "") -> None:
    """Say that messages are lost.

    :param fails: the option failOnDataLoss.
    :param skipped: what is passed over when it is false, such as "3 offsets are skipped".
    :raises DataLoss: when it is true.
    """
    if fails:
        raise DataLoss(f"{text}. Messages may be lost; with the option failOnDataLoss=false "
                       "the remaining ones are read")
    _LOG.warning("%s", f"{text}; {skipped}" if skipped else text)
