"""TLS: contexts for connections, made from files, and TLS over any transport.

Source: TlsHelper.buildSslContext @5.3.3.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable

__all__ = ["TlsPipe", "client_context"]


def client_context(
    trust: str, cert: str, key: str, password: str, *, verify: bool, check_host: bool,
    trust_name: str, cert_name: str, refuse: Callable[[str], Exception],
) -> ssl.SSLContext:
    """Return a TLS context; certificates and keys are paths of PEM files.

    :param trust: the trusted authorities; with "", the system's authorities.
    :param cert: the client's certificate; "" without one.
    :param key: the certificate's key; with "", it is in ``cert``.
    :param check_host: whether to check the host name; used only if certificates are verified.
    :param trust_name: the name of ``trust`` in errors; ``cert_name`` is the name of ``cert``.
    :param refuse: makes the exception to raise when a file cannot be used. Its argument is the
        text of the error, which contains no password and no key.
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
            # Without a password callback, OpenSSL would ask for the password at the terminal.
            context.load_cert_chain(cert, key or None, lambda: password)
        except OSError as error:
            raise refuse(f"{cert_name}: {cert} with its key: "
                         f"{error.strerror or error}") from None
    return context


class TlsPipe:
    """TLS over any transport: ciphertext in and out, plaintext in and out.

    :param context: a TLS context, as for sockets.
    :param host: the name in the server's certificate.

    ``is_open`` is true after the handshake.
    """

    def __init__(self, context: ssl.SSLContext, host: str) -> None:
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        self.is_open = False

    def begin(self) -> bytes:
        """Return the first bytes of the handshake."""
        self._handshake()
        return self._outgoing.read()

    def _handshake(self) -> None:
        try:
            self._tls.do_handshake()
            self.is_open = True
        except ssl.SSLWantReadError:
            pass

    def received(self, data: bytes) -> tuple[bytes, bytes]:
        """Process received ciphertext.

        :returns: the received plaintext, and the ciphertext to send.
        :raises ssl.SSLError: when the server violates TLS, or its certificate is not trusted.
        """
        self._incoming.write(data)
        if not self.is_open:
            self._handshake()
        parts = []
        if self.is_open:
            while True:
                try:
                    part = self._tls.read(1 << 16)
                except ssl.SSLWantReadError:
                    break
                if not part:
                    break
                parts.append(part)
        return b"".join(parts), self._outgoing.read()

    def sent(self, data: bytes) -> bytes:
        """Encrypt plaintext; :returns: the ciphertext to send."""
        self._tls.write(data)
        return self._outgoing.read()
