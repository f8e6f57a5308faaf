"""Parse `sasl.jaas.config`: the login module of a client and its options.

The grammar is Kafka's (org.apache.kafka.common.security.JaasConfig), based on Java's StreamTokenizer: words, quoted
strings with C escapes, // and /* */ comments, and an unquoted slash that comments out the rest of the line.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

END: Final = ""
"""Kind of the token after the last one."""
NUMBER: Final = "number"
WORD: Final = "word"
QUOTED: Final = "quoted"
CONTROL_FLAGS: Final = frozenset({"REQUIRED", "REQUISITE", "SUFFICIENT", "OPTIONAL"})
ESCAPES: Final[Mapping[str, str]] = {
    "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
}  # fmt: skip
OCTAL: Final = "01234567"


class JaasError(ValueError):
    """The text is not valid JAAS. The message contains no value of an option."""


@dataclass(frozen=True, slots=True)
class LoginModule:
    """A login module, its control flag and its options. Options contain passwords, so they are in no repr."""

    name: str
    """The Java class."""
    options: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    """`END`, `NUMBER`, `WORD`, `QUOTED`, or the single character of the token."""
    text: str | None = field(repr=False)
    """Text of a word or quoted string; None for other tokens, as in Java."""


def parse_login_modules(text: str) -> tuple[LoginModule, ...]:
    """All login modules in the value of `sasl.jaas.config`, in order. Raises JaasError."""
    tokens = _Tokens(text)
    modules = []
    while tokens.next().kind != END:
        modules.append(_login_module(tokens))
    return tuple(modules)


def parse_login_contexts(text: str) -> Mapping[str, tuple[LoginModule, ...]]:
    """The contexts of a JAAS file (`java.security.auth.login.config`), such as `KafkaClient { ... };`.

    Raises JaasError.
    """
    tokens = _Tokens(text)
    contexts: dict[str, tuple[LoginModule, ...]] = {}
    while tokens.next().kind != END:
        name = tokens.current.text
        if name is None or tokens.next().kind != "{":
            raise JaasError("a login context must be a name and { login modules };")
        modules = []
        while tokens.next().kind != "}":
            if tokens.current.kind == END:
                raise JaasError("a login context is not ended by };")
            modules.append(_login_module(tokens))
        if tokens.next().kind != ";":
            raise JaasError("a login context is not ended by };")
        contexts[name] = tuple(modules)
    return contexts


def _login_module(tokens: "_Tokens") -> LoginModule:
    """The module that begins with the current token; leaves its semicolon as the current token."""
    name = tokens.current.text
    if not name:
        raise JaasError("a login module must begin with the name of a class")
    flag = (tokens.next().text or "").upper()
    if flag not in CONTROL_FLAGS:
        raise JaasError("after the login module comes required, requisite, sufficient or optional")
    options: dict[str, str] = {}
    while tokens.next().kind not in (END, ";"):
        key = tokens.current.text
        if key is None:
            raise JaasError('an option must be a name and a value, as username="alice"')
        # messages name no options either: an unquoted value could be parsed as an option name
        if tokens.next().kind != "=" or tokens.next().kind == END or tokens.current.text is None:
            raise JaasError("an option has no value; a value that is a number or holds other signs needs quotes")
        options[key] = tokens.current.text
    if tokens.current.kind != ";":
        raise JaasError("it must end with a semicolon")
    return LoginModule(name, options)


class _Tokens:
    """Java's StreamTokenizer with the settings of Kafka's JaasConfig."""

    def __init__(self, text: str) -> None:
        self._tokens = _tokens(text)
        self.current = _Token(END, None)

    def next(self) -> _Token:
        """The next token; `END` at the end and after it."""
        self.current = next(self._tokens, _Token(END, None))
        return self.current


def _is_word(letter: str) -> bool:
    """A valid character of a word; its first character must not be a digit or a dot."""
    code = ord(letter)
    return (letter.isascii() and (letter.isalnum() or letter in "-._$")) or code >= 160


def _tokens(text: str) -> Iterator[_Token]:
    at = 0
    while at < len(text):
        letter = text[at]
        following = text[at + 1 : at + 2]
        if letter <= " ":
            at += 1
        elif letter in "0123456789." or (letter == "-" and following in tuple("0123456789.")):
            at = _end_of_number(text, at + 1 if letter == "-" else at)
            yield _Token(NUMBER, None)
        elif letter == "-":
            at += 1
            yield _Token("-", None)
        elif _is_word(letter):
            end = at + 1
            while end < len(text) and _is_word(text[end]):
                end += 1
            yield _Token(WORD, text[at:end])
            at = end
        elif letter in "\"'":
            quoted, at = _quoted(text, at)
            yield _Token(QUOTED, quoted)
        elif letter == "/" and following == "*":
            end = text.find("*/", at + 2)
            at = len(text) if end < 0 else end + 2
        elif letter == "/":
            at = _end_of_line(text, at + 2)  # as in Java: if a slash ends its line, the next line is skipped
        else:
            at += 1
            yield _Token(letter, None)


def _end_of_number(text: str, at: int) -> int:
    has_point = False
    while at < len(text) and (text[at] in "0123456789" or (text[at] == "." and not has_point)):
        has_point = has_point or text[at] == "."
        at += 1
    return at


def _end_of_line(text: str, at: int) -> int:
    while at < len(text) and text[at] not in "\r\n":
        at += 1
    return at


def _quoted(text: str, at: int) -> tuple[str, int]:
    """The string in the quotes at a position, and the position after it; the end of the line ends it too."""
    quote = text[at]
    at += 1
    letters: list[str] = []
    while at < len(text) and text[at] not in (quote, "\n", "\r"):
        letter = text[at]
        at += 1
        if letter == "\\" and at < len(text):
            if text[at] in OCTAL:
                most = 3 if text[at] <= "3" else 2
                end = at + 1
                while end < len(text) and end < at + most and text[end] in OCTAL:
                    end += 1
                letter = chr(int(text[at:end], 8))
                at = end
            else:
                letter = ESCAPES.get(text[at], text[at])
                at += 1
        letters.append(letter)
    return "".join(letters), at + 1 if text[at : at + 1] == quote else at
