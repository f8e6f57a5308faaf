"""Java's .properties format, as `java.util.Properties.load` of JDK 17 parses it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from jobs.errors import ClientPropertiesError

FILE_BYTES_MAX: Final = 4 << 20
"""Ample: a bundle of all public certificate authorities is a quarter of a megabyte."""

BLANKS: Final = " \t\f"
ESCAPES: Final[Mapping[str, str]] = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


@dataclass(frozen=True, slots=True)
class PropertiesFile:
    """Keys and values of a file, with their line numbers. Values may be secrets: they are in no repr."""

    name: str
    """Name of the file in messages."""
    values: Mapping[str, str] = field(repr=False)
    lines: Mapping[str, int] = field(repr=False)
    """Key -> line number, from 1."""

    def error(self, key: str, reason: str) -> ClientPropertiesError:
        """The error for an unusable value; `reason` must not contain a secret."""
        place = f" line {self.lines[key]}" if key in self.lines else ""
        return ClientPropertiesError(f"{self.name}{place}: {printable(key)}: {reason}")


def printable(text: str, most: int = 80) -> str:
    """A key or name for a message: one line of bounded length, without control characters."""
    shown = "".join(letter if letter.isprintable() else f"\\u{ord(letter):04x}" for letter in text[: most + 1])
    return shown if len(shown) <= most else shown[:most] + "..."


def read_properties(path: Path, *, encoding: str = "latin-1", name: str | None = None) -> PropertiesFile:
    """Read a file. Java's tools read it as ISO-8859-1, Kafka's FileConfigProvider as UTF-8.

    Raises ClientPropertiesError: file missing, not readable, not a regular file, too large, wrong encoding, malformed
    escape.
    """
    name = name or str(path)
    return parse_properties(_decoded(read_bounded(path, name), encoding, name), name)


def read_bounded(path: Path, name: str, bytes_max: int = FILE_BYTES_MAX) -> bytes:
    """The bytes of a regular file (no pipe or device) of bounded size. Raises ClientPropertiesError."""
    try:
        if not path.is_file():
            raise ClientPropertiesError(
                f"{name}: {'is not a regular file' if path.exists() else 'there is no such file'}"
            )
        with path.open("rb") as file:
            content = file.read(bytes_max + 1)
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or "cannot be read"
        raise ClientPropertiesError(f"{name}: {reason}") from None
    if len(content) > bytes_max:
        raise ClientPropertiesError(f"{name}: is larger than {bytes_max} bytes")
    return content


def _decoded(content: bytes, encoding: str, name: str) -> str:
    try:
        return content.decode(encoding)
    except UnicodeDecodeError as error:
        raise ClientPropertiesError(f"{name}: byte {error.start} is not {encoding}") from None


def parse_properties(text: str, name: str) -> PropertiesFile:
    """Keys and values; if a key occurs twice, the last value counts. Raises ClientPropertiesError."""
    values: dict[str, str] = {}
    lines: dict[str, int] = {}
    for number, line in _logical_lines(text):
        key, value = _split(line)
        try:
            key, value = _unescaped(key), _unescaped(value)
        except ValueError as error:
            raise ClientPropertiesError(f"{name} line {number}: {error}") from None
        values[key] = value
        lines[key] = number
    return PropertiesFile(name, values, lines)


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield (number of the first natural line, logical line with its continuations), without blank lines and
    comments."""
    natural = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    # in Java a single backslash at the end of the file is an empty key, but not before \r\n
    last = len(natural) - (2 if natural[-1] == "" and not text.endswith("\r\n") else 1)
    line, first = "", 0
    for number, natural_line in enumerate(natural):
        part = natural_line.lstrip(BLANKS)
        if not line:
            if not part or part[0] in "#!":
                continue
            first = number + 1
        backslash_count = len(part) - len(part.rstrip("\\"))
        if backslash_count % 2 == 0:
            yield first, line + part
            line = ""
            continue
        line += part[:-1]
        if number == last:
            yield first, line
            return
    if line:
        yield first, line


def _split(line: str) -> tuple[str, str]:
    """Key and value, still escaped: the key ends at the first unescaped `=`, `:` or whitespace."""
    end = 0
    while end < len(line) and line[end] not in "=:" + BLANKS:
        end += 2 if line[end] == "\\" else 1
    key, rest = line[:end], line[end:].lstrip(BLANKS)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(BLANKS)
    return key, rest


def _unescaped(text: str) -> str:
    if "\\" not in text:
        return text
    parts: list[str] = []
    at = 0
    while at < len(text):
        letter = text[at]
        at += 1
        if letter != "\\" or at == len(text):
            parts.append("" if letter == "\\" else letter)
            continue
        letter = text[at]
        at += 1
        if letter == "u":
            digits = text[at : at + 4]
            if len(digits) < 4 or any(digit not in "0123456789abcdefABCDEF" for digit in digits):
                raise ValueError("a \\u escape needs four hexadecimal digits")
            letter = chr(int(digits, 16))
            at += 4
        else:
            letter = ESCAPES.get(letter, letter)
        parts.append(letter)
    # two escapes may form a surrogate pair
    return "".join(parts).encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
