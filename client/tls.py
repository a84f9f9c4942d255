"""The TLS context of connections, of files.

Source: TlsHelper.buildSslContext @5.3.3.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable

__all__ = ["client_context"]


def client_context(
    trust: str, cert: str, key: str, password: str, *, verify: bool, check_host: bool,
    trust_name: str, cert_name: str, refuse: Callable[[str], Exception],
) -> ssl.SSLContext:
    """Make a context; files are PEM, by path.

    :param trust: whom to trust; "": the system's authorities.
    :param cert: the client's certificate; "" without one.
    :param key: its key; "": in ``cert``.
    :param check_host: counts only where certificates are verified.
    :param trust_name: the name of ``trust`` in errors; so is ``cert_name``.
    :param refuse: makes the exception that is raised when a file cannot be used, of its text, which
        has no password and no key in it.
    """
    try:
        context = ssl.create_default_context(cafile=trust or None)
    except OSError as error:
        raise refuse(f"{trust_name}: {trust}: {error.strerror or error}") from None
    context.check_hostname = verify and check_host
    if not verify:
        context.verify_mode = ssl.CERT_NONE
    if cert:
        try:
            # Without a password to give OpenSSL would ask for one at the terminal.
            context.load_cert_chain(cert, key or None, lambda: password)
        except OSError as error:
            raise refuse(f"{cert_name}: {cert} with its key: "
                         f"{error.strerror or error}") from None
    return context
