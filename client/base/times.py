"""Points in time that a program gives to the client, for every argument and option that takes one.

A point in time is a ``datetime`` or a number of seconds since 1970, as ``time.time()`` returns it.
A datetime without a time zone is in the local zone, as everywhere in Python.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from twistmq.client.base.errors import OptionError

__all__ = ["TIMESTAMP_S_MAX", "Time", "unix_ms"]

#: A point in time: a datetime, or seconds since 1970.
Time = datetime | float

#: The end of the year 9999, in seconds since 1970. A time of today in ms is greater.
TIMESTAMP_S_MAX: Final = 253_402_300_799.999


def unix_ms(time: object, name: str) -> int:
    """Return a point in time that a program gave, in Unix ms.

    :param time: a datetime, or seconds since 1970.
    :param name: the name of the argument, which the error contains.
    :raises OptionError: when it is neither, or not within the years that a datetime can have.
    """
    seconds: object = time
    if isinstance(time, datetime):
        try:
            seconds = time.timestamp()
        except (ValueError, OverflowError, OSError) as error:
            # The local zone may move the first and the last day out of these years.
            raise OptionError(f"{name} is {time!r}: {error}") from None
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise OptionError(f"{name} is {time!r}: give a datetime, or seconds since 1970")
    if not abs(seconds) <= TIMESTAMP_S_MAX:
        raise OptionError(f"{name} is {time!r}, which is not within the years 1 to 9999: give "
                          "seconds since 1970, not milliseconds")
    return round(seconds * 1000)
