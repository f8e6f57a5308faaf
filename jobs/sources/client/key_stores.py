"""Trust stores and key stores of Java clients: PEM, PKCS12 and JKS.

JKS is read here: the packages that read it are unmaintained or new, and the format is small and frozen. PKCS12 is read
by `cryptography`. As in Java, a store declared as JKS may be PKCS12 and vice versa.
"""

import base64
import binascii
import hashlib
import hmac
import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, pkcs12

from jobs.sources.client.settings import ClientSettings

STORE_TYPES: Final = ("JKS", "PKCS12", "PEM")
KEYTOOL: Final = "convert it: keytool -importkeystore -srckeystore OLD -destkeystore NEW.p12 -deststoretype PKCS12"

JKS_MAGIC: Final = b"\xfe\xed\xfe\xed"
JKS_VERSIONS: Final = (1, 2)
JKS_KEY: Final = 1
JKS_CERTIFICATE: Final = 2
JKS_WHITENER: Final = b"Mighty Aphrodite"
"""Constant that Java hashes between password and content (sun.security.provider.JavaKeyStore)."""
SHA1_BYTES: Final = hashlib.sha1(usedforsecurity=False).digest_size
DER_SEQUENCE: Final = 0x30
DER_OCTET_STRING: Final = 0x04

CERTIFICATE: Final = re.compile(
    rb"-----BEGIN (?:TRUSTED |X509 )?CERTIFICATE-----.*?-----END (?:TRUSTED |X509 )?CERTIFICATE-----", re.S
)
PRIVATE_KEY: Final = re.compile(rb"-----BEGIN ([A-Z0-9 ]*)PRIVATE KEY-----.*?-----END \1PRIVATE KEY-----", re.S)


class StoreError(ValueError):
    """A store cannot be read. The message gives the reason, and nothing of the content."""


class WrongPassword(StoreError):
    """Wrong password for the store, or for the key in it."""


@dataclass(frozen=True, slots=True)
class Identity:
    """A private key and its certificate chain, as PEM."""

    key: str
    """The setting to name in errors about them."""
    pem: bytes = field(repr=False)
    """The key, then the chain, beginning with the client's certificate."""
    password: str | None = field(default=None, repr=False)
    is_encrypted: bool = False


@dataclass(frozen=True, slots=True)
class KeyEntry:
    """A decrypted private key of a store (PKCS#8, DER) and its chain (DER), beginning with the client's certificate."""

    alias: str
    private_key: bytes = field(repr=False)
    chain: tuple[bytes, ...] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Store:
    """The content of a store: keys, and trusted certificates (DER)."""

    keys: tuple[KeyEntry, ...]
    trusted: tuple[bytes, ...] = field(repr=False)


def read_trusted(settings: ClientSettings) -> tuple[bytes, ...] | None:
    """The trusted certificates (DER); None where no trust store is set. Raises ClientPropertiesError.

    If the store contains a key, the key's own certificates are trusted too.
    """
    inline, location, password = (f"ssl.truststore.{name}" for name in ("certificates", "location", "password"))
    store_type = _store_type(settings, "ssl.truststore.type")
    if inline in settings:
        if store_type != "PEM":
            raise settings.error(inline, "needs ssl.truststore.type=PEM")
        if location in settings:
            raise settings.error(inline, "and ssl.truststore.location: only one of them may be set")
        key, content = inline, settings.get(inline).encode()
    elif location in settings:
        key, content = location, settings.read(location)
    elif password in settings:
        raise settings.error(password, "is set, but no ssl.truststore.location")
    else:
        return None
    try:
        if store_type == "PEM":
            _refuse(settings, password, "is not used with PEM: leave it out")
            return _pem_certificates(content)
        store = read_store(content, settings.get(password) if password in settings else None)
    except WrongPassword as error:
        raise settings.error(password, f"{error} ({settings.get(location)})") from None
    except StoreError as error:
        raise settings.error(key, str(error)) from None
    trusted = (*store.trusted, *(certificate for entry in store.keys for certificate in entry.chain))
    if not trusted:
        raise settings.error(key, "holds no certificate")
    return trusted


