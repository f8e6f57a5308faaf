"""Make a Python SSL context from the ssl.* settings: protocols, cipher suites, trust store, key store, host names."""

import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from jobs.sources.client.key_stores import Identity, read_identity, read_trusted
from jobs.sources.client.settings import ClientSettings

PROTOCOLS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
OLDER_PROTOCOLS: Final = frozenset({"TLSv1", "TLSv1.1", "SSL", "SSLv2", "SSLv2Hello", "SSLv3"})
"""Java itself no longer negotiates these (jdk.tls.disabledAlgorithms)."""
TLS_1_3_SUITES: Final = frozenset({"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"})


def make_ssl_context(settings: ClientSettings) -> ssl.SSLContext:
    """The context that a Java client would make of the same settings.

    As in Java, any certificate in the trust store is a trust anchor, whether self-signed or not, and without a trust
    store the system's authorities are trusted. Raises ClientPropertiesError.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = _checks_host_names(settings)
    _limit_protocols(context, settings)
    trusted = read_trusted(settings)
    if trusted is None:
        context.load_default_certs()
    else:
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        try:
            context.load_verify_locations(cadata=b"".join(trusted))
        except ssl.SSLError:
            keys = ("ssl.truststore.certificates", "ssl.truststore.location")
            key = next(key for key in keys if key in settings)
            raise settings.error(key, "holds a certificate that OpenSSL cannot read") from None
    identity = read_identity(settings)
    if identity is not None:
        _load_identity(context, identity, settings)
    return context


def _checks_host_names(settings: ClientSettings) -> bool:
    key = "ssl.endpoint.identification.algorithm"
    algorithm = settings.get(key, "https")
    if algorithm.lower() not in ("https", ""):
        raise settings.error(key, "must be https, or empty: then host names are not checked")
    return algorithm != ""


def _limit_protocols(context: ssl.SSLContext, settings: ClientSettings) -> None:
    """Set protocol bounds: ssl.protocol is the newest version, ssl.enabled.protocols lists all; cipher suites of one
    version only exclude the other versions."""
    names = _known_protocols(settings, "ssl.enabled.protocols", tuple(PROTOCOLS))
    newest = settings.get("ssl.protocol", "TLSv1.3")
    if newest not in ("TLS", *_known_protocols(settings, "ssl.protocol", ("TLSv1.3",))):
        raise settings.error("ssl.protocol", f"must be one of TLS, {', '.join(PROTOCOLS)}")
    if newest == "TLSv1.2":
        names = tuple(name for name in names if name == "TLSv1.2")
        if not names:
            raise settings.error("ssl.protocol", "leaves none of ssl.enabled.protocols")
    suites = settings.names("ssl.cipher.suites")
    if suites:
        names = _limit_suites(context, settings, suites, names)
    context.minimum_version = PROTOCOLS[min(names)]
    context.maximum_version = PROTOCOLS[max(names)]


def _known_protocols(settings: ClientSettings, key: str, default: tuple[str, ...]) -> tuple[str, ...]:
    given = settings.names(key) or default
    unknown = [name for name in given if name not in PROTOCOLS and name not in OLDER_PROTOCOLS and name != "TLS"]
    known = tuple(name for name in given if name in PROTOCOLS)
    if unknown or (not known and "TLS" not in given):
        raise settings.error(key, f"must name {' or '.join(PROTOCOLS)}; Java itself has given up the older ones")
    return known


def _limit_suites(
    context: ssl.SSLContext, settings: ClientSettings, suites: tuple[str, ...], names: tuple[str, ...]
) -> tuple[str, ...]:
    """Set the cipher suites, and return the protocols that have one of them."""
    key = "ssl.cipher.suites"
    older = [openssl_suite(suite) for suite in suites if suite not in TLS_1_3_SUITES]
    if older:
        try:
            context.set_ciphers(":".join(older))
        except ssl.SSLError:
            raise settings.error(key, "names no cipher suite that OpenSSL has") from None
        known = {str(cipher["name"]) for cipher in context.get_ciphers()}
        if set(older) - known:
            raise settings.error(key, "names a cipher suite that OpenSSL does not have, or holds to be weak")
    newer = TLS_1_3_SUITES.intersection(suites)
    if newer and newer != TLS_1_3_SUITES and "TLSv1.3" in names:
        settings.note(key, "Python cannot choose among the suites of TLSv1.3: all three are offered")
    names = tuple(name for name in names if (newer if name == "TLSv1.3" else older))
    if not names:
        raise settings.error(key, "has no suite of the enabled protocols")
    return names


def openssl_suite(name: str) -> str:
    """TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384 -> ECDHE-RSA-AES256-GCM-SHA384, for suites up to TLSv1.2.

    Source of the rule: https://docs.openssl.org/3.0/man1/openssl-ciphers (names of cipher suites).
    """
    exchange, _, cipher = name.removeprefix("TLS_").partition("_WITH_")
    exchange = exchange.removeprefix("RSA").replace("_", "-")
    cipher = cipher.replace("AES_", "AES").replace("_CBC", "").replace("POLY1305_SHA256", "POLY1305").replace("_", "-")
    return f"{exchange}-{cipher}".lstrip("-")


def _load_identity(context: ssl.SSLContext, identity: Identity, settings: ClientSettings) -> None:
    """Load certificate and key. OpenSSL reads them only from a file: it gets one in memory, or one that is deleted
    at once."""
    with _private_file(identity.pem) as path:
        try:
            context.load_cert_chain(path, password=lambda: identity.password or "")
        except ssl.SSLError as error:
            raise settings.error(identity.key, _why_not_loaded(error, identity)) from None
        except (ValueError, TypeError):
            raise settings.error("ssl.key.password", "is longer than OpenSSL takes") from None


def _why_not_loaded(error: ssl.SSLError, identity: Identity) -> str:
    if error.reason == "KEY_VALUES_MISMATCH":
        return "the private key does not belong to the first certificate of the chain"
    if error.reason in ("EE_KEY_TOO_SMALL", "CA_MD_TOO_WEAK", "CA_KEY_TOO_SMALL"):
        return "OpenSSL holds the key or the signature of the certificate to be too weak"
    if identity.is_encrypted:
        needed = "ssl.key.password is missing" if identity.password is None else "ssl.key.password is wrong"
        return f"the private key cannot be decrypted: {needed}"
    return "OpenSSL cannot read the private key and its certificates"


@contextmanager
def _private_file(content: bytes) -> Iterator[str]:
    """The path of a file that only this user can read: in memory where the system supports that, else in the temp
    folder."""
    if hasattr(os, "memfd_create") and Path("/proc/self/fd").is_dir():
        number = os.memfd_create("groupledger", os.MFD_CLOEXEC)
        with os.fdopen(number, "wb") as file:
            file.write(content)
            file.flush()
            yield f"/proc/self/fd/{number}"
        return
    number, path = tempfile.mkstemp(prefix="groupledger-")  # readable only by its owner
    try:
        with os.fdopen(number, "wb") as file:
            file.write(content)
        yield path
    finally:
        Path(path).unlink(missing_ok=True)
