"""OAUTHBEARER: tokens from an identity provider on this machine, from files, and unsecured ones."""

import base64
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jobs.errors import TokenError
from jobs.sources.client.oauth import TokenProvider, client_credentials_token, expires_at, unsecured_token
from jobs.sources.client_properties import ALLOWED_URLS, load_client_properties
from tests.jobs.sources.client.identity_provider import Provider, identity_provider

OAUTH = "org.apache.kafka.common.security.oauthbearer"
CLIENT_SECRET = "the client's s3cret"


@pytest.fixture
def provider() -> Iterator[Provider]:
    """A running one."""
    with identity_provider() as running:
        yield running


def _token(expires: float) -> str:
    payload = base64.urlsafe_b64encode(json.dumps({"exp": expires}).encode()).rstrip(b"=").decode()
    return f"head.{payload}.signature"


def test_a_token_for_client_id_and_secret(provider: Provider) -> None:
    """The grant client_credentials, with id and secret in the header and the scope in the body."""
    token = client_credentials_token(provider.url, "ledger", CLIENT_SECRET, scope="kafka")
    assert token == "a.b.c"
    ((path, authorization, body),) = provider.asked
    assert (path, body) == ("/token", "grant_type=client_credentials&scope=kafka")
    assert base64.b64decode(authorization.removeprefix("Basic ")).decode() == f"ledger:{CLIENT_SECRET}"


def test_id_and_secret_are_encoded_on_request(provider: Provider) -> None:
    """sasl.oauthbearer.header.urlencode, as some providers want it."""
    client_credentials_token(provider.url, "a b", "c&d", is_url_encoded=True)
    assert base64.b64decode(provider.asked[0][1].removeprefix("Basic ")) == b"a+b:c%26d"


@pytest.mark.parametrize(
    ("status", "answer", "reason"),
    [
        (401, b"no, not with that secret", "answered 401: are client id and secret right"),
        (500, b"", "answered 500"),
        (200, b"", "holds no access_token"),
        (200, b"[1]", "holds no access_token"),
        (200, b'{"access_token": 5}', "holds no access_token"),
        (200, b"\xff\xfe", "holds no access_token"),
    ],
)
def test_refusals_are_reported_without_the_secret(provider: Provider, status: int, answer: bytes, reason: str) -> None:
    """One line with the host and the status; neither the secret nor what was answered."""
    provider.status, provider.answer = status, answer
    with pytest.raises(TokenError, match=reason) as caught:
        client_credentials_token(provider.url, "ledger", CLIENT_SECRET)
    assert CLIENT_SECRET not in str(caught.value)
    assert "not with that" not in str(caught.value)


def test_the_secret_is_sent_nowhere_else(provider: Provider) -> None:
    """A redirect is not followed."""
    provider.status, provider.location = 307, provider.url + "/elsewhere"
    with pytest.raises(TokenError, match="answered 307"):
        client_credentials_token(provider.url, "ledger", CLIENT_SECRET)
    assert len(provider.asked) == 1


def test_a_provider_that_is_away_is_reported() -> None:
    """Within the time-out."""
    with pytest.raises(TokenError, match="cannot be reached: ConnectionRefusedError"):
        client_credentials_token("http://127.0.0.1:9/token", "ledger", CLIENT_SECRET, timeout_ms=2000)


def test_a_token_is_kept_until_it_grows_old() -> None:
    """Connections share a token for four fifths of its life."""
    now = [1000.0]
    made: list[str] = []

    def retrieve() -> str:
        made.append(_token(expires=now[0] + 100))
        return made[-1]

    provider = TokenProvider(retrieve, {"a": "b"}, now=lambda: now[0])
    first = provider.token()
    now[0] = 1079.0
    assert provider.token() == first
    now[0] = 1080.0
    assert provider.token() != first
    assert len(made) == 2
    assert provider.extensions() == {"a": "b"}
    assert first not in repr(provider)


@pytest.mark.parametrize("token", ["", "a b", "a\x01auth=Bearer x", "a\nb", "ü"])
def test_what_is_no_token_is_not_sent(token: str) -> None:
    """Nothing that could end the field of the login."""
    with pytest.raises(TokenError, match="not in the form of one"):
        TokenProvider(lambda: token, {}).token()


def test_the_life_of_a_token() -> None:
    """By its claim; a token that is none of the web's is asked for each time."""
    assert expires_at(_token(5.5), default=1) == 5.5
    for token in ("opaque", "a.b.c", "a.e30.c", "a.!!.c"):
        assert expires_at(token, default=1) == 1


