"""Certificates for tests: authorities, and the certificates that they sign, as PEM files."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import NameOID

__all__ = ["Authority", "Pair"]

#: A day, which is long for a test.
_DAY = datetime.timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its key."""

    cert: Path
    key: Path

    def replace(self, other: Pair) -> None:
        """Put another pair in place of this one, as a renewal does."""
        for old, new in ((self.cert, other.cert), (self.key, other.key)):
            new.rename(old)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


class Authority:
    """An authority; its own certificate is the file ``cert``."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self._folder = folder
        self._name = name
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.cert = folder / f"{name}.pem"
        self.cert.write_bytes(self._sign(name, self._key, 0, 1, None, []).public_bytes(
            Encoding.PEM))

    def pair(
        self, name: str, *, hosts: tuple[str, ...] = ("127.0.0.1", "localhost"),
        begins_days: float = -1, ends_days: float = 1, password: str = "",
    ) -> Pair:
        """Sign a certificate.

        :param hosts: the addresses and names it is for.
        :param begins_days: from when it is valid, in days from now.
        :param password: what its key is encrypted with; empty: it is not.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._sign(name, key, begins_days, ends_days, self._name, list(hosts))
        made = Pair(self._folder / f"{name}.crt", self._folder / f"{name}.key")
        made.cert.write_bytes(certificate.public_bytes(Encoding.PEM))
        hidden = BestAvailableEncryption(password.encode()) if password else NoEncryption()
        made.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, hidden))
        return made

    def _sign(
        self, name: str, key: ec.EllipticCurvePrivateKey, begins: float, ends: float,
        issuer: str | None, hosts: list[str],
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder().subject_name(_name(name))
            .issuer_name(_name(issuer or name)).public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + begins * _DAY - _DAY / 24).not_valid_after(now + ends * _DAY)
            .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None),
                           critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(
                self._key.public_key()), False))
        if issuer is None:
            builder = builder.add_extension(x509.KeyUsage(
                digital_signature=True, content_commitment=False, key_encipherment=False,
                data_encipherment=False, key_agreement=False, key_cert_sign=True, crl_sign=True,
                encipher_only=False, decipher_only=False), True)
        if hosts:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_host(each) for each in hosts]), False)
        return builder.sign(self._key, hashes.SHA256())


def _host(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)
