"""JAAS: login modules and their options, as Kafka's JaasConfig reads them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.sources.client.jaas import NUMBER, JaasError, _tokens, parse_login_contexts, parse_login_modules
from tests.jobs.java_says import JavaSays

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


def _ours(text: str) -> list[str]:
    return [
        "number" if token.kind == NUMBER else f" {token.kind}" if token.text is None else token.text
        for token in _tokens(text)
    ]


SIGNS = (
    *(
        "a",
        "Z",
        "0",
        "8",
        "7",
        ".",
        "-",
        "_",
        "$",
        "'",
        '"',
        "\\",
        "\\1",
        "/",
        "*",
        "//",
        "/*",
        "*/",
        "=",
        ";",
        "{",
        " ",
    ),
    *("\n", "\r", "é", "\x80", "Ω", "😀", ","),
)


@settings(max_examples=500)
@given(st.lists(st.sampled_from(SIGNS)))
def test_any_text_has_the_tokens_of_java(java: JavaSays, parts: list[str]) -> None:
    """Words, numbers, quotes, escapes and comments end where Java's StreamTokenizer ends them."""
    text = "".join(parts) + "\n;"  # every module ends so; a backslash at the very end is a fault of Java's
    assert _joined(_ours(text)) == _joined(java.tokens(text))


def _joined(tokens: list[str]) -> list[str]:
    """Java looks at halves of characters; a lone one of ours is two of its."""
    return [token.encode("utf-16-be", "surrogatepass").decode("utf-16-be", "surrogatepass") for token in tokens]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ('username="alice" password="secret"', {"username": "alice", "password": "secret"}),
        ("username='alice' password='se\"cret'", {"username": "alice", "password": 'se"cret'}),
        ("username=alice password=secret-1_$", {"username": "alice", "password": "secret-1_$"}),
        (r'username="a" password="a\"b\\c\101\t"', {"username": "a", "password": 'a"b\\cA\t'}),
        ('username="a" // one\n password=/* two */"b"', {"username": "a", "password": "b"}),
        ('username="a" username="b"', {"username": "b"}),
        ("", {}),
    ],
)  # fmt: skip
def test_options_are_read(options: str, expected: dict[str, str]) -> None:
    """Quotes of both kinds, escapes, comments; the last of two counts."""
    (module,) = parse_login_modules(f"{PLAIN} required {options};")
    assert (module.name, module.options) == (PLAIN, expected)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f"{PLAIN} required username=hush-1", "semicolon"),
        (f"{PLAIN} required password=12hush;", "needs quotes"),
        (f"{PLAIN} required password=;", "no value"),
        (f"{PLAIN} required password", "no value"),
        (f"{PLAIN} required =hush;", "name and a value"),
        (f"{PLAIN} needed password=hush;", "required, requisite"),
        (f"{PLAIN}", "required, requisite"),
        ("; required;", "name of a class"),
        ('"" required;', "name of a class"),
        (f"{PLAIN} required password=hush/1;", "semicolon"),
    ],
)
def test_what_is_wrong_is_said_without_values(text: str, reason: str) -> None:
    """A missing semicolon, a number without quotes, a slash that comments out the rest: said, and no value shown."""
    with pytest.raises(JaasError, match=reason) as caught:
        parse_login_modules(text)
    assert "hush" not in str(caught.value)


def test_a_file_has_contexts() -> None:
    """The file that java.security.auth.login.config names holds several; clients use KafkaClient."""
    text = f'KafkaServer {{ {PLAIN} required; }};\n/* ours */ KafkaClient {{ {PLAIN} required password="x"; }};'
    contexts = parse_login_contexts(text)
    assert list(contexts) == ["KafkaServer", "KafkaClient"]
    assert contexts["KafkaClient"][0].options == {"password": "x"}


@pytest.mark.parametrize(
    "text", ["KafkaClient", "KafkaClient {", "KafkaClient { };x", f"KafkaClient {{ {PLAIN} required; }}"]
)
def test_broken_contexts_are_refused(text: str) -> None:
    """A brace or a semicolon that lacks is said."""
    with pytest.raises(JaasError, match="login context"):
        parse_login_contexts(text)


def test_no_repr_shows_an_option() -> None:
    """Options hold passwords."""
    (module,) = parse_login_modules(f"{PLAIN} required password=hush;")
    assert "hush" not in repr(module)
    assert "hush" not in repr(list(_tokens("hush")))
