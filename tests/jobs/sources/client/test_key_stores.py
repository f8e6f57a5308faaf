"""Trust stores and key stores as the JDK writes them: JKS, PKCS12, and PEM."""

import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from jobs.errors import ClientPropertiesError
from jobs.sources.client.java_properties import PropertiesFile
from jobs.sources.client.key_stores import JKS_MAGIC, StoreError, WrongPassword, read_identity, read_store, read_trusted
from jobs.sources.client.settings import ClientSettings
from tests.jobs.java_says import JavaSays
from tests.live.certificates import Authority

KINDS = ("JKS", "PKCS12")
PASSWORDS = {"JKS": "store-pä55 wörd", "PKCS12": "store-pa55 = word"}
"""Java writes PKCS12 with passwords of ASCII only."""
PASSWORD = PASSWORDS["JKS"]
KEY_PASSWORD = "the kéy's own"


@dataclass(frozen=True)
class Material:
    """A key and certificates, DER."""

    folder: Path
    pem: bytes
    """Key and chain."""
    key: bytes
    chain: tuple[bytes, bytes]
    """The client's, the authority's."""
    authority: bytes

    def key_entry(self, alias: str = "client") -> str:
        """As JavaSays.store takes it."""
        return f"key:{alias}:EC:{self.key.hex()}:{','.join(it.hex() for it in self.chain)}"

    def trusted_entry(self, alias: str) -> str:
        """As JavaSays.store takes it."""
        return f"trusted:{alias}:{self.authority.hex()}"


@pytest.fixture(scope="module")
def material(tmp_path_factory: pytest.TempPathFactory) -> Material:
    """Made once."""
    folder = tmp_path_factory.mktemp("material")
    authority = Authority("", folder / "authority", "")
    pem = authority.key_store("client").path.read_bytes()
    key = serialization.load_pem_private_key(pem, None)
    first, second = (it.public_bytes(Encoding.DER) for it in x509.load_pem_x509_certificates(pem))
    der = key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
    return Material(folder, pem, der, (first, second), authority.certificate.public_bytes(Encoding.DER))


def _settings(values: Mapping[str, str]) -> ClientSettings:
    return ClientSettings(PropertiesFile("it", values, {}))


@pytest.mark.parametrize("kind", KINDS)
def test_all_trusted_certificates_are_read(java: JavaSays, material: Material, tmp_path: Path, kind: str) -> None:
    """A trust store of 30 certificates gives 30, whichever type the setting says: Java opens both by both names."""
    entries = [material.trusted_entry(f"ca-{number}") for number in range(30)]
    path = java.store(tmp_path / "trust", kind, PASSWORDS[kind], entries)
    for said in KINDS:
        values = {
            "ssl.truststore.type": said,
            "ssl.truststore.location": str(path),
            "ssl.truststore.password": PASSWORDS[kind],
        }
        assert read_trusted(_settings(values)) == (material.authority,) * 30


@pytest.mark.parametrize("kind", KINDS)
def test_a_key_and_its_chain_are_read(java: JavaSays, material: Material, tmp_path: Path, kind: str) -> None:
    """The private key is decrypted, and its certificates are in order, the client's own first."""
    path = java.store(tmp_path / "keys", kind, PASSWORDS[kind], [material.key_entry()])
    (entry,) = read_store(path.read_bytes(), PASSWORDS[kind]).keys
    assert (entry.private_key, entry.chain) == (material.key, material.chain)
    values = {"ssl.keystore.type": kind, "ssl.keystore.location": str(path), "ssl.keystore.password": PASSWORDS[kind]}
    identity = read_identity(_settings(values))
    assert identity is not None
    key = serialization.load_pem_private_key(identity.pem, None)
    assert key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption()) == material.key
    assert "PRIVATE" not in repr(identity) + repr(entry)


def test_a_key_of_jks_may_have_its_own_password(java: JavaSays, material: Material, tmp_path: Path) -> None:
    """ssl.key.password opens the key, ssl.keystore.password the store; the error names the one that is wrong."""
    path = java.store(tmp_path / "keys", "JKS", PASSWORD, [material.key_entry()], KEY_PASSWORD)
    values = {"ssl.keystore.location": str(path), "ssl.keystore.password": PASSWORD}
    assert read_identity(_settings({**values, "ssl.key.password": KEY_PASSWORD})) is not None
    with pytest.raises(ClientPropertiesError, match=r"ssl\.key\.password: is wrong for the private key"):
        read_identity(_settings({**values, "ssl.key.password": "another"}))
    with pytest.raises(ClientPropertiesError, match=r"ssl\.keystore\.password: is wrong for the private key"):
        read_identity(_settings(values))
    with pytest.raises(ClientPropertiesError, match=r"ssl\.keystore\.password: is wrong, or the store is damaged"):
        read_identity(_settings({**values, "ssl.keystore.password": "another"}))


