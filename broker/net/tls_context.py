"""Certificates, keys and trust roots, read from files for Twisted's TLS.

This module imports pyOpenSSL, a package of the extra ``tls``, so it is imported only where TLS is
used. No error and no log line contains a key or a password.

Source: TlsHelper.buildSslContext @5.3.3.
"""

from __future__ import annotations

import datetime
import weakref
from collections.abc import Callable
from typing import Any, Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from cryptography.x509.oid import NameOID
from OpenSSL import SSL, crypto
from service_identity import VerificationError
from twisted.internet.interfaces import (
    IAddress,
    IOpenSSLClientConnectionCreator,
    IOpenSSLServerConnectionCreator,
    IProtocolFactory,
)
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.ssl import (
    Certificate,
    CertificateOptions,
    optionsForClientTLS,
    platformTrust,
    trustRootFromCertificates,
)
from twisted.protocols.tls import TLSMemoryBIOFactory, TLSMemoryBIOProtocol
from twisted.python.failure import Failure
from zope.interface import implementer

from twistmq.broker.errors import SettingsError, SettingUnavailable
from twistmq.broker.net.tls_options import (
    NONE,
    REQUIRE,
    KeyFiles,
    TlsClientOptions,
    TlsServerOptions,
)
from twistmq.broker.store.regular_file import read_named

__all__ = ["ClientCreator", "ServerCreator", "describe", "layer_maker", "secure_factory"]

#: Descriptions of OpenSSL's verification errors by number (x509_vfy.h).
_FAULTS: Final = {
    7: "its signature is wrong", 9: "it is not valid yet", 10: "it has expired",
    18: "it is signed by itself and not trusted", 19: "its chain ends in one that is not trusted",
    20: "its issuer is not trusted", 21: "its issuer is not trusted", 23: "it was revoked",
    24: "its issuer is not an authority", 26: "it is not made for this purpose",
    62: "it is for another host", 64: "it is for another address",
}
#: The validity of a test-mode certificate, days. Each start of the process makes a new one.
_TEST_DAYS: Final = 365


class _Credentials:
    """The certificate, chain and key that one side presents."""

    def __init__(self, files: KeyFiles) -> None:
        """:raises SettingsError: when a file cannot be read or certificate and key do not match."""
        self.arguments: dict[str, Any] = {}
        #: When the certificate expires; None without a certificate.
        self.valid_until: datetime.datetime | None = None
        self.subject = ""
        if not files.cert:
            if files.key:
                raise SettingsError(f"{files.prefix}.certPath: missing, it is required with "
                                    f"{files.prefix}.keyPath")
            return
        chain = _certificates(f"{files.prefix}.certPath", files.cert)
        self._put(chain, _private_key(files))

    def _put(self, chain: list[x509.Certificate], key: Any) -> None:
        own, *others = chain
        self.arguments = {"privateKey": key, "certificate": own, "extraCertChain": others}
        self.valid_until = chain[0].not_valid_after_utc
        self.subject = chain[0].subject.rfc4514_string()

    @classmethod
    def for_test(cls) -> _Credentials:
        """Make a test-mode certificate, which clients cannot verify."""
        credentials = cls(KeyFiles("tls.server"))
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "twistmq test mode")])
        now = datetime.datetime.now(datetime.UTC)
        certificate = (
            x509.CertificateBuilder().subject_name(name).issuer_name(name)
            .public_key(key.public_key()).serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=_TEST_DAYS))
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .sign(key, hashes.SHA256()))
        credentials._put([certificate], key)
        return credentials


def _read(setting: str, path: str) -> bytes:
    try:
        return read_named(path)
    except OSError as error:
        raise SettingUnavailable(f"{setting}: {path}: {error.strerror}") from None


def _certificates(setting: str, path: str) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(_read(setting, path))
    except ValueError:
        raise SettingsError(f"{setting}: {path} contains no PEM certificate") from None


def _private_key(files: KeyFiles) -> Any:
    """Read the private key, which may be in the certificate's file."""
    setting, path = f"{files.prefix}.keyPath", files.key or files.cert
    data = _read(setting, path)
    try:
        return load_pem_private_key(data, files.password.encode() or None)
    except TypeError:
        # A TypeError: either the password is missing, or the key is not encrypted.
        why = ("is not encrypted, and there is a" if files.password
               else "is encrypted, and there is no")
        raise SettingsError(f"{setting}: {path} {why} {files.prefix}.keyPassword") from None
    except (ValueError, UnsupportedAlgorithm):
        why = "or keyPassword is not its password" if files.password else ""
        raise SettingsError(f"{setting}: {path} has no PEM private key {why}".rstrip()) from None


def _trust_root(files: KeyFiles) -> Any:
    if not files.trust:
        return platformTrust()
    certificates = _certificates(f"{files.prefix}.trustCertPath", files.trust)
    return trustRootFromCertificates(
        [Certificate(crypto.X509.from_cryptography(each)) for each in certificates])


def _options(credentials: _Credentials, files: KeyFiles, verify: bool) -> dict[str, Any]:
    arguments = dict(credentials.arguments)
    if verify:
        arguments["trustRoot"] = _trust_root(files)
    return arguments


