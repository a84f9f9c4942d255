"""The base of the errors that users of the bridge see."""

from __future__ import annotations

__all__ = ["ShortError"]


class ShortError(Exception):
    """An error whose text says everything.

    Spark shows the traceback of an error, and with it the errors that were being handled when it
    was raised. Those are left out: the text of this one names what they said.
    """

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)
        self.__suppress_context__ = True
