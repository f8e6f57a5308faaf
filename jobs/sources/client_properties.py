"""Convert a Java client's .properties file, unchanged, to kafka-python arguments: trust, authentication, time-outs.

Every setting of Kafka's clients is known. Settings that would run foreign code in a Java client (login modules,
classes) or send secrets elsewhere (URLs) are refused, and so are misspelled names of security settings. Settings
without effect here are ignored with a note. Reading a file opens no connection and starts nothing.
"""

import os
import re
import shlex
import socket
import ssl
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit
from urllib.request import url2pathname

from jobs.errors import ClientPropertiesError
from jobs.sources.client.config_providers import PROVIDERS, resolve_variables
from jobs.sources.client.jaas import JaasError, LoginModule, parse_login_contexts, parse_login_modules
from jobs.sources.client.java_properties import PropertiesFile, parse_properties, printable, read_bounded
from jobs.sources.client.known_settings import CLASSES, CONNECTION, OTHER, SECURITY
from jobs.sources.client.settings import ClientSettings, find_file
from jobs.sources.client.tls import make_ssl_context

if TYPE_CHECKING:
    from jobs.sources.client.oauth import TokenProvider

CLIENT_ID: Final = "groupledger"
VALUE_CHARS_MAX: Final = 16 << 10
PEM_SETTINGS: Final = frozenset({"ssl.truststore.certificates", "ssl.keystore.certificate.chain", "ssl.keystore.key"})
"""These values may contain many certificates of many lines."""
MANY_LINES: Final = PEM_SETTINGS | {"sasl.jaas.config"}
SECRETS: Final = re.compile(r"password|passphrase|secret|^ssl\.keystore\.key$")

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
PLAIN: Final = "PLAIN"
SCRAM: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
GSSAPI: Final = "GSSAPI"
OAUTHBEARER: Final = "OAUTHBEARER"
AWS_MSK_IAM: Final = "AWS_MSK_IAM"
LOGIN_MODULES: Final[Mapping[str, tuple[str, ...]]] = {
    PLAIN: ("org.apache.kafka.common.security.plain.PlainLoginModule",),
    **dict.fromkeys(SCRAM, ("org.apache.kafka.common.security.scram.ScramLoginModule",)),
    GSSAPI: ("com.sun.security.auth.module.Krb5LoginModule",),
    OAUTHBEARER: ("org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",),
    AWS_MSK_IAM: ("software.amazon.msk.auth.iam.IAMLoginModule",),
}
"""SASL mechanism -> its login modules; others are refused."""
PACKAGES: Final = {GSSAPI: "gssapi", AWS_MSK_IAM: "botocore"}
"""Python packages that kafka-python needs for a mechanism, and that are not dependencies of the project."""

MILLISECONDS: Final[Mapping[str, str]] = {
    "connections.max.idle.ms": "connections_max_idle_ms",
    "metadata.max.age.ms": "metadata_max_age_ms",
    "reconnect.backoff.ms": "reconnect_backoff_ms",
    "reconnect.backoff.max.ms": "reconnect_backoff_max_ms",
    "socket.connection.setup.timeout.ms": "socket_connection_setup_timeout_ms",
    "socket.connection.setup.timeout.max.ms": "socket_connection_setup_timeout_max_ms",
}
"""Kafka's name -> kafka-python's name."""
INT_MAX: Final = 2**31 - 1
DNS_LOOKUPS: Final = ("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only")

SOCKET_OPTIONS: Final = ((socket.IPPROTO_TCP, socket.TCP_NODELAY, 1), (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1))
"""kafka-python's own defaults, which it drops when others are given."""

JAAS: Final = "sasl.jaas.config"
KNOWN: Final = SECURITY | CONNECTION | OTHER
KINIT: Final = re.compile(r"(/[A-Za-z0-9._-]+)*/?kinit")

KAFKA_OPTS: Final = "KAFKA_OPTS"
"""The environment variable with Java system properties for Kafka's own tools, as -Dname=value."""
ALLOWED_URLS: Final = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
LOGIN_CONFIG: Final = "java.security.auth.login.config"
LOGIN_CONTEXT: Final = "KafkaClient"
LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_UNSECURED: Final = "unsecuredLogin"
_SET_HERE: Final[dict[str, str]] = {}
"""Environment variables that this process has set: a file that names another keytab changes them."""


