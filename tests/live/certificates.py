"""Certificates of a test's own authority, for brokers and clients, in every kind of store that Kafka's clients read."""

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import NameOID

STORES: Final = ("PEM", "PKCS12", "JKS")
VALID: Final = timedelta(days=2)
EARLIER: Final = timedelta(hours=1)
"""For clocks that differ."""
KEYTOOL_TIMEOUT_S: Final = 30
SUFFIXES: Final = {"PEM": "pem", "PKCS12": "p12", "JKS": "jks"}


@dataclass(frozen=True, slots=True)
class Store:
    """A file of certificates, maybe with a private key."""

    path: Path
    store_type: str
    """One of STORES."""
    password: str | None
    """None where it is not encrypted."""


class Authority:
    """Issues certificates; its own is the only one that clients need to trust."""

    def __init__(self, keytool: str, folder: Path, password: str) -> None:
        """Files go into a new folder, which it is called by; `password` locks the stores which it makes."""
        folder.mkdir()
        self._keytool = keytool
        self._folder = folder
        self._password = password
        self._key = ec.generate_private_key(ec.SECP256R1())
        name = _name(folder.name)
        self.certificate = (
            _certificate(name, name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .sign(self._key, hashes.SHA256())
        )

    def trust_store(self, store_type: str = "PEM") -> Store:
        """The authority's certificate, as clients trust it."""
        path = self._folder / f"trust.{SUFFIXES[store_type]}"
        pem = self._folder / "trust.pem"
        pem.write_bytes(self.certificate.public_bytes(serialization.Encoding.PEM))
        if store_type == "PEM":
            return Store(path, store_type, None)
        if not path.exists():
            self._run("-importcert", "-noprompt", "-alias", "tests", "-file", str(pem), *self._to(path, store_type))
        return Store(path, store_type, self._password)

    def key_store(self, common_name: str, hosts: Sequence[str] = (), store_type: str = "PEM") -> Store:
        """A key, and a certificate for it: `hosts` are DNS names and addresses, none for a client."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = _certificate(_name(common_name), self.certificate.subject, key.public_key())
        if hosts:
            certificate = certificate.add_extension(x509.SubjectAlternativeName(map(_host, hosts)), critical=False)
        signed = certificate.sign(self._key, hashes.SHA256())
        path = self._folder / f"{common_name}.{SUFFIXES[store_type]}"
        if store_type == "PEM":
            private = key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
            chain = [it.public_bytes(serialization.Encoding.PEM) for it in (signed, self.certificate)]
            path.write_bytes(private + b"".join(chain))
            return Store(path, store_type, None)
        p12 = self._folder / f"{common_name}.p12"
        encryption = serialization.BestAvailableEncryption(self._password.encode())
        p12.write_bytes(pkcs12.serialize_key_and_certificates(b"tests", key, signed, [self.certificate], encryption))
        if store_type == "JKS":
            source = ("-srckeystore", str(p12), "-srcstoretype", "PKCS12", "-srcstorepass", self._password)
            to = ("-destkeystore", str(path), "-deststoretype", "JKS", "-deststorepass", self._password)
            self._run("-importkeystore", "-noprompt", *source, *to)
        return Store(path, store_type, self._password)

    def _to(self, path: Path, store_type: str) -> Sequence[str]:
        return ("-keystore", str(path), "-storetype", store_type, "-storepass", self._password)

    def _run(self, *words: str) -> None:
        subprocess.run([self._keytool, *words], check=True, capture_output=True, timeout=KEYTOOL_TIMEOUT_S)


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _certificate(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - EARLIER)
        .not_valid_after(now + VALID)
    )


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)
