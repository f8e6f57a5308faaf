"""Secrets of a client's file stay there: twelve of them, looked for wherever a real job leaves something behind."""

import json
import os
import socket
import subprocess
import threading
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)
from deltalake import DeltaTable

from tests.conftest import PROJECT_ROOT
from tests.lengths import is_long
from tests.live.secure import READER_ACLS, SASL_TLS, SecureBroker, jaas_line

SCRAM: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTH: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
PROVIDER: Final = "org.apache.kafka.common.config.provider"
USER: Final = "keeper"
JOB_TIMEOUT_S: Final = 240
POLL_S: Final = 0.2

CANARIES: Final[Mapping[str, str]] = {
    name: f"canary-{number:02}-{name.replace(' ', '')}"
    for number, name in enumerate(
        (
            "password in the environment",
            "password of the JAAS line",
            "wrong password",
            "another option of the JAAS line",
            "password of the trust store, from a file",
            "password of the key store",
            "password of the key in PEM",
            "client secret",
            "passphrase",
            "claim of a token",
            "password of another client",
        )
    )
}
"""Place -> the secret. The twelfth is the private key itself, whose letters are not ours to choose."""


@dataclass
class Sinks:
    """All that a job has left behind, as bytes, by where."""

    found: dict[str, list[bytes]] = field(default_factory=dict)

    def add(self, sink: str, *contents: bytes | str) -> None:
        """Keep some of it."""
        self.found.setdefault(sink, []).extend(it.encode() if isinstance(it, str) else it for it in contents)

    def hits(self, secrets: Mapping[str, bytes]) -> list[tuple[str, str]]:
        """(sink, name of the secret) for each that is in it."""
        return [
            (sink, name)
            for sink, contents in self.found.items()
            for name, secret in secrets.items()
            if any(secret in content for content in contents)
        ]


@dataclass(frozen=True)
class Inputs:
    """The files of some clients, and what they hold."""

    broker: SecureBroker
    files: Mapping[str, Path]
    environment: Mapping[str, str]
    secrets: Mapping[str, bytes]


@pytest.fixture(scope="module")
def inputs(secure: SecureBroker, tmp_path_factory: pytest.TempPathFactory) -> Inputs:
    """A user who may read, whose password comes from the environment, and files of every kind of secret."""
    folder = tmp_path_factory.mktemp("secrets")
    password = CANARIES["password in the environment"]
    secure.ask({"do": "add_scram_user", "user": USER, "password": password, "mechanism": "SCRAM-SHA-512"})
    for resource, name, operations in READER_ACLS:
        secure.allow(USER, resource, name, *operations)
    pem = secure.authority.key_store(USER).path.read_bytes()
    key = load_pem_private_key(pem, None)
    assert isinstance(key, RSAPrivateKey | EllipticCurvePrivateKey)
    chain = x509.load_pem_x509_certificates(pem)
    trust_password, key_password = (
        CANARIES[f"password of the {it}"] for it in ("trust store, from a file", "key store")
    )
    trusted = [pkcs12.PKCS12Certificate(secure.authority.certificate, b"ca")]
    (folder / "trust.p12").write_bytes(
        pkcs12.serialize_java_truststore(trusted, BestAvailableEncryption(trust_password.encode()))
    )
    (folder / "keys.p12").write_bytes(
        pkcs12.serialize_key_and_certificates(
            b"own",
            key,
            chain[0],
            chain[1:],
            BestAvailableEncryption(key_password.encode()),
        )
    )
    (folder / "more.properties").write_text(f"trust={trust_password}\n")
    sealed = BestAvailableEncryption(CANARIES["password of the key in PEM"].encode())
    sealed_key = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, sealed).decode()
    base = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "config.providers": "env,file",
        "config.providers.env.class": f"{PROVIDER}.EnvVarConfigProvider",
        "config.providers.file.class": f"{PROVIDER}.FileConfigProvider",
        "ssl.truststore.location": str(folder / "trust.p12"),
        "ssl.truststore.password": f"${{file:{folder}/more.properties:trust}}",
        "sasl.oauthbearer.client.credentials.client.secret": CANARIES["client secret"],
        "sasl.oauthbearer.assertion.private.key.passphrase": CANARIES["passphrase"],
        "other.client.password": CANARIES["password of another client"],
    }
    extra = {"notUsed": CANARIES["another option of the JAAS line"]}
    right = {"username": USER, "password": "${env:KEEPER_PASSWORD}", **extra}
    wrong = {"username": USER, "password": CANARIES["wrong password"], **extra}
    keys = {
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": str(folder / "keys.p12"),
        "ssl.keystore.password": CANARIES["password of the key store"],
    }
    inline = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": sealed_key,
        "ssl.keystore.certificate.chain": pem[pem.index(b"-----BEGIN CERT") :].decode(),
        "ssl.key.password": CANARIES["password of the key in PEM"],
    }
    token = {"unsecuredLoginStringClaim_sub": CANARIES["claim of a token"]}
    contents = {
        "right": {**base, **keys, "sasl.jaas.config": jaas_line(SCRAM, right)},
        "wrong password": {**base, **inline, "sasl.jaas.config": jaas_line(SCRAM, wrong)},
        "wrong mechanism": {
            **base,
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.jaas.config": jaas_line(OAUTH, token),
        },
        "wrong user": {
            **base,
            "sasl.jaas.config": jaas_line(SCRAM, {"password": CANARIES["password of the JAAS line"], **extra}),
        },
    }
    files = {}
    for name, values in contents.items():
        files[name] = folder / f"{name}.properties"
        files[name].touch(mode=0o600)
        files[name].write_text("".join(f"{key}={_escaped(value)}\n" for key, value in values.items()))
    letters = "".join(sealed_key.splitlines()[2:4])
    secrets = {name: secret.encode() for name, secret in CANARIES.items()} | {"private key": letters[:32].encode()}
    return Inputs(secure, files, {"KEEPER_PASSWORD": password}, secrets)


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n")


