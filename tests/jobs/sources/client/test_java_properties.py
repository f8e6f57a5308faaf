"""Java's .properties format: whatever the bytes, what java.util.Properties reads."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.errors import ClientPropertiesError
from jobs.sources.client.java_properties import FILE_BYTES_MAX, parse_properties, printable, read_properties
from tests.jobs.java_says import JavaSays

CASES = {
    "plain": b"a=b",
    "colon": b"a:b",
    "blank": b"a b",
    "tab and form feed": b"a\t\fb",
    "blanks around": b"   a   =   b  ",
    "no value": b"a",
    "empty value": b"a=",
    "empty key": b"=b",
    "two separators": b"a==b",
    "colon after equals": b"a=:b",
    "comments": b"# a=1\n! b=2\n  #c=3\nd=4",
    "comment sign later": b"a=#b !c",
    "continued": b"a=b\\\n   c",
    "continued by carriage return": b"a=b\\\r\n   c",
    "continued key": b"a\\\nb=c",
    "continued by a comment": b"a=b\\\n#c",
    "continued by a blank line": b"a=b\\\n\nc=d",
    "continued by blanks": b"a=b\\\n   \nc=d",
    "continued at the end": b"a=b\\",
    "only a backslash": b"\\\na=b",
    "two backslashes": b"a=b\\\\\nc=d",
    "three backslashes": b"a=b\\\\\\\nc=d",
    "comment does not continue": b"#a\\\nb=c",
    "escapes": b"a\\=b\\:c\\ d=\\t\\n\\r\\f\\\\\\q",
    "unicode": b"a=\\u00e9\\uD83D\\uDE00",
    "half a character": b"a=\\uD83D",
    "unicode, cut off": b"a=\\u00e",
    "unicode, no digits": b"a=\\u00zz",
    "unicode, other digits": "a=\\u\uff10\uff10\uff10\uff10".encode(),
    "latin-1": b"a=\xe9",
    "utf-8": "a=é".encode(),
    "byte order mark": b"\xef\xbb\xbfa=b",
    "twice": b"a=1\na=2",
    "old line ends": b"a=1\rb=2\r\nc=3",
    "NUL": b"a=\x00b",
    "other blanks": b"a\x0b=b\xa0",
}


def _ours(content: bytes) -> dict[str, str] | None:
    try:
        return dict(parse_properties(content.decode("latin-1"), "it").values)
    except ClientPropertiesError:
        return None


@pytest.mark.parametrize("name", CASES)
def test_properties_are_read_as_java_reads_them(java: JavaSays, name: str) -> None:
    """Each oddity of the format gives what Java gives."""
    assert _ours(CASES[name]) == java.properties(CASES[name])


@settings(max_examples=400)
@given(
    st.lists(st.sampled_from([b"a", b"b", b"=", b":", b" ", b"\t", b"\\", b"\n", b"\r", b"#", b"!", b"u0041", b"\xe9"]))
)
def test_any_bytes_are_read_as_java_reads_them(java: JavaSays, parts: list[bytes]) -> None:
    """However separators, blanks, backslashes and line ends stand next to each other."""
    content = b"".join(parts)
    assert _ours(content) == java.properties(content)


def test_lines_are_known() -> None:
    """An error can say where a key is: on the first of its lines."""
    file = parse_properties("# one\na=1\n\nb=\\\n  2\nc=3", "it.properties")
    assert file.lines == {"a": 2, "b": 4, "c": 6}
    assert str(file.error("b", "is bad")) == "it.properties line 4: b: is bad"


def test_malformed_escapes_name_the_line() -> None:
    """A \\u without four digits is refused, as in Java, with its place."""
    with pytest.raises(ClientPropertiesError, match=r"it line 2: a \\u escape needs four hexadecimal digits"):
        parse_properties("a=b\nc=\\u12", "it")


def test_no_repr_shows_a_value() -> None:
    """Values may be secrets."""
    assert "hush" not in repr(parse_properties("password=hush", "it"))


def test_files_are_read_with_bounds(tmp_path: Path) -> None:
    """A file that is not there, a folder, a device and one that is far too large are each said."""
    large = tmp_path / "large"
    with large.open("wb") as file:
        file.truncate(FILE_BYTES_MAX + 1)
    for path, reason in (
        (tmp_path / "none", "there is no such file"),
        (tmp_path, "is not a regular file"),
        (Path("/dev/zero"), "is not a regular file"),
        (large, "is larger than"),
    ):
        with pytest.raises(ClientPropertiesError, match=reason):
            read_properties(path)


def test_utf_8_is_checked(tmp_path: Path) -> None:
    """The files of config providers are UTF-8, as in Java, and nothing else."""
    path = tmp_path / "secrets"
    path.write_bytes("key=ü".encode())
    assert read_properties(path, encoding="utf-8").values == {"key": "ü"}
    path.write_bytes(b"key=\xff")
    with pytest.raises(ClientPropertiesError, match="byte 4 is not utf-8"):
        read_properties(path, encoding="utf-8")


def test_names_are_printed_on_one_line() -> None:
    """A key can neither break a line of a log nor fill a page."""
    assert printable("a\nb\x1b[31m") == "a\\u000ab\\u001b[31m"
    assert printable("x" * 100, 10) == "x" * 10 + "..."