@dataclass(frozen=True, slots=True, repr=False)
class ClientProperties:
    """The checked content of a client's .properties file.

    Contains secrets but shows none, and is not picklable: send the path of the file instead.
    """

    name: str
    """Name of the file; empty where there is none."""
    security_protocol: str
    sasl_mechanism: str | None
    notes: tuple[str, ...]
    """What the user should know before connecting, one line each; no secrets."""
    _arguments: Mapping[str, Any] = field(repr=False)
    _environment: Mapping[str, str] = field(repr=False)

    def kafka_python(self) -> dict[str, Any]:
        """Keyword arguments for kafka-python's NetworkSelector, KafkaConnectionManager and clients.

        They contain secrets. For Kerberos and Amazon MSK this also sets environment variables that their libraries
        read, where nobody else has set them.
        """
        for name, value in self._environment.items():
            if os.environ.get(name) in (None, _SET_HERE.get(name)):
                os.environ[name] = _SET_HERE[name] = value
        return dict(self._arguments)

    def __repr__(self) -> str:
        return f"ClientProperties({self.name!r}, {self.security_protocol}, {self.sasl_mechanism})"

    def __reduce__(self) -> Any:
        raise TypeError("ClientProperties hold secrets: send the path of the file, and read it there")


def load_client_properties(path: str | None, environment: Mapping[str, str] | None = None) -> ClientProperties:
    """Read and check a client's .properties file; without a path, the settings of a plain connection.

    On an executor the file is looked up by its name among spark-submit's --files. `environment`: that of the process,
    for ${env:NAME} and KAFKA_OPTS. Raises ClientPropertiesError, which names file, line and key.
    """
    environment = os.environ if environment is None else environment
    if not path:
        return _client_properties(ClientSettings(PropertiesFile("", {}, {})), {})
    found = find_file(path)
    name = printable(path, 300)
    # Java's tools use this encoding, whatever the machine's own is
    text = read_bounded(found, name).decode("latin-1")
    file = parse_properties(text, name)
    _check_texts(file)
    settings = resolve_variables(file, environment)
    _check_texts(settings.file)
    _check_names(settings)
    _check_classes(settings)
    _check_places(settings)
    if not text.isascii():
        settings.notes.append(f"{name}: letters outside of ASCII are read as ISO-8859-1, as Java does: write \\uXXXX")
    if os.name == "posix" and found.stat().st_mode & stat.S_IROTH:
        settings.notes.append(f"{name}: everybody on this machine can read it: chmod 600")
    return _client_properties(settings, environment)


def _client_properties(settings: ClientSettings, environment: Mapping[str, str]) -> ClientProperties:
    protocol = settings.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in PROTOCOLS:
        raise settings.error("security.protocol", f"must be one of {', '.join(PROTOCOLS)}")
    arguments: dict[str, Any] = {"security_protocol": protocol, **_connection(settings)}
    variables: dict[str, str] = {}
    if protocol.endswith("SSL"):
        arguments["ssl_context"] = make_ssl_context(settings)
    mechanism = None
    if JAAS in settings:
        _checked_modules(settings)
    if protocol.startswith("SASL_"):
        mechanism = settings.get("sasl.mechanism", GSSAPI)
        arguments |= _login(settings, mechanism, protocol, _system_properties(environment), variables)
    _note_unused(settings, protocol)
    return ClientProperties(settings.file.name, protocol, mechanism, tuple(settings.notes), arguments, variables)


# Checks of the whole file


def _check_texts(file: PropertiesFile) -> None:
    """No overlong values and no control characters: these could end a line of a log, or a field of a login."""
    for key, value in file.values.items():
        if not key.isprintable():
            raise file.error(key, "the name of a setting holds control characters")
        if len(value) > VALUE_CHARS_MAX and key not in PEM_SETTINGS:
            raise file.error(key, f"is longer than {VALUE_CHARS_MAX} characters")
        allowed = "\t\n\r" if key in MANY_LINES else "\n" if SECRETS.search(key) else "\t"
        if any((letter < " " and letter not in allowed) or letter == "\x7f" for letter in value):
            raise file.error(key, "holds control characters")
        if any("\ud800" <= letter <= "\udfff" for letter in value):
            raise file.error(key, "holds half of a character")


