"""The token with which a browser logs in: it is new at each start, or comes from the environment.

This module is light, because ``twistmq up --console`` needs it before the console is loaded.
"""

from __future__ import annotations

import os
import secrets
from typing import Final

import click

__all__ = ["TOKEN_VARIABLE", "is_token_given", "start_token"]

#: The environment variable with a token that stays the same from start to start.
TOKEN_VARIABLE: Final = "TWISTMQ_CONSOLE_TOKEN"
#: The length of such a token at least; it is the only secret between a browser and the brokers.
TOKEN_CHARS_MIN: Final = 20
_TOKEN_BYTES: Final = 24


def is_token_given() -> bool:
    """Return whether the environment has a token."""
    return bool(os.environ.get(TOKEN_VARIABLE))


def start_token() -> str:
    """Return the token of the environment, or a new one.

    :raises click.UsageError: when the one of the environment is short.
    """
    token = os.environ.get(TOKEN_VARIABLE, "")
    if token and len(token) < TOKEN_CHARS_MIN:
        raise click.UsageError(f"{TOKEN_VARIABLE} is shorter than {TOKEN_CHARS_MIN} characters")
    return token or secrets.token_urlsafe(_TOKEN_BYTES)