@pytest.mark.parametrize("kind", KINDS)
def test_wrong_passwords_are_reported_as_such(java: JavaSays, material: Material, tmp_path: Path, kind: str) -> None:
    """With the setting to blame, the file, and nothing of either password."""
    path = java.store(tmp_path / "trust", kind, PASSWORDS[kind], [material.trusted_entry("ca")])
    values = {"ssl.truststore.location": str(path), "ssl.truststore.password": "hush"}
    with pytest.raises(ClientPropertiesError, match=r"ssl\.truststore\.password: is wrong, or .*trust\)") as caught:
        read_trusted(_settings(values))
    assert "hush" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_trust_store_without_a_password(java: JavaSays, material: Material, tmp_path: Path) -> None:
    """JKS gives its certificates unchecked, as in Java; PKCS12 is encrypted and says that it needs one."""
    jks = java.store(tmp_path / "jks", "JKS", PASSWORD, [material.trusted_entry("ca")])
    assert read_trusted(_settings({"ssl.truststore.location": str(jks)})) == (material.authority,)
    p12 = java.store(tmp_path / "p12", "PKCS12", PASSWORDS["PKCS12"], [material.trusted_entry("ca")])
    with pytest.raises(ClientPropertiesError, match=r"ssl\.truststore\.password: is missing: the store is encrypted"):
        read_trusted(_settings({"ssl.truststore.location": str(p12)}))


def test_a_key_store_serves_as_trust_store(java: JavaSays, material: Material, tmp_path: Path) -> None:
    """Where one store holds a key and trusted certificates, both are trusted."""
    for kind in KINDS:
        entries = [material.key_entry(), material.trusted_entry("ca")]
        path = java.store(tmp_path / kind, kind, PASSWORDS[kind], entries)
        values = {"ssl.truststore.location": str(path), "ssl.truststore.password": PASSWORDS[kind]}
        assert set(read_trusted(_settings(values)) or ()) == {*material.chain, material.authority}


@pytest.mark.parametrize("kind", KINDS)
def test_damage_anywhere_is_an_error_of_stores(java: JavaSays, material: Material, tmp_path: Path, kind: str) -> None:
    """Cut at any byte or with any byte changed a store is refused with a StoreError, with a password and without."""
    path = java.store(tmp_path / "keys", kind, PASSWORDS[kind], [material.key_entry(), material.trusted_entry("ca")])
    content = path.read_bytes()
    count = 25 if kind == "PKCS12" else 2  # keytool is a JVM each time
    step = len(content) // count
    for at in range(0, len(content), step):
        with pytest.raises(StoreError):
            read_store(content[:at], PASSWORDS[kind])
    for at in range(0, len(content), step):
        damaged = content[:at] + bytes([content[at] ^ 0x55]) + content[at + 1 :]
        with pytest.raises(StoreError):
            read_store(damaged, PASSWORDS[kind])


def test_damaged_jks_without_a_password_is_refused() -> None:
    """Nothing checks the content then, and lengths of billions are believed by nobody."""
    entry = b"\x00\x00\x00\x02\x00\x00\x00\x01\x00\x00\x00\x02\x00\x00" + bytes(8)
    with pytest.raises(StoreError, match="is damaged, or cut off"):
        read_store(JKS_MAGIC + entry + b"\x00\x05X.509\xff\xff\xff\xff" + bytes(20), None)


