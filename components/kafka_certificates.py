"""Certificates for a broker and its clients, signed by an authority of their own, as files in PEM format."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
)

__all__ = ("Authority",)

_VALIDITY = timedelta(days=3650)


class Authority:
    """Signs certificates for 127.0.0.1.

    Args:
        name: The name of the authority.
        certificate: The file to which its own certificate is written.
    """

    def __init__(self, name: str, certificate: Path) -> None:
        self.certificate = certificate
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(name)
        certificate.write_text(_pem(self._signed(self._name, self._key.public_key(), authority=True)))

    def sign(self, name: str, certificate: Path, key: Path, password: str = "") -> None:
        """Write a new certificate for ``name``, and its key. A key with a ``password`` is encrypted."""
        private = ec.generate_private_key(ec.SECP256R1())
        certificate.write_text(_pem(self._signed(_name(name), private.public_key(), authority=False)))
        hidden: KeySerializationEncryption = NoEncryption()
        if password:
            hidden = BestAvailableEncryption(password.encode())
        key.write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, hidden))

    def _signed(self, name: x509.Name, key: ec.EllipticCurvePublicKey, *, authority: bool) -> x509.Certificate:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder(self._name, name, key, x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + _VALIDITY)
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))]), critical=False)
            .sign(self._key, hashes.SHA256())
        )


def _name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(Encoding.PEM).decode()
