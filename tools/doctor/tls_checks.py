"""Checks of the server's certificate and key, and TLS for connections to name servers."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from twistmq.broker.config.settings import Settings
from twistmq.broker.errors import SettingsError
from twistmq.broker.net.tls_options import (
    DISABLED,
    KeyFiles,
    tls_client_options,
    tls_enabled,
    tls_server_options,
)
from twistmq.tools.doctor.findings import Finding, broken, fine, warning

__all__ = ["client_context", "encrypting_context", "tls_findings"]

_TLS: Final = "TLS"
#: A certificate that expires within this number of days should be renewed.
_DAYS_LEAST: Final = 14
_DAY_MS: Final = 24 * 3600 * 1000


def tls_findings(settings: Settings, now_ms: int) -> Iterator[Finding]:
    """Check the files that a start would load; a server without TLS settings has no findings."""
    try:
        server = tls_server_options(settings)
        client = tls_client_options(settings) if tls_enabled(settings) else None
    except SettingsError as error:
        yield broken(_TLS, str(error), "broker/TLS.md has an example; TLS off is "
                                       "tls.server.mode=disabled")
        return
    if server.mode == DISABLED or not server.is_configured:
        return
    try:
        from twistmq.broker.net.tls_context import ServerCreator

        ServerCreator(server)
    except ImportError as error:
        yield broken(_TLS, f"tls.server.mode={server.mode} needs packages that are not installed "
                           f"({error.name})", "pip install 'twistmq[tls]'")
        return
    except SettingsError as error:
        yield broken(_TLS, str(error),
                     "correct or renew that file; the certificate and the key must match")
        return
    for files in (server.files, *([client.files] if client else [])):
        if files.cert:
            yield _end(files, now_ms)


def _end(files: KeyFiles, now_ms: int) -> Finding:
    """Return a finding about the expiry of a valid certificate."""
    from cryptography.x509 import load_pem_x509_certificates

    certificate = load_pem_x509_certificates(Path(files.cert).read_bytes())[0]
    end = certificate.not_valid_after_utc
    text = f"the certificate {files.cert} ({files.prefix}.certPath) "
    days = (end.timestamp() * 1000 - now_ms) / _DAY_MS
    mend = "renew it: a server takes new files without a restart"
    if days <= 0:
        return broken(_TLS, f"{text}ended at {end:%Y-%m-%d %H:%M} UTC", mend)
    if days < _DAYS_LEAST:
        return warning(_TLS, f"{text}ends in {days:.0f} days", mend)
    return fine(_TLS, f"{text}ends at {end:%Y-%m-%d}")


def client_context(settings: Settings) -> ssl.SSLContext | None:
    """Return the TLS context for connections to name servers; None: no TLS.

    :raises OSError: when a file cannot be used.
    :raises SettingsError: when a setting is not valid.
    """
    return encrypting_context(settings) if tls_enabled(settings) else None


def encrypting_context(settings: Settings) -> ssl.SSLContext:
    """Return the TLS context for connections that a server makes, whether or not it uses TLS.

    :raises OSError: when a file cannot be used.
    :raises SettingsError: when a setting is not valid.
    """
    options = tls_client_options(settings)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = options.check_host
    if options.verify:
        context.load_verify_locations(options.files.trust or None)
    else:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if options.files.cert:
        context.load_cert_chain(options.files.cert, options.files.key or None,
                                options.files.password or None)
    return context