def _check_names(settings: ClientSettings) -> None:
    """A name that is close to that of a security setting is treated as a misspelling."""
    for key in settings.values:
        if key not in KNOWN and not key.startswith(PROVIDERS + "."):
            plain = key.strip("\ufeffï»¿ ").lower().replace("_", ".").replace("-", ".")
            meant = get_close_matches(plain, sorted(SECURITY), 1, 0.85)
            if meant:
                raise settings.error(key, f"is no setting of Kafka's clients; is {meant[0]} meant?")
            if plain.startswith(("ssl.", "sasl.", "security.")):
                raise settings.error(key, "is no security setting of Kafka's clients")


def _check_classes(settings: ClientSettings) -> None:
    """Only Kafka's own classes, which we can replace."""
    for key in settings.values:
        if key not in CLASSES:
            continue
        for name in map(str.strip, settings.values[key].split(",")):
            fits = any(name.startswith(it) if it.endswith(".") else name == it for it in CLASSES[key])
            if not fits:
                reason = "names a Java class, which cannot run here"
                raise settings.error(key, f"{reason}; known are: {', '.join(CLASSES[key])}" if CLASSES[key] else reason)


def _check_places(settings: ClientSettings) -> None:
    """Files must be on this machine, identity providers must use TLS, and no command is run, whether these are used
    or not."""
    for key, value in settings.values.items():
        if key.endswith((".location", ".assertion.file", ".key.file", ".template.file")) and key in SECURITY:
            settings.check_path(key)
        elif key.endswith(".url") and key in SECURITY:
            _checked_url(settings, key)
        elif key == "sasl.kerberos.kinit.cmd" and not KINIT.fullmatch(value):
            raise settings.error(key, "must be the path of kinit, which is not run here")


def _note_unused(settings: ClientSettings, protocol: str) -> None:
    unused = [printable(key) for key in settings.unused() if not key.startswith(PROVIDERS)]
    if unused:
        idle = (*(() if protocol.endswith("SSL") else ("ssl.",)), *(() if protocol.startswith("SASL") else ("sasl.",)))
        reason = f" (security.protocol is {protocol})" if any(key.startswith(idle) for key in unused) else ""
        settings.notes.append(f"{settings.file.name}: not used here{reason}: {', '.join(unused)}")


# The connection


def _connection(settings: ClientSettings) -> dict[str, Any]:
    arguments: dict[str, Any] = {"client_id": settings.get("client.id") or CLIENT_ID}
    for key, argument in MILLISECONDS.items():
        value = settings.number(key, 0, INT_MAX)
        if value is not None:
            arguments[argument] = value
    lookup = settings.get("client.dns.lookup", DNS_LOOKUPS[0])
    if lookup not in DNS_LOOKUPS:
        raise settings.error("client.dns.lookup", f"must be one of {', '.join(DNS_LOOKUPS)}")
    arguments["client_dns_lookup"] = lookup
    buffers = [
        (socket.SOL_SOCKET, option, size)
        for key, option in (("send.buffer.bytes", socket.SO_SNDBUF), ("receive.buffer.bytes", socket.SO_RCVBUF))
        if (size := settings.number(key, -1, INT_MAX)) is not None and size >= 0  # -1: the system's default
    ]
    if buffers:
        arguments["socket_options"] = [*SOCKET_OPTIONS, *buffers]
    return arguments


# The login