def _checked(files: KeyFiles, options: CertificateOptions) -> CertificateOptions:
    """Make the context, which checks that key and certificate match."""
    try:
        options.getContext()
    except SSL.Error:
        raise SettingsError(f"{files.prefix}.keyPath: {files.key or files.cert} is not the key of "
                            f"{files.prefix}.certPath {files.cert}") from None
    return options


@implementer(IOpenSSLServerConnectionCreator)
class ServerCreator:
    """Makes the server side of connections.

    :raises SettingsError: when a file cannot be used.
    """

    def __init__(self, options: TlsServerOptions) -> None:
        credentials = (_Credentials.for_test() if options.test_mode
                       else _Credentials(options.files))
        self.valid_until = credentials.valid_until
        self.subject = credentials.subject
        self._verify = options.verify
        self._mode = SSL.VERIFY_NONE
        if options.ask != NONE:
            self._mode = SSL.VERIFY_PEER
            if options.ask == REQUIRE:
                self._mode |= SSL.VERIFY_FAIL_IF_NO_PEER_CERT
        self._options = _checked(options.files, CertificateOptions(
            **_options(credentials, options.files, options.verify)))

    def serverConnectionForTLS(self, protocol: TLSMemoryBIOProtocol) -> SSL.Connection:
        connection = self._options.serverConnectionForTLS(protocol)
        connection.set_verify(self._mode, _verifier(protocol, self._verify))
        return connection


@implementer(IOpenSSLClientConnectionCreator)
class ClientCreator:
    """Makes the client side of connections.

    :param host: the host that is connected to.
    :raises SettingsError: when a file cannot be used.
    """

    def __init__(self, options: TlsClientOptions, host: str) -> None:
        arguments = _options(_Credentials(options.files), options.files, options.verify)
        self._verify = options.verify
        self._options = _checked(options.files, CertificateOptions(**arguments))
        self._for_host: Any = None
        if options.check_host:
            trust = arguments.pop("trustRoot")
            self._for_host = optionsForClientTLS(host, trust, extraCertificateOptions=arguments)

    def clientConnectionForTLS(self, protocol: TLSMemoryBIOProtocol) -> SSL.Connection:
        if self._for_host is not None:
            connection: SSL.Connection = self._for_host.clientConnectionForTLS(protocol)
            return connection
        connection = self._options.clientConnectionForTLS(protocol)
        mode = SSL.VERIFY_PEER if self._verify else SSL.VERIFY_NONE
        connection.set_verify(mode, _verifier(protocol, self._verify))
        return connection


def _verifier(
    protocol: TLSMemoryBIOProtocol, verify: bool
) -> Callable[[SSL.Connection, crypto.X509, int, int, int], bool]:
    """Make OpenSSL's callback for each certificate of a peer; it records the error."""
    # OpenSSL keeps this callback as long as the connection, which Twisted's protocol keeps.
    inside: Callable[[], Any] = weakref.ref(protocol.wrappedProtocol)

    def check(_: SSL.Connection, certificate: crypto.X509, fault: int, depth: int, ok: int) -> bool:
        wrapped = inside()
        if verify and not ok and wrapped is not None:
            subject = certificate.to_cryptography().subject.rfc4514_string()
            why = _FAULTS.get(fault, f"OpenSSL's fault {fault}")
            wrapped.layer.fail_verification(f"its certificate {subject} is refused: {why}")
        return bool(ok) or not verify

    return check


def describe(reason: Failure) -> str:
    """Describe why TLS ended the connection; "" if the reason is not an error of TLS."""
    if reason.check(VerificationError):
        return "its certificate is refused: it is for another host"
    if not reason.check(SSL.Error):
        return ""
    error = reason.value
    assert error is not None
    queue = error.args[0] if error.args and isinstance(error.args[0], list) else []
    return "; ".join(str(item[-1]) for item in queue) or "OpenSSL gives no reason"


def layer_maker(creator: Any, is_client: bool, reactor: Any) -> Callable[[Protocol], Any]:
    """Make the function by which a TlsLayer makes Twisted's protocol.

    :param creator: a :class:`ServerCreator`, a :class:`ClientCreator`, or an object with the same
        method.
    """
    factory = TLSMemoryBIOFactory(creator, is_client, Factory(), reactor)
    return lambda inside: TLSMemoryBIOProtocol(factory, inside)


class _SecureFactory(TLSMemoryBIOFactory):
    """Encrypts the connections of another factory, which may refuse one by returning None."""

    noisy = False

    def buildProtocol(self, addr: IAddress | None) -> Any:
        wrapped = self.wrappedFactory.buildProtocol(addr)
        return None if wrapped is None else self.protocol(self, wrapped)


def secure_factory(
    creator: Any, is_client: bool, factory: IProtocolFactory, reactor: Any
) -> _SecureFactory:
    """Make a factory whose connections are encrypted.

    :param creator: makes the connections of OpenSSL.
    """
    return _SecureFactory(creator, is_client, factory, reactor)
