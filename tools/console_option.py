"""The option ``--console`` of ``twistmq up``, for the command line and for twistd.

The modules of the console are imported only if the option is given.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec

import click

from twistmq.broker.config.settings import Settings
from twistmq.broker.edge.boot import EXIT_USAGE, StartRefused
from twistmq.broker.edge.starter import Companion

__all__ = ["console_companion", "doctor_arguments"]


def doctor_arguments(
    data: str, file: str | None, overrides: Mapping[str, str], brokers: str | None
) -> list[str]:
    """Return the arguments of ``twistmq doctor`` that describe the servers of ``twistmq up``.

    :param brokers: the number of brokers; None: one broker in the process.
    """
    return ["--for", "up", "--data", data, *(["-c", file] if file else []),
            *(["--brokers", brokers] if brokers else []), "--",
            *(f"{name}={value}" for name, value in overrides.items())]


def console_companion(
    settings: Settings, port: int | None, arguments: Sequence[str], *, can_print: bool
) -> Companion:
    """Return the function that opens the console once the servers answer.

    :param settings: the settings of the broker, with the settings of the TLS client.
    :param port: 0: any free port; None: the usual one.
    :param arguments: see :func:`doctor_arguments`.
    :param can_print: whether lines go to a terminal and not to a log.
    :raises StartRefused: as a bad command line, when Jinja2 or a token is missing.
    """
    if find_spec("jinja2") is None:
        raise StartRefused(
            EXIT_USAGE, "the console needs Jinja2: pip install 'twistmq[console]'")
    in_process = import_module("twistmq.console.in_process")

    def make_tls() -> ssl.SSLContext | None:
        from twistmq.broker.net.tls_options import tls_client_options, tls_enabled
        from twistmq.tools.client_tls import ssl_context

        return ssl_context(tls_client_options(settings)) if tls_enabled(settings) else None

    try:
        opener: Companion = in_process.ConsoleOpener(
            port, make_tls, arguments, can_print=can_print,
            accounts=settings.flag("aclEnable") or settings.flag("authenticationEnabled"))
    except click.UsageError as error:
        raise StartRefused(EXIT_USAGE, error.message) from None
    return opener