def _login(
    settings: ClientSettings,
    mechanism: str,
    protocol: str,
    system_properties: Mapping[str, str],
    variables: dict[str, str],
) -> dict[str, Any]:
    """The arguments of a SASL mechanism; `variables` gets environment variables for its library."""
    if mechanism not in LOGIN_MODULES:
        raise settings.error("sasl.mechanism", f"must be one of {', '.join(LOGIN_MODULES)}")
    module = _login_module(settings, mechanism, system_properties)
    package = PACKAGES.get(mechanism)
    if package is not None and find_spec(package) is None:
        raise settings.error("sasl.mechanism", f"{mechanism} needs the Python package {package} in the environment")
    if mechanism in (PLAIN, *SCRAM):
        if protocol == "SASL_PLAINTEXT" and mechanism == PLAIN:
            settings.note("security.protocol", "SASL_PLAINTEXT sends the password in the clear")
        login = _password_login(settings, mechanism, module)
    elif mechanism == GSSAPI:
        login = _kerberos_login(settings, module, variables)
    elif mechanism == OAUTHBEARER:
        login = {"sasl_oauth_token_provider": _token_provider(settings, module, system_properties)}
    else:
        login = _msk_login(settings, module, protocol, variables)
    return {"sasl_mechanism": mechanism, **login}


def _login_module(settings: ClientSettings, mechanism: str, system_properties: Mapping[str, str]) -> LoginModule:
    """The login module of sasl.jaas.config, else of the file in KAFKA_OPTS, as in Kafka's tools."""
    if JAAS in settings:
        settings.get(JAAS)  # mark the setting as used
        modules = _checked_modules(settings)
    elif LOGIN_CONFIG in system_properties:
        path = find_file(system_properties[LOGIN_CONFIG].removeprefix("="))
        content = read_bounded(path, printable(str(path), 300)).decode("utf-8", "replace")
        try:
            modules = parse_login_contexts(content).get(LOGIN_CONTEXT, ())
        except JaasError as error:
            raise settings.error(JAAS, f"{printable(str(path), 300)}: {error}") from None
    else:
        raise settings.error(JAAS, f"is missing: {mechanism} needs it, or -D{LOGIN_CONFIG}=FILE in {KAFKA_OPTS}")
    if len(modules) != 1:
        raise settings.error(JAAS, f"must hold one login module, and holds {len(modules)}")
    if modules[0].name not in LOGIN_MODULES[mechanism]:
        known = " or ".join(LOGIN_MODULES[mechanism])
        raise settings.error(JAAS, f"the login module of {mechanism} must be {known}: no other is run here")
    return modules[0]


def _checked_modules(settings: ClientSettings) -> tuple[LoginModule, ...]:
    """The login modules of sasl.jaas.config, checked against the known ones. Raises ClientPropertiesError."""
    try:
        modules = parse_login_modules(settings.values[JAAS])
    except JaasError as error:
        raise settings.error(JAAS, str(error)) from None
    known = {name for names in LOGIN_MODULES.values() for name in names}
    for module in modules:
        if module.name not in known:
            raise settings.error(
                JAAS, f"the login module {printable(module.name)} is not one of Kafka's: it cannot run here"
            )
    return modules


def _password_login(settings: ClientSettings, mechanism: str, module: LoginModule) -> dict[str, Any]:
    for name in ("username", "password"):
        if not module.options.get(name):
            raise settings.error(JAAS, f"the login module has no {name}")
    if module.options.get("tokenauth", "").lower() == "true":
        raise settings.error(JAAS, "delegation tokens (tokenauth) are not known to the Kafka client used here")
    username, password = module.options["username"], module.options["password"]
    if not username.isprintable():
        raise settings.error(JAAS, "the username holds control characters")
    if "\0" in password:
        raise settings.error(JAAS, "the password holds a NUL, which ends it in the login")
    if mechanism in SCRAM:
        # SCRAM's escapes (https://www.rfc-editor.org/rfc/rfc5802#section-5.1); kafka-python does not apply them
        username = username.replace("=", "=3D").replace(",", "=2C")
    return {"sasl_plain_username": username, "sasl_plain_password": password}


def _kerberos_login(settings: ClientSettings, module: LoginModule, variables: dict[str, str]) -> dict[str, Any]:
    """Kerberos tickets come from the credential cache of the process, or its library fetches them with the named
    keytab."""
    key = "sasl.kerberos.service.name"
    service = settings.get(key)
    in_module = module.options.get("serviceName", "")
    if service and in_module and service != in_module:
        raise settings.error(key, "is not the serviceName of the login module")
    if not (service or in_module):
        raise settings.error(key, "is missing")
    if module.options.get("useKeyTab", "").lower() == "true":
        keytab = module.options.get("keyTab", "")
        if not keytab or not find_file(keytab).is_file():
            raise settings.error(JAAS, "useKeyTab=true needs a keyTab that is there")
        variables["KRB5_CLIENT_KTNAME"] = str(find_file(keytab).absolute())
    if module.options.get("ticketCache"):
        variables["KRB5CCNAME"] = module.options["ticketCache"]
    return {"sasl_kerberos_service_name": service or in_module}


