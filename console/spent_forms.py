"""The forms that were carried out, so that a second click on a button does nothing."""

from __future__ import annotations

import secrets
from threading import Lock
from typing import Final

__all__ = ["SpentForms", "form_id"]

#: The forms that are remembered; the oldest one is forgotten first.
_FORMS_MAX: Final = 1_000
_ID_BYTES: Final = 12


def form_id() -> str:
    """Return an id for a form that is carried out once."""
    return secrets.token_urlsafe(_ID_BYTES)


class SpentForms:
    """The ids of forms that were carried out."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._ids: dict[str, None] = {}

    def accept_once(self, text: str) -> bool:
        """Return whether a form is new, and remember it; a form without an id always is."""
        if not text:
            return True
        with self._lock:
            if text in self._ids:
                return False
            if len(self._ids) >= _FORMS_MAX:
                self._ids.pop(next(iter(self._ids)))
            self._ids[text] = None
            return True
