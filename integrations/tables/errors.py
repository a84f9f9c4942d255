"""The base of the errors that the reads and writes of tables raise."""

from __future__ import annotations

__all__ = ["ShortError"]


class ShortError(Exception):
    """An error whose text is a complete description.

    Spark shows the traceback of an error and also the errors that were being handled when it was
    raised. This class suppresses those earlier errors, because its text already contains their
    texts.
    """

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)
        self.__suppress_context__ = True