def _msk_login(
    settings: ClientSettings, module: LoginModule, protocol: str, variables: dict[str, str]
) -> dict[str, Any]:
    if protocol != "SASL_SSL":
        raise settings.error("security.protocol", f"must be SASL_SSL with {AWS_MSK_IAM}")
    settings.get("sasl.client.callback.handler.class")  # Amazon's handler, which kafka-python implements itself
    others = sorted(set(module.options) - {"awsProfileName", "awsDebugCreds"})
    if others:
        raise settings.error(JAAS, f"not known here: {', '.join(map(printable, others))}; use a profile")
    if "awsProfileName" in module.options:
        variables["AWS_PROFILE"] = module.options["awsProfileName"]
    return {}


def _token_provider(
    settings: ClientSettings, module: LoginModule, system_properties: Mapping[str, str]
) -> "TokenProvider":
    from jobs.sources.client import oauth  # noqa: PLC0415

    handler = settings.get("sasl.login.callback.handler.class")
    endpoint = "sasl.oauthbearer.token.endpoint.url"
    options = module.options
    if not handler.endswith(".OAuthBearerLoginCallbackHandler"):
        prefix = _UNSECURED + "Extension_"
        claims, lifetime_s = _unsecured_claims(settings, options)
        extensions = _extensions(settings, options, prefix)
        return oauth.TokenProvider(lambda: oauth.unsecured_token(claims, lifetime_s), extensions)
    extensions = _extensions(settings, options, "extension_")
    url = _token_url(settings, endpoint, system_properties)
    parts = urlsplit(url)
    if parts.scheme == "file":
        path = find_file(url2pathname(parts.path))
        if not path.is_file():
            raise settings.error(endpoint, "names a file that is not there")
        return oauth.TokenProvider(lambda: oauth.file_token(path), extensions)
    if settings.get("sasl.oauthbearer.jwt.retriever.class").endswith("FileJwtRetriever"):
        raise settings.error(endpoint, "must be a file: URL with FileJwtRetriever")
    for key in settings.values:
        if key.startswith("sasl.oauthbearer.assertion."):
            raise settings.error(key, "assertions are not known here: use a client secret")
    client_id, client_secret, scope = (
        settings.get(key) or options.get(option, "").strip()
        for key, option in (
            ("sasl.oauthbearer.client.credentials.client.id", "clientId"),
            ("sasl.oauthbearer.client.credentials.client.secret", "clientSecret"),
            ("sasl.oauthbearer.scope", "scope"),
        )
    )
    for key, value in (("client.id", client_id), ("client.secret", client_secret)):
        if not value:
            raise settings.error(f"sasl.oauthbearer.client.credentials.{key}", "is missing")
    if not (client_id.isprintable() and scope.isprintable()):
        raise settings.error(JAAS, "client id or scope hold control characters")
    context = _token_ssl_context(settings, options) if parts.scheme == "https" else None
    is_url_encoded = settings.get("sasl.oauthbearer.header.urlencode").lower() == "true"
    timeout_ms = settings.number("sasl.login.read.timeout.ms", 1, INT_MAX) or oauth.TIMEOUT_MS
    return oauth.TokenProvider(
        lambda: oauth.client_credentials_token(
            url,
            client_id,
            client_secret,
            scope=scope,
            is_url_encoded=is_url_encoded,
            context=context,
            timeout_ms=timeout_ms,
        ),
        extensions,
    )


def _token_url(settings: ClientSettings, key: str, system_properties: Mapping[str, str]) -> str:
    """The address of the identity provider: https (or this machine), and allowed by the setting that Kafka 4
    requires."""
    url = settings.get(key)
    if not url:
        raise settings.error(key, "is missing: OAUTHBEARER needs it")
    _checked_url(settings, key)
    if url not in {it.strip() for it in system_properties.get(ALLOWED_URLS, "").split(",")}:
        raise settings.error(key, f'is not allowed; as with Kafka 4: {KAFKA_OPTS}="-D{ALLOWED_URLS}=URL"')
    return url


