"""Trust stores and key stores of Java clients: PEM, PKCS12 and JKS.

PKCS12 is read by `cryptography`; JKS is converted to it by Java's keytool. As in Java, a store declared
as JKS may be PKCS12 and vice versa.
"""

import base64
import binascii
import os
import re
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, pkcs12

from jobs.sources.client.settings import ClientSettings

STORE_TYPES: Final = ("JKS", "PKCS12", "PEM")
KEYTOOL: Final = "convert it: keytool -importkeystore -srckeystore OLD -destkeystore NEW.p12 -deststoretype PKCS12"

JKS_MAGIC: Final = b"\xfe\xed\xfe\xed"
DER_SEQUENCE: Final = b"\x30"
"""The first byte of each PKCS12 store."""
KEYTOOL_SECONDS_MAX: Final = 120
ENGLISH: Final = ("-J-Duser.language=en", "-J-Dfile.encoding=UTF-8")
"""Of keytool: its messages, and passwords, whatever the locale."""
KEY_ALIAS: Final = re.compile(r"^Alias name: (.*)\n.*\nEntry type: PrivateKeyEntry$", re.MULTILINE)
"""In the output of `keytool -list -v`."""

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
    return Identity(location, _pem_block("PRIVATE KEY", keys[0].private_key) + _pem_chain(keys[0].chain))


def read_store(content: bytes, password: str | None, key_password: str | None = None) -> Store:
    """Read a JKS or PKCS12 store. Without `key_password`, keys are decrypted with the store's password. Raises
    StoreError.

    As in Java, without a password the store's integrity is not checked, and its keys are not available.
    """
    if content.startswith(JKS_MAGIC):
        own_password = None if key_password == password else key_password
        return _read_pkcs12(*_converted(content, password, own_password))
    if b"-----BEGIN " in content:
        raise StoreError("is PEM: set the type to PEM")
    if content.startswith(b"\xce\xce\xce\xce"):
        raise StoreError(f"is JCEKS; {KEYTOOL}")
    if not content.startswith(DER_SEQUENCE):
        raise StoreError("is neither JKS nor PKCS12")
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


# JKS


@cache
def _converted(content: bytes, password: str | None, key_password: str | None) -> tuple[bytes, str]:
    """A JKS store as PKCS12, and its password. With a `key_password`, of its entries only the first key.

    Passwords are passed on in the environment of keytool, which no other user can read. Raises StoreError.
    """
    new_password = secrets.token_hex()
    with tempfile.TemporaryDirectory() as folder:  # no other user can read it
        old, new = Path(folder, "old"), Path(folder, "new")
        old.write_bytes(content)
        passwords = {"OLD": password, "KEY": key_password, "NEW": new_password}
        which: tuple[str, ...] = ()
        if key_password is not None:
            opened = ("-keystore", str(old), "-storetype", "JKS", "-storepass:env", "OLD")
            keys = KEY_ALIAS.findall(_keytool(passwords, "-list", "-v", *opened))
            if not keys:
                raise StoreError("holds no private key")
            which = ("-srcalias", keys[0], "-srckeypass:env", "KEY", "-destkeypass:env", "NEW")
        _keytool(
            passwords,
            *("-importkeystore", "-noprompt", "-srckeystore", str(old), "-srcstoretype", "JKS"),
            *(() if password is None else ("-srcstorepass:env", "OLD")),
            *("-destkeystore", str(new), "-deststoretype", "PKCS12", "-deststorepass:env", "NEW"),
            *which,
        )
        if not new.exists():
            raise StoreError("holds no certificate")
        return new.read_bytes(), new_password


def _keytool(passwords: Mapping[str, str | None], *arguments: str) -> str:
    """Run keytool with passwords in its environment. Returns its output. Raises StoreError."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin" if home else None)
    keytool = Path(java or "java").resolve().with_name("keytool")
    if not keytool.is_file():
        raise StoreError(f"is JKS, which needs Java's keytool, and there is none: set JAVA_HOME, or {KEYTOOL}")
    given = {name: value for name, value in passwords.items() if value is not None}
    try:
        done = subprocess.run(
            [keytool, *ENGLISH, *arguments],
            input=b"" if "OLD" in given else b"\n",  # no password: the store's integrity is not checked
            env={**os.environ, "LC_ALL": "C.UTF-8", **given},
            capture_output=True,
            timeout=KEYTOOL_SECONDS_MAX,
            check=False,
        )
    except (OSError, ValueError, subprocess.TimeoutExpired):
        raise StoreError("cannot be read: keytool does not run") from None
    output = (done.stdout + done.stderr).decode(errors="replace")
    if "password was incorrect" in output:
        raise WrongPassword("is wrong, or the store is damaged")
    if "Cannot recover key" in output or "key password" in output:
        raise WrongPassword(f"is {'wrong' if 'OLD' in given else 'missing'} for the private key in the store")
    if done.returncode != 0:
        raise StoreError("is damaged, or cut off: keytool cannot read it")
    return output