def test_unsecured_tokens() -> None:
    """Claims, times and no signature."""
    head, body, signature = unsecured_token({"sub": "alice"}, 60, now=lambda: 100.0).split(".")
    assert json.loads(base64.urlsafe_b64decode(head + "==")) == {"alg": "none"}
    assert json.loads(base64.urlsafe_b64decode(body + "==")) == {"exp": 160.0, "iat": 100.0, "sub": "alice"}
    assert signature == ""


@pytest.fixture
def token_of(tmp_path: Path) -> Callable[..., TokenProvider]:
    """The token provider of a client's file."""

    def provider_of(login: str, settings: str = "", **environment: str) -> TokenProvider:
        path = tmp_path / "client.properties"
        content = f"security.protocol=SASL_SSL\nsasl.mechanism=OAUTHBEARER\n{settings}\nsasl.jaas.config={OAUTH}."
        path.write_text(f"{content}OAuthBearerLoginModule required {login};")
        provider = load_client_properties(str(path), environment).kafka_python()["sasl_oauth_token_provider"]
        assert isinstance(provider, TokenProvider)
        return provider

    return provider_of


def test_a_file_with_an_identity_provider(provider: Provider, token_of: Callable[..., TokenProvider]) -> None:
    """Id, secret, scope and extensions of the login module; the address is allowed as Kafka 4 wants it."""
    handler = f"sasl.login.callback.handler.class={OAUTH}.OAuthBearerLoginCallbackHandler\n"
    settings = f"{handler}sasl.oauthbearer.token.endpoint.url={provider.url}\nsasl.login.read.timeout.ms=5000"
    login = f'clientId="ledger" clientSecret="{CLIENT_SECRET}" scope="kafka" extension_pool="one"'
    tokens = token_of(login, settings, KAFKA_OPTS=f"-Xmx1g '-D{ALLOWED_URLS}=https://else.example,{provider.url}'")
    assert provider.asked == []  # nothing is connected by reading a file
    assert tokens.token() == "a.b.c"
    assert tokens.extensions() == {"pool": "one"}
    assert provider.asked[0][2].endswith("&scope=kafka")


def test_a_file_with_settings_of_kafka_4(provider: Provider, token_of: Callable[..., TokenProvider]) -> None:
    """Id and secret may stand in settings of their own, which count before the login module's options."""
    handler = f"sasl.login.callback.handler.class={OAUTH}.OAuthBearerLoginCallbackHandler\n"
    names = "sasl.oauthbearer.client.credentials.client"
    settings = f"{handler}sasl.oauthbearer.token.endpoint.url={provider.url}\n{names}.id=new\n{names}.secret=x"
    token_of("clientId=old clientSecret=y", settings, KAFKA_OPTS=f"-D{ALLOWED_URLS}={provider.url}").token()
    assert base64.b64decode(provider.asked[0][1].removeprefix("Basic ")) == b"new:x"


def test_a_token_in_a_file(tmp_path: Path, token_of: Callable[..., TokenProvider]) -> None:
    """As something else renews it: read again when it grows old."""
    path = tmp_path / "token"
    path.write_text("a.b.c\n")
    url = path.as_uri()
    handler = f"sasl.login.callback.handler.class={OAUTH}.OAuthBearerLoginCallbackHandler\n"
    tokens = token_of("", f"{handler}sasl.oauthbearer.token.endpoint.url={url}", KAFKA_OPTS=f"-D{ALLOWED_URLS}={url}")
    assert tokens.token() == "a.b.c"
    path.write_text("d.e.f")
    assert tokens.token() == "d.e.f"
    path.unlink()
    with pytest.raises(TokenError, match="the token cannot be read"):
        tokens.token()


def test_a_file_with_an_unsecured_login(token_of: Callable[..., TokenProvider]) -> None:
    """Texts, numbers and lists as claims, and how long it lives."""
    tokens = token_of(
        'unsecuredLoginStringClaim_sub="alice" unsecuredLoginNumberClaim_n="1.5" unsecuredLoginListClaim_l="|a|b"'
        ' unsecuredLoginLifetimeSeconds="10" unsecuredLoginExtension_pool="one"'
    )
    claims = json.loads(base64.urlsafe_b64decode(tokens.token().split(".")[1] + "=="))
    assert claims.pop("exp") - claims.pop("iat") == 10
    assert claims == {"sub": "alice", "n": 1.5, "l": ["a", "b"]}
    assert tokens.extensions() == {"pool": "one"}