def _free_port() -> int:
    with socket.socket() as it:
        it.bind(("127.0.0.1", 0))
        port: int = it.getsockname()[1]
        return port


def _watch_ui(port: int, sinks: Sinks, ended: threading.Event) -> None:
    """Read the pages of Spark's UI and its REST answers, again and again, until the job has ended."""
    root = f"http://127.0.0.1:{port}"
    while not ended.wait(POLL_S):
        try:
            applications = json.loads(_page(f"{root}/api/v1/applications"))
            api = f"{root}/api/v1/applications/{applications[0]['id']}"
            names = (
                "environment",
                "jobs",
                "stages?details=true",
                "sql?details=true&planDescription=true",
                "allexecutors",
            )
            pages = [_page(f"{api}/{name}") for name in names]
            pages += [_page(f"{root}/{name}/") for name in ("environment", "jobs", "stages", "SQL", "executors")]
            sinks.add("Spark's configuration", pages[0])
            sinks.add("UI", *pages[1:])
        except (OSError, ValueError, IndexError):
            continue


def _page(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=5) as answer:
        content: bytes = answer.read()
        return content


def _run(inputs: Inputs, folder: Path, address: str, file: Path, *, debug: bool = False) -> tuple[int, Sinks]:
    """Run the real job, and gather what it leaves in the six places."""
    events, warehouse = folder / "events", folder / "warehouse"
    events.mkdir(parents=True)
    port = _free_port()
    conf = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": events.as_uri(),
        "spark.ui.enabled": "true",
        "spark.ui.port": str(port),
        "spark.log.level": "INFO",
        # the second line of defence: what somebody hands to Spark all the same is not shown
        "spark.hadoop.kafka.sasl.jaas.config": CANARIES["password of the JAAS line"],
        "spark.executorEnv.CLIENT_PASSWORD": CANARIES["client secret"],
    }
    words = [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]
    job = ["capture", "--bootstrap-server", address, "--command-config", str(file), "--warehouse", str(warehouse)]
    process = subprocess.Popen(
        [str(PROJECT_ROOT / "spark-submit.sh"), *words, *job, *(["--debug"] if debug else [])],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env={**os.environ, **inputs.environment, "GROUPLEDGER_SOURCES_REQUEST_TIMEOUT_MS": "6000"},
    )
    sinks = Sinks()
    ended = threading.Event()
    watcher = threading.Thread(target=_watch_ui, args=(port, sinks, ended))
    watcher.start()
    try:
        output, errors = process.communicate(timeout=JOB_TIMEOUT_S)
    finally:
        process.kill()
        ended.set()
        watcher.join()
    sinks.add("output", output)
    sinks.add("driver's log and exceptions", errors)
    sinks.add("event log", *(path.read_bytes() for path in events.rglob("*") if path.is_file()))
    for path in warehouse.rglob("*"):
        if path.is_file() and path.suffix != ".parquet":
            sinks.add("logs of tables", path.read_bytes(), str(path))
    for log in warehouse.rglob("_delta_log"):
        rows = DeltaTable(log.parent).to_pyarrow_table()
        sinks.add("tables", *(repr(column.to_pylist()) for column in rows.columns), str(rows.schema))
    return process.returncode, sinks


RUNS: Final[Mapping[str, tuple[str, int, str]]] = {
    "right": ("", 0, ""),
    "wrong password": ("", 1, "password"),
    "wrong mechanism": ("", 1, "OAUTHBEARER"),
    "unknown host": ("no-such-host.invalid:9092", 1, "no-such-host.invalid"),
}
"""Run -> address, where it is not the broker's; exit code; what the one line of the error says."""
IN_SHORT: Final = ("right", "wrong password")


@pytest.mark.parametrize("name", RUNS if is_long() else IN_SHORT)
def test_no_secret_is_left_anywhere(inputs: Inputs, tmp_path: Path, name: str) -> None:
    """Whether the job succeeds or fails: twelve secrets, six places, no hit."""
    address, expected, said = RUNS[name]
    file = inputs.files[name if name in inputs.files else "right"]
    code, sinks = _run(inputs, tmp_path, address or inputs.broker.address_of(SASL_TLS), file, debug=bool(expected))
    errors = b"".join(sinks.found["driver's log and exceptions"]).decode()
    assert code == expected, errors[-3000:]
    assert said in errors
    # that there was something to find, in each place
    assert b"spark.app.name" in b"".join(sinks.found["Spark's configuration"])
    assert b"groupledger capture" in b"".join(sinks.found["UI"])
    assert b"SparkListenerApplicationStart" in b"".join(sinks.found["event log"])
    if not expected:
        assert b"__consumer_offsets" in b"".join(sinks.found["tables"])
        assert b"commitInfo" in b"".join(sinks.found["logs of tables"])
    assert sinks.hits(inputs.secrets) == []


def test_secrets_would_be_found(inputs: Inputs) -> None:
    """Each of the twelve is in the files or the environment, and a place that showed one would be found."""
    assert len(inputs.secrets) == 12
    given = Sinks()
    given.add("files", *(path.read_bytes().replace(b"\\n", b"") for path in inputs.files.values()))
    given.add("files", *(path.read_bytes() for path in inputs.files["right"].parent.glob("more.properties")))
    given.add("files", *inputs.environment.values())
    assert sorted(name for _, name in given.hits(inputs.secrets)) == sorted(inputs.secrets)