def test_passwords_are_only_in_the_environment_of_keytool(
    java: JavaSays, material: Material, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No command line has one, and of all files that were made none stays."""
    path = java.store(tmp_path / "keys", "JKS", PASSWORD, [material.key_entry()], KEY_PASSWORD)
    commands: list[str] = []
    run = subprocess.run

    def noted(command: list[str], **named: Any) -> Any:
        commands.append(" ".join(map(str, command)))
        return run(command, **named)

    monkeypatch.setattr(subprocess, "run", noted)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = sorted(tmp_path.iterdir())
    assert read_store(path.read_bytes(), PASSWORD, KEY_PASSWORD).keys[0].private_key == material.key
    assert len(commands) == 2
    assert not any(password in command for command in commands for password in (PASSWORD, KEY_PASSWORD))
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    "variables", [{"JAVA_HOME": "/none"}, {"JAVA_HOME": "", "PATH": "/none"}], ids=["home", "path"]
)
def test_jks_without_a_java_says_what_to_do(
    material: Material, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]
) -> None:
    """All other stores are read without one."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(StoreError, match=r"needs Java's keytool, and there is none: set JAVA_HOME, or convert it"):
        read_store(JKS_MAGIC + bytes(40), PASSWORD)
    assert read_trusted(_settings({"ssl.truststore.type": "PEM", "ssl.truststore.certificates": material.pem.decode()}))


def test_other_kinds_of_stores_are_reported(material: Material) -> None:
    """PEM, JCEKS, and what is no store at all, each with its remedy."""
    for content, reason in (
        (material.pem, "is PEM: set the type to PEM"),
        (b"\xce\xce\xce\xce" + bytes(40), "is JCEKS; convert it: keytool"),
        (b"", "is neither JKS nor PKCS12"),
        (b"hello", "is neither JKS nor PKCS12"),
        (b"\x30\x84\xff\xff\xff\xff", "is wrong, or the store is damaged"),
    ):
        with pytest.raises(StoreError, match=reason):
            read_store(content, PASSWORD)
    with pytest.raises(WrongPassword):
        read_store(b"\x30\x03\x02\x01\x03", PASSWORD)


def test_pem_certificates_from_a_file_and_inline(material: Material, tmp_path: Path) -> None:
    """All certificates count, whatever text is between them."""
    pem = b"first:\n" + material.pem + b"\nand a word after it\n"
    path = tmp_path / "trust.pem"
    path.write_bytes(pem)
    in_file = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(path)}
    inline = {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": pem.decode()}
    assert read_trusted(_settings(in_file)) == read_trusted(_settings(inline)) == material.chain


WRONG = {
    "inline certificates without the type": ({"ssl.truststore.certificates": "x"}, "needs ssl.truststore.type=PEM"),
    "inline certificates and a location": (
        {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": "x", "ssl.truststore.location": "y"},
        "only one of them",
    ),
    "no certificate": ({"ssl.truststore.type": "PEM", "ssl.truststore.certificates": "x"}, "holds no certificate"),
    "broken base64": (
        {
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": "-----BEGIN CERTIFICATE-----\n!!\n-----END CERTIFICATE-----",
        },
        "its base64 is broken",
    ),
    "a password and no store": ({"ssl.truststore.password": "hush"}, "is set, but no ssl.truststore.location"),
    "a password of PEM": (
        {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": "x", "ssl.truststore.password": "hush"},
        "is not used with PEM",
    ),
    "another type": ({"ssl.truststore.type": "BCFKS"}, "must be one of JKS, PKCS12, PEM"),
    "a key without its chain": ({"ssl.keystore.key": "hush"}, "is set, but no ssl.keystore.certificate.chain"),
    "a chain without its key": ({"ssl.keystore.certificate.chain": "x"}, "is set, but no ssl.keystore.key"),
    "an inline key without the type": (
        {"ssl.keystore.key": "hush", "ssl.keystore.certificate.chain": "x"},
        "needs ssl.keystore.type=PEM",
    ),
    "no key": (
        {"ssl.keystore.type": "PEM", "ssl.keystore.key": "hush", "ssl.keystore.certificate.chain": "x"},
        "must hold one private key",
    ),
    "a key store's password and no store": ({"ssl.keystore.password": "hush"}, "but no ssl.keystore.location"),
    "a store without its password": ({"ssl.keystore.location": "/dev/null"}, "is not a regular file"),
    "an empty location": ({"ssl.keystore.location": ""}, "is empty"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_combinations_are_reported(name: str) -> None:
    """What Kafka's clients refuse is refused, with the setting to blame and without a value."""
    values, reason = WRONG[name]
    settings = _settings(values)
    with pytest.raises(ClientPropertiesError, match=reason) as caught:
        read_trusted(settings)
        read_identity(settings)
    assert "hush" not in str(caught.value)
