"""Kafka's config providers: which parts of a value are replaced, and by what."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from jobs.errors import ClientPropertiesError
from jobs.sources.client.config_providers import resolve_variables
from jobs.sources.client.java_properties import PropertiesFile
from jobs.sources.client.settings import ClientSettings

PREFIX = "org.apache.kafka.common.config.provider"
ENVIRONMENT = {"A": "1", "B": "${x:A}", "EMPTY": ""}


def _resolved(value: str, provider: str = "EnvVarConfigProvider", **parameters: str) -> ClientSettings:
    values: Mapping[str, str] = {
        "config.providers": "x",
        "config.providers.x.class": f"{PREFIX}.{provider}",
        **{f"config.providers.x.param.{name.replace('_', '.')}": it for name, it in parameters.items()},
        "key": value,
    }
    return resolve_variables(PropertiesFile("it", values, {}), ENVIRONMENT)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("${x:A}", "1"),
        ("a${x:A}b${x:A}c", "a1b1c"),
        ("${x::A}", "1"),
        ("${x:EMPTY}", ""),
        ("${x:B}", "${x:A}"),
        ("$x:A", "$x:A"),
        ("${A}", "${A}"),
        ("${other:A}", "${other:A}"),
        ("${x:A", "${x:A"),
        ("{x:A}", "{x:A}"),
    ],
)
def test_variables_are_replaced_once(value: str, expected: str) -> None:
    """Anywhere in a value, as often as they stand there; what comes out is not looked at again."""
    assert _resolved(value).get("key") == expected


def test_a_variable_that_stays_is_reported() -> None:
    """A provider which config.providers does not name is no error to Kafka either."""
    assert _resolved("${other:A}").notes == [
        "it: key: has a variable of a provider that config.providers does not name"
    ]


def test_the_settings_of_providers_are_left_alone() -> None:
    """They say how to resolve, and are not resolved."""
    settings = _resolved("a", allowlist_pattern="${x:A}|A")
    assert settings.get("config.providers.x.param.allowlist.pattern") == "${x:A}|A"


def test_a_file_is_utf_8_and_a_folders_file_is_taken_whole(tmp_path: Path) -> None:
    """As Kafka's providers read them: line ends and blanks of a folder's file are part of the value."""
    (tmp_path / "more").write_bytes("a\\:b=größe\n".encode())
    assert _resolved(f"${{x:{tmp_path}/more:a:b}}", "FileConfigProvider").file.values["key"] == "größe"
    (tmp_path / "one").write_bytes(" ß\n".encode())
    assert _resolved(f"${{x:{tmp_path}:one}}", "DirectoryConfigProvider").file.values["key"] == " ß\n"


def test_allowed_paths_hold_what_is_below_them(tmp_path: Path) -> None:
    """And nothing next to them whose name begins alike."""
    allowed, files_shipped = tmp_path / "a", tmp_path / "ab"
    for folder in (allowed, files_shipped):
        folder.mkdir()
        (folder / "one").write_text("v")
    assert _resolved(f"${{x:{allowed}:one}}", "DirectoryConfigProvider", allowed_paths=str(allowed)).get("key") == "v"
    with pytest.raises(ClientPropertiesError, match=r"outside of allowed\.paths"):
        _resolved(f"${{x:{files_shipped}:one}}", "DirectoryConfigProvider", allowed_paths=str(allowed))
