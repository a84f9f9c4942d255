"""TLS for the blocking client, configured by the settings ``tls.client.*``.

Source: TlsHelper.buildSslContext @5.3.3.
"""

from __future__ import annotations

import ssl

from twistmq.broker.errors import SettingsError
from twistmq.broker.net.tls_options import TlsClientOptions
from twistmq.client.shell.tls import client_context

__all__ = ["ssl_context"]


def ssl_context(options: TlsClientOptions) -> ssl.SSLContext:
    """Return the argument ``tls`` of a ``twistmq.client.Client``, from ``tls.client.*``.

    :raises SettingsError: when a file cannot be used; the text contains neither a password nor a
        key.
    """
    files = options.files
    return client_context(
        files.trust, files.cert, files.key, files.password, verify=options.verify,
        check_host=options.check_host, trust_name=f"{files.prefix}.trustCertPath",
        cert_name=f"{files.prefix}.certPath", refuse=SettingsError)