def read_identity(settings: ClientSettings) -> Identity | None:
    """The client's own key and certificates; None where no key store is set. Raises ClientPropertiesError."""
    inline_key, inline_chain = "ssl.keystore.key", "ssl.keystore.certificate.chain"
    location, password = "ssl.keystore.location", "ssl.keystore.password"
    store_type = _store_type(settings, "ssl.keystore.type")
    if inline_key in settings or inline_chain in settings:
        for one, other in ((inline_key, inline_chain), (inline_chain, inline_key)):
            if other not in settings:
                raise settings.error(one, f"is set, but no {other}")
        if store_type != "PEM":
            raise settings.error(inline_key, "needs ssl.keystore.type=PEM")
        _refuse(settings, location, "and ssl.keystore.key: only one of them may be set")
        _refuse(settings, password, "is not used with PEM: the key's own is ssl.key.password")
        content = settings.get(inline_key).encode() + b"\n" + settings.get(inline_chain).encode()
        return _pem_identity(settings, inline_key, content)
    if location not in settings:
        _refuse(settings, password, "is set, but no ssl.keystore.location")
        return None
    content = settings.read(location)
    if store_type == "PEM":
        _refuse(settings, password, "is not used with PEM: the key's own is ssl.key.password")
        return _pem_identity(settings, location, content)
    if password not in settings:
        raise settings.error(location, "needs ssl.keystore.password")
    key_password = settings.get("ssl.key.password") if "ssl.key.password" in settings else None
    try:
        keys = read_store(content, settings.get(password), key_password).keys
    except WrongPassword as error:
        guilty = "ssl.key.password" if "key" in str(error) and key_password is not None else password
        raise settings.error(guilty, f"{error} ({settings.get(location)})") from None
    except StoreError as error:
        raise settings.error(location, str(error)) from None
    if not keys:
        raise settings.error(location, "holds no private key")
    if len(keys) > 1:
        settings.note(location, f"holds {len(keys)} private keys; the first one is used")
    return Identity(location, _pem_block("PRIVATE KEY", keys[0].private_key) + _pem_chain(keys[0].chain))


def read_store(content: bytes, password: str | None, key_password: str | None = None) -> Store:
    """Read a JKS or PKCS12 store. Without `key_password`, keys are decrypted with the store's password. Raises
    StoreError.

    As in Java, without a password the store's integrity is not checked, and its keys are not available.
    """
    if content.startswith(JKS_MAGIC):
        return _read_jks(content, password, password if key_password is None else key_password)
    if b"-----BEGIN " in content:
        raise StoreError("is PEM: set the type to PEM")
    if content.startswith(b"\xce\xce\xce\xce"):
        raise StoreError(f"is JCEKS; {KEYTOOL}")
    if not _is_der_sequence(content):
        raise StoreError("is neither JKS nor PKCS12, or it is cut off")
    return _read_pkcs12(content, password)


def _store_type(settings: ClientSettings, key: str) -> str:
    name = settings.get(key, "JKS").upper()
    if name not in STORE_TYPES:
        raise settings.error(key, f"must be one of {', '.join(STORE_TYPES)}; another store: {KEYTOOL}")
    return name


def _refuse(settings: ClientSettings, key: str, reason: str) -> None:
    if key in settings:
        raise settings.error(key, reason)


# PEM


def _pem_certificates(content: bytes) -> tuple[bytes, ...]:
    blocks = CERTIFICATE.findall(content)
    if not blocks:
        raise StoreError("holds no certificate in PEM form")
    return tuple(_pem_bytes(block) for block in blocks)


def _pem_bytes(block: bytes) -> bytes:
    try:
        return base64.b64decode(b"".join(block.split(b"-----")[2].split()), validate=True)
    except binascii.Error:
        raise StoreError("holds a certificate that is not PEM: its base64 is broken") from None


def _pem_identity(settings: ClientSettings, key: str, content: bytes) -> Identity:
    keys = list(PRIVATE_KEY.finditer(content))
    if len(keys) != 1:
        raise settings.error(key, f"must hold one private key in PEM form, and holds {len(keys)}")
    block = keys[0].group()
    try:
        chain = _pem_certificates(content)
    except StoreError as error:
        raise settings.error(key, str(error)) from None
    password = settings.get("ssl.key.password") if "ssl.key.password" in settings else None
    is_encrypted = b"ENCRYPTED" in block
    if password is not None and not is_encrypted:
        settings.note("ssl.key.password", "is not needed: the private key is not encrypted")
    return Identity(key, block + b"\n" + _pem_chain(chain), password, is_encrypted)


def _pem_chain(chain: Sequence[bytes]) -> bytes:
    return b"".join(_pem_block("CERTIFICATE", certificate) for certificate in chain)


def _pem_block(name: str, content: bytes) -> bytes:
    return f"-----BEGIN {name}-----\n".encode() + base64.encodebytes(content) + f"-----END {name}-----\n".encode()


# PKCS12


def _read_pkcs12(content: bytes, password: str | None) -> Store:
    try:
        store = pkcs12.load_pkcs12(content, None if password is None else password.encode())
    except ValueError:
        raise WrongPassword(
            "is missing: the store is encrypted" if password is None else "is wrong, or the store is damaged"
        ) from None
    except Exception as error:  # unsupported by `cryptography`: an algorithm, a type of key
        raise StoreError(f"cannot be read ({type(error).__name__}); {KEYTOOL}") from None
    others = tuple(it.certificate.public_bytes(Encoding.DER) for it in store.additional_certs)
    if store.key is None or store.cert is None:
        own = () if store.cert is None else (store.cert.certificate.public_bytes(Encoding.DER),)
        return Store((), own + others)
    private_key = store.key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
    alias = (store.cert.friendly_name or b"").decode(errors="replace")
    return Store((KeyEntry(alias, private_key, (store.cert.certificate.public_bytes(Encoding.DER), *others)),), ())


