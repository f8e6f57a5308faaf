"""OAUTHBEARER tokens, obtained like in Kafka's clients: from the identity provider, from a file, or unsecured.

Sources of the rules: org.apache.kafka.common.security.oauthbearer (DefaultJwtRetriever, ClientCredentialsJwtRetriever,
FileJwtRetriever) and OAuthBearerUnsecuredLoginCallbackHandler.
"""

import base64
import json
import re
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote_plus, urlsplit
from urllib.request import HTTPHandler, HTTPSHandler, OpenerDirector, Request

from kafka.net.sasl.oauth import AbstractTokenProvider

from jobs.errors import JobError, TokenError
from jobs.sources.client.java_properties import read_bounded

TOKEN: Final = re.compile(r"[A-Za-z0-9\-._~+/]+=*")
"""b64token: https://www.rfc-editor.org/rfc/rfc6750#section-2.1"""
EXTENSION_NAME: Final = re.compile(r"[A-Za-z]+")
EXTENSION_VALUE: Final = re.compile(r"[\x21-\x7e \t\r\n]+")
"""https://www.rfc-editor.org/rfc/rfc7628#section-3.1"""
EXTENSION_RESERVED: Final = "auth"
ANSWER_BYTES_MAX: Final = 1 << 20
REFRESH_WINDOW: Final = 0.8
"""sasl.login.refresh.window.factor: the token is refreshed after this share of its lifetime."""
TIMEOUT_MS: Final = 10_000


class TokenProvider(AbstractTokenProvider):  # type: ignore[misc]
    """Provides a token for kafka-python and caches it until it must be refreshed.

    Its repr contains no token or secret.
    """

    def __init__(
        self, retrieve: Callable[[], str], extensions: Mapping[str, str], *, now: Callable[[], float] = time.time
    ) -> None:
        super().__init__()
        self._retrieve = retrieve
        self._extensions = dict(extensions)
        self._now = now
        self._lock = threading.Lock()
        self._token = ""
        self._refresh_at = 0.0

    def token(self) -> str:
        """A token that need not be refreshed yet. Raises TokenError."""
        with self._lock:
            now = self._now()
            if not self._token or now >= self._refresh_at:
                token = self._retrieve().strip()
                if not TOKEN.fullmatch(token):
                    raise TokenError("what was given as a token is not in the form of one")
                self._token = token
                self._refresh_at = now + REFRESH_WINDOW * max(0.0, expires_at(token, default=now) - now)
            return self._token

    def extensions(self) -> Mapping[str, str]:
        """SASL extensions to send with the token."""
        return dict(self._extensions)


def expires_at(token: str, default: float) -> float:
    """The `exp` claim of a JSON web token, in seconds; the default where it cannot be read."""
    try:
        payload = token.split(".")[1]
        value = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))["exp"]
        return float(value)
    except (IndexError, KeyError, TypeError, ValueError):
        return default


def unsecured_token(claims: Mapping[str, Any], lifetime_s: float, now: Callable[[], float] = time.time) -> str:
    """A token without a signature, for brokers that accept it."""
    moment = now()
    body = {"exp": moment + lifetime_s, "iat": moment, **claims}
    parts = (json.dumps(part, separators=(",", ":")).encode() for part in ({"alg": "none"}, body))
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts) + "."


def file_token(path: Path) -> str:
    """The token in a file. Raises TokenError."""
    try:
        return read_bounded(path, str(path), ANSWER_BYTES_MAX).decode("ascii").strip()
    except (JobError, UnicodeDecodeError):
        raise TokenError(f"{path}: the token cannot be read") from None


def client_credentials_token(
    url: str,
    client_id: str,
    client_secret: str,
    *,
    scope: str = "",
    is_url_encoded: bool = False,
    context: ssl.SSLContext | None = None,
    timeout_ms: int = TIMEOUT_MS,
) -> str:
    """Request a token from an identity provider with the grant client_credentials. Raises TokenError."""
    user, secret, scope = (quote_plus(it) if is_url_encoded else it for it in (client_id, client_secret, scope))
    request = Request(
        url,
        data=f"grant_type=client_credentials{'&scope=' if scope else ''}{scope}".encode(),
        headers={
            "Authorization": "Basic " + base64.b64encode(f"{user}:{secret}".encode()).decode(),
            "Accept": "application/json",
            "Content-Type": "application/x-www-form-urlencoded",
            "Cache-Control": "no-cache",
        },
        method="POST",
    )
    # no handlers for redirects or proxies: the secret is sent to the allowed address only
    opener = OpenerDirector()
    for handler in (HTTPHandler(), HTTPSHandler(context=context)):
        opener.add_handler(handler)
    where = urlsplit(url).hostname
    try:
        with opener.open(request, timeout=timeout_ms / 1000) as answer:
            status, content = answer.status, answer.read(ANSWER_BYTES_MAX)
    except (OSError, HTTPException) as error:
        reason = getattr(error, "reason", error)
        raise TokenError(f"the token endpoint at {where} cannot be reached: {type(reason).__name__}") from None
    if status not in (200, 201):
        raise TokenError(f"the token endpoint at {where} answered {status}: are client id and secret right?")
    try:
        document = json.loads(content)
        token = document.get("access_token") or document.get("id_token")
    except (ValueError, AttributeError):
        token = None
    if not isinstance(token, str) or not token:
        raise TokenError(f"the answer of the token endpoint at {where} holds no access_token")
    return token
