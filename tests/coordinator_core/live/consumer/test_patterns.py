"""Subscription patterns: what RE2/J 1.8 accepts, refuses and matches."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator_core.live.consumer.patterns import InvalidPattern, compile_pattern

NAMES = ("", "a", "ab", "b", "foo", "FOO", "foo.bar", "x-1", "a_b", "42")


@pytest.mark.parametrize(
    ("regex", "expected"),
    [
        ("", [""]),
        ("foo", ["foo"]),
        ("fo", []),
        ("f.o", ["foo"]),
        (".*", list(NAMES)),
        ("a|b|foo", ["a", "b", "foo"]),
        ("(a|)(b|)", ["", "a", "ab", "b"]),
        ("(?:a|b)+", ["a", "ab", "b"]),
        ("(?P<x>a)(?<y>b)?", ["a", "ab"]),
        ("[a-c]{1}", ["a", "b"]),
        ("[a-c]{1,}", ["a", "ab", "b"]),
        ("[a-c]{0,1}", ["", "a", "b"]),
        ("o{0}f(o){2}", ["foo"]),
        ("[^a-z]+", ["FOO", "42"]),
        ("[]f-]oo", ["foo"]),
        ("(?i)foo", ["foo", "FOO"]),
        ("(?i:F)oo", ["foo"]),
        ("(?i)[f]OO", ["foo", "FOO"]),
        ("(?i)(?-i)foo", ["foo"]),
        ("((?i)f)oo", ["foo"]),
        ("foo\\.bar", ["foo.bar"]),
        ("\\Qfoo.\\Ebar", ["foo.bar"]),
        ("\\Qfoo.bar", ["foo.bar"]),
        ("\\w+", ["a", "ab", "b", "foo", "FOO", "a_b", "42"]),
        ("\\D+\\d", ["x-1"]),
        ("\\d[\\d]", ["42"]),
        ("[[:alpha:]]+", ["a", "ab", "b", "foo", "FOO"]),
        ("[[:^alpha:]]+", ["42"]),
        ("\\pL+", ["a", "ab", "b", "foo", "FOO"]),
        ("\\p{Lu}+", ["FOO"]),
        ("(?i)\\p{Lu}+", ["a", "ab", "b", "foo", "FOO"]),
        ("\\p{^Lu}[\\P{Latin}].*", ["x-1", "a_b", "42"]),
        ("\\p{Greek}*a", ["a"]),
        ("\\p{Any}", ["a", "b"]),
        ("\\x66\\x{6f}\\157", ["foo"]),
        ("^foo$", ["foo"]),
        ("\\Afoo\\z", ["foo"]),
        ("(?m)^foo$", ["foo"]),
        ("foo\\b.bar", ["foo.bar"]),
        ("foo\\B.bar", []),
        ("a{,2}", []),
        ("(a*)*", ["", "a"]),
        ("(|a)+b?", ["", "a", "ab", "b"]),
        ("caf\u00e9|a", ["a"]),
        ("(?i)\u212a|[\u017f]|b", ["b"]),
        ("(?s).|\\n", ["a", "b"]),
        ("a??b", ["ab", "b"]),
    ],
)
def test_matches(regex: str, expected: list[str]) -> None:
    """The whole name or nothing."""
    pattern = compile_pattern(regex)
    assert [name for name in NAMES if pattern.matches(name)] == expected


@pytest.mark.parametrize(
    ("regex", "description"),
    [
        ("(", "missing closing )"),
        ("b[ar", "missing closing ]"),
        ("[", "missing closing ]"),
        ("[]", "missing closing ]"),
        ("a)", "regexp/syntax: internal error"),
        ("*", "missing argument to repetition operator"),
        ("(*)", "missing argument to repetition operator"),
        ("a|+", "missing argument to repetition operator"),
        ("a**", "invalid nested repetition operator"),
        ("a{2}{3}", "invalid nested repetition operator"),
        ("{*", "invalid nested repetition operator"),
        ("a{1001}", "invalid repeat count"),
        ("a{3,2}", "invalid repeat count"),
        ("[b-a]", "invalid character class range"),
        ("[[:foo:]]", "invalid character class range"),
        ("\\p{Nobody}", "invalid character class range"),
        ("\\p{L", "invalid character class range"),
        ("\\", "trailing backslash at end of expression"),
        ("\\1", "invalid escape sequence"),
        ("\\C", "invalid escape sequence"),
        ("\\Z", "invalid escape sequence"),
        ("\\x4", "invalid escape sequence"),
        ("\\x{110000}", "invalid escape sequence"),
        ("(?=a)", "invalid or unsupported Perl syntax"),
        ("(?-)", "invalid or unsupported Perl syntax"),
        ("(?i", "invalid or unsupported Perl syntax"),
        ("(?P<a b>c)", "invalid named capture"),
        ("(?P<a", "invalid named capture"),
        ("(?P<a>b)(?P<a>b)", "duplicate capture group name"),
    ],
)
def test_refusals(regex: str, description: str) -> None:
    """In the words of RE2/J, which clients are shown."""
    with pytest.raises(InvalidPattern) as caught:
        compile_pattern(regex)
    assert caught.value.description == description


def test_a_pattern_which_keeps_others_busy_is_harmless() -> None:
    """Nested repetition takes a backtracking matcher for ever; here it is a few thousand steps."""
    pattern = compile_pattern("((a*)*|(a|aa)+)*b")
    assert not pattern.matches("a" * 249)
    assert pattern.matches("a" * 248 + "b")


@pytest.mark.parametrize("regex", ["((a{1000}){1000}){1000}", "(" * 3 + "a{100}){100}){100}"])
def test_a_pattern_has_a_largest_size(regex: str) -> None:
    """Nested repetitions are refused; RE2/J would take all memory."""
    with pytest.raises(InvalidPattern):
        compile_pattern(regex)


def test_deep_nesting_is_no_recursion() -> None:
    """Ten thousand parentheses."""
    assert compile_pattern("(" * 10_000 + "a" + ")" * 10_000).matches("a")


def test_names_which_are_no_topics_match_nothing() -> None:
    """Names of topics are ASCII."""
    assert not compile_pattern(".*").matches("caf\u00e9")


@given(st.text(alphabet="ab.*+?|()[]{}^$\\-:,<>=!0123idpPQExLsw", max_size=20), st.text(alphabet="ab-1", max_size=6))
def test_any_text_is_a_pattern_or_is_refused(regex: str, name: str) -> None:
    """Nothing else is raised, and a pattern answers."""
    try:
        pattern = compile_pattern(regex)
    except InvalidPattern:
        return
    assert pattern.matches(name) in {True, False}