def _is_der_sequence(content: bytes) -> bool:
    """Is the whole content one DER sequence, like every PKCS12 store?"""
    try:
        tag, _, end = _der(content, 0)
    except StoreError:
        return False
    return tag == DER_SEQUENCE and end == len(content)


def _der(content: bytes, at: int) -> tuple[int, bytes, int]:
    """Tag, value and end of the DER element at a position. Raises StoreError."""
    if at + 2 > len(content):
        raise StoreError("is damaged")
    tag, size, start = content[at], content[at + 1], at + 2
    if size & 0x80:
        start += size & 0x7F
        size = int.from_bytes(content[at + 2 : start], "big")
    if start + size > len(content):
        raise StoreError("is damaged")
    return tag, content[start : start + size], start + size


# JKS: sun.security.provider.JavaKeyStore and KeyProtector of the JDK


class _Reader:
    def __init__(self, content: bytes) -> None:
        self._content = content
        self.position = 0

    def take(self, size: int) -> bytes:
        part = self._content[self.position : self.position + size]
        if len(part) < size:
            raise StoreError("is cut off, or damaged")
        self.position += size
        return part

    def int32(self) -> int:
        value: int = struct.unpack(">I", self.take(4))[0]
        return value

    def text(self) -> str:
        size: int = struct.unpack(">H", self.take(2))[0]
        return self.take(size).decode(errors="replace")


def _read_jks(content: bytes, password: str | None, key_password: str | None) -> Store:
    # check the digest first: it distinguishes a wrong password from damage as well as possible
    body, digest = content[:-SHA1_BYTES], content[-SHA1_BYTES:]
    if password is not None:
        hashed = hashlib.sha1(_utf16(password) + JKS_WHITENER + body, usedforsecurity=False).digest()
        if not hmac.compare_digest(hashed, digest):
            raise WrongPassword("is wrong, or the store is damaged")
    reader = _Reader(body)
    reader.take(len(JKS_MAGIC))
    version = reader.int32()
    if version not in JKS_VERSIONS:
        raise StoreError(f"is JKS of version {version}, which Java does not have")
    keys: list[KeyEntry] = []
    trusted: list[bytes] = []
    for _ in range(reader.int32()):
        tag = reader.int32()
        alias = reader.text()
        reader.take(8)  # creation date
        if tag == JKS_KEY:
            protected = reader.take(reader.int32())
            chain = tuple(_jks_certificates(reader, version, reader.int32()))
            private_key = b"" if key_password is None else _unprotected(protected, key_password)
            keys.append(KeyEntry(alias, private_key, chain))
        elif tag == JKS_CERTIFICATE:
            trusted.extend(_jks_certificates(reader, version, 1))
        else:
            raise StoreError(f"holds an entry of kind {tag}, which JKS does not have")
    if reader.position != len(body):
        raise StoreError("is damaged: something follows its entries")
    return Store(tuple(keys), tuple(trusted))


def _jks_certificates(reader: _Reader, version: int, count: int) -> Iterator[bytes]:
    for _ in range(count):
        if version > 1 and (kind := reader.text()) not in ("X.509", "X509"):
            raise StoreError(f"holds a certificate of kind {kind[:20]!r}, not X.509")
        yield reader.take(reader.int32())


def _unprotected(protected: bytes, password: str) -> bytes:
    """Decrypt a private key (PKCS#8, DER): salt, key XOR a hash stream, and a hash that verifies the password."""
    _, info, _ = _der(protected, 0)
    _, _, end = _der(info, 0)  # the algorithm: JKS has only one
    tag, sealed, _ = _der(info, end)
    if tag != DER_OCTET_STRING or len(sealed) < 2 * SHA1_BYTES:
        raise StoreError("is damaged: a private key is not in the form of JKS")
    secret = _utf16(password)
    digest, sealed_key, proof = sealed[:SHA1_BYTES], sealed[SHA1_BYTES:-SHA1_BYTES], sealed[-SHA1_BYTES:]
    stream = bytearray()
    while len(stream) < len(sealed_key):
        digest = hashlib.sha1(secret + digest, usedforsecurity=False).digest()
        stream += digest
    private_key = bytes(one ^ other for one, other in zip(sealed_key, stream, strict=False))
    if not hmac.compare_digest(hashlib.sha1(secret + private_key, usedforsecurity=False).digest(), proof):
        raise WrongPassword("is wrong for the private key in the store")
    return private_key


def _utf16(password: str) -> bytes:
    return password.encode("utf-16-be", "surrogatepass")