def _checked_url(settings: ClientSettings, key: str) -> None:
    """Check an address to which secrets go, or from which keys come. Raises ClientPropertiesError."""
    url = settings.values[key]
    try:
        parts = urlsplit(url)
        host = (parts.hostname or "").lower()
        _ = parts.port
    except ValueError:
        raise settings.error(key, "is not a URL") from None
    if parts.scheme not in ("https", "http", "file") or (parts.scheme != "file" and not host):
        raise settings.error(key, "must be a URL with https")
    if parts.scheme == "http" and host not in LOOPBACK:
        raise settings.error(key, "must be https: with http the client's secret would go in the clear")
    if parts.scheme == "file" and host not in ("", "localhost"):
        raise settings.error(key, "must be a file on this machine")
    if parts.username is not None or parts.password is not None:
        raise settings.error(key, "must not hold a user or a password")


def _token_ssl_context(settings: ClientSettings, options: Mapping[str, str]) -> ssl.SSLContext:
    """The SSL context for the identity provider: as in Java, from the ssl.* options of the login module, not of the
    brokers."""
    values = {key: value for key, value in options.items() if key.startswith("ssl.")}
    file = PropertiesFile(f"{settings.file.name}: sasl.jaas.config", values, {})
    return make_ssl_context(ClientSettings(file, settings.notes))


def _extensions(settings: ClientSettings, options: Mapping[str, str], prefix: str) -> dict[str, str]:
    from jobs.sources.client import oauth  # noqa: PLC0415

    extensions = {key.removeprefix(prefix): value for key, value in options.items() if key.startswith(prefix)}
    for name, value in extensions.items():
        if name == oauth.EXTENSION_RESERVED or not oauth.EXTENSION_NAME.fullmatch(name):
            raise settings.error(JAAS, f"{printable(name)!r} is not allowed as the name of an extension")
        if not oauth.EXTENSION_VALUE.fullmatch(value):
            raise settings.error(JAAS, f"the value of the extension {name} holds what it must not")
    return extensions


def _unsecured_claims(settings: ClientSettings, options: Mapping[str, str]) -> tuple[dict[str, Any], float]:
    """The claims of an unsecured token, and its lifetime in seconds, from the unsecuredLogin* options of the login
    module."""
    claims: dict[str, Any] = {}
    for option, value in options.items():
        kind, _, claim = option.removeprefix(_UNSECURED).partition("_")
        if kind not in ("StringClaim", "NumberClaim", "ListClaim") or not option.startswith(_UNSECURED):
            continue
        if claim in ("iat", "exp", ""):
            raise settings.error(JAAS, f"the claim {claim!r} cannot be set")
        try:
            claims[claim] = (
                value
                if kind == "StringClaim"
                else float(value)
                if kind == "NumberClaim"
                else value[1:].split(value[:1])
            )
        except ValueError:
            raise settings.error(JAAS, f"the claim {printable(claim)!r} has no value of its kind") from None
    principal = options.get(_UNSECURED + "PrincipalClaimName", "").strip() or "sub"
    if not claims.get(principal):
        reason = f"needs {_UNSECURED}StringClaim_{principal}, or a sasl.login.callback.handler.class"
        raise settings.error(JAAS, reason)
    lifetime = options.get(_UNSECURED + "LifetimeSeconds", "3600")
    if not (lifetime.isascii() and lifetime.isdigit() and len(lifetime) < 10):
        raise settings.error(JAAS, f"{_UNSECURED}LifetimeSeconds must be a whole number")
    return claims, float(lifetime)


def _system_properties(environment: Mapping[str, str]) -> dict[str, str]:
    """Java system properties in KAFKA_OPTS. Raises ClientPropertiesError."""
    try:
        words = shlex.split(environment.get(KAFKA_OPTS, ""))
    except ValueError:
        raise ClientPropertiesError(f"{KAFKA_OPTS} in the environment: a quote is not closed") from None
    pairs = (word.removeprefix("-D").partition("=") for word in words if word.startswith("-D"))
    return {name: value for name, _, value in pairs}
