"""A broker which asks who is there: TLS, SASL and ACLs, on a listener of each kind.

    with SecureBroker(home, tmp_path / "secure") as secure:
        settings = secure.client_settings(SASL_TLS, user="reader", mechanism="SCRAM-SHA-512")   # of a Java client
        file = secure.command_config(tmp_path / "client.properties", settings)
        secure.address_of(SASL_TLS)                                # for --bootstrap-server
        secure.allow("stranger", "TOPIC", "orders", "DESCRIBE")    # ACLs are added, never taken back

Users of SASL: `admin` may do anything, `reader` what reading needs (READER_ACLS), `stranger` nothing; each may log in
with every mechanism. The certificate of `client_settings(MUTUAL)` is `CN=reader`, who may do what `reader` may. The
listener PLAINTEXT is for the tests' own administration: whoever comes in by it, or by TLS alone, is ANONYMOUS, who may
do anything.

Session fixture (conftest.py): `secure`, with two groups in its logs.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tests.live.broker import CLIENT_SETTINGS, LiveBroker
from tests.live.certificates import Authority, Store
from tests.live.kafka_home import KafkaHome
from tests.live.program import write_properties

TLS: Final = "TLS"
WRONG_HOST: Final = "WRONG_HOST"
"""TLS with a certificate for another host."""
MUTUAL: Final = "MUTUAL"
"""TLS which asks for the client's certificate."""
SASL: Final = "SASL"
SASL_TLS: Final = "SASL_TLS"
PROTOCOLS: Final[Mapping[str, str]] = {
    "PLAINTEXT": "PLAINTEXT",
    "CONTROLLER": "PLAINTEXT",
    TLS: "SSL",
    WRONG_HOST: "SSL",
    MUTUAL: "SSL",
    SASL: "SASL_PLAINTEXT",
    SASL_TLS: "SASL_SSL",
}

PLAIN: Final = "PLAIN"
SCRAM: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
MODULES: Final = {
    PLAIN: "org.apache.kafka.common.security.plain.PlainLoginModule",
    **dict.fromkeys(SCRAM, "org.apache.kafka.common.security.scram.ScramLoginModule"),
}

USERS: Final[Mapping[str, str]] = {
    "admin": "admin-7c1e",
    "reader": 'it\'s "quoted", = and \\ too; #1',
    "stranger": "stranger-51f0",
}
"""Passwords by user; the reader's is what a JAAS line has to be careful with."""
STORE_PASSWORD: Final = "store-90ab"

READER_ACLS: Final[Sequence[tuple[str, str, Sequence[str]]]] = (
    ("TOPIC", "*", ("DESCRIBE", "DESCRIBE_CONFIGS")),
    ("TOPIC", "__consumer_offsets", ("READ",)),
    ("TOPIC", "__share_group_state", ("READ",)),
    ("GROUP", "*", ("DESCRIBE", "DESCRIBE_CONFIGS")),
    ("CLUSTER", "kafka-cluster", ("DESCRIBE_CONFIGS",)),
)
"""Resource, name, operations."""


class SecureBroker(LiveBroker):
    """A running broker with an authority of its own, users and ACLs."""

    def __init__(self, home: KafkaHome, folder: Path, settings: Mapping[str, str | int] | None = None) -> None:
        """Start it in a new folder, make its users and the reader's ACLs. `settings` go over its own."""
        folder.mkdir()
        self.authority = Authority(home.tool("keytool"), folder / "certificates", STORE_PASSWORD)
        super().__init__(
            home,
            folder / "broker",
            settings={**CLIENT_SETTINGS, **self._listener_settings(), **(settings or {})},
            listeners=[name for name in PROTOCOLS if name not in ("PLAINTEXT", "CONTROLLER")],
        )
        for user, password in USERS.items():
            for mechanism in SCRAM:
                self.ask({"do": "add_scram_user", "user": user, "password": password, "mechanism": mechanism})
        for user in ("reader", "CN=reader"):
            for resource, name, operations in READER_ACLS:
                self.allow(user, resource, name, *operations)

    def allow(self, user: str, resource: str, name: str, *operations: str) -> None:
        """Add ACLs: operations (DESCRIBE, READ ...) on a TOPIC, GROUP or CLUSTER of a name."""
        self.ask({"do": "allow", "user": user, "resource": resource, "name": name, "operations": operations})

    def client_settings(
        self,
        listener: str,
        *,
        user: str = "reader",
        password: str | None = None,
        mechanism: str = SCRAM[1],
        store_type: str = "PEM",
    ) -> dict[str, str]:
        """What a Java client has to know to come in by a listener, but for the address.

        `password` is the user's own where none is given; `store_type` is that of the trust store, and of the key store
        (MUTUAL).
        """
        settings = {"security.protocol": PROTOCOLS[listener]}
        if PROTOCOLS[listener].endswith("SSL"):
            settings |= store_settings("truststore", self.authority.trust_store(store_type))
        if listener == MUTUAL:
            settings |= store_settings("keystore", self.authority.key_store("reader", store_type=store_type))
        if listener in (SASL, SASL_TLS):
            options = {"username": user, "password": USERS[user] if password is None else password}
            settings |= {"sasl.mechanism": mechanism, "sasl.jaas.config": jaas_line(MODULES[mechanism], options)}
        return settings

    def command_config(self, path: Path, settings: Mapping[str, str]) -> Path:
        """The file for `--command-config`, readable by its owner."""
        path.touch(mode=0o600)
        return write_properties(path, settings)

    def _listener_settings(self) -> dict[str, Any]:
        hosts = {TLS: ("localhost", "127.0.0.1"), WRONG_HOST: ("elsewhere.example",)}
        stores = {name: self.authority.key_store(f"broker-{name.lower()}", hosts[name]) for name in hosts}
        settings: dict[str, Any] = {
            "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in PROTOCOLS.items()),
            "inter.broker.listener.name": "PLAINTEXT",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS;User:admin",
        }
        for name, protocol in PROTOCOLS.items():
            prefix = f"listener.name.{name.lower()}"
            if protocol.endswith("SSL"):
                store = stores.get(name, stores[TLS])
                settings |= {f"{prefix}.{key}": value for key, value in store_settings("keystore", store).items()}
            if name == MUTUAL:
                trusted = store_settings("truststore", self.authority.trust_store())
                settings |= {f"{prefix}.{key}": value for key, value in trusted.items()}
                settings[f"{prefix}.ssl.client.auth"] = "required"
            if protocol.startswith("SASL"):
                settings[f"{prefix}.sasl.enabled.mechanisms"] = ",".join((PLAIN, *SCRAM))
                known = {f"user_{user}": password for user, password in USERS.items()}
                settings[f"{prefix}.plain.sasl.jaas.config"] = jaas_line(MODULES[PLAIN], known)
                for mechanism in SCRAM:
                    settings[f"{prefix}.{mechanism.lower()}.sasl.jaas.config"] = jaas_line(MODULES[mechanism], {})
        return settings


def jaas_line(module: str, options: Mapping[str, str]) -> str:
    """A login module with options, as `sasl.jaas.config` has it: in quotes a backslash escapes."""
    quoted = (f" {name}={json.dumps(value)}" for name, value in options.items())
    return f"{module} required{''.join(quoted)};"


def store_settings(which: str, store: Store) -> dict[str, str]:
    settings = {f"ssl.{which}.type": store.store_type, f"ssl.{which}.location": str(store.path)}
    if store.password is not None:
        settings[f"ssl.{which}.password"] = store.password
        if which == "keystore":
            settings["ssl.key.password"] = store.password
    return settings
