"""Kafka's config providers, for values outside of the file: ${env:NAME}, ${file:/path:key}, ${dir:/path:file}.

Source of the rules: org.apache.kafka.common.config.ConfigTransformer, and the package config.provider.
"""

import os.path
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from jobs.errors import ClientPropertiesError
from jobs.sources.client.java_properties import PropertiesFile, printable, read_bounded, read_properties
from jobs.sources.client.settings import ClientSettings, find_file

VARIABLE: Final = re.compile(r"\$\{([^}]*?):(?:([^}]*?):)?([^}]*?)\}", re.DOTALL)
"""Provider, path, key."""
PROVIDERS: Final = "config.providers"
PREFIX: Final = "org.apache.kafka.common.config.provider."
VALUE_BYTES_MAX: Final = 1 << 20

Provider = Callable[[str, str], str | None]
"""(path, key) -> value; None where there is none. Raises ClientPropertiesError."""


def resolve_variables(file: PropertiesFile, environment: Mapping[str, str]) -> ClientSettings:
    """The settings of a file with all variables replaced. Raises ClientPropertiesError, which names key and variable.

    A variable whose provider is not in config.providers stays unchanged, as in Java, and adds a note.
    """
    given = ClientSettings(file)
    providers = {name: _provider(given, name, environment) for name in given.names(PROVIDERS)}
    notes: list[str] = []

    def resolved(key: str, value: str) -> str:
        def replaced(match: re.Match[str]) -> str:
            name, path, variable = match[1], match[2] or "", match[3]
            if name not in providers:
                notes.append(
                    f"{file.name}: {printable(key)}: has a variable of a provider that {PROVIDERS} does not name"
                )
                return match[0]
            shown = printable(f"${{{name}:{path + ':' if path else ''}{variable}}}")
            try:
                found = providers[name](path, variable)
            except ClientPropertiesError as error:
                raise file.error(key, f"{shown}: {error}") from None
            if found is None:
                raise file.error(key, f"{shown} has no value")
            return found

        return VARIABLE.sub(replaced, value)

    values = {key: value if key.startswith(PROVIDERS) else resolved(key, value) for key, value in file.values.items()}
    return ClientSettings(PropertiesFile(file.name, values, file.lines), notes)


def _provider(given: ClientSettings, name: str, environment: Mapping[str, str]) -> Provider:
    key = f"{PROVIDERS}.{name}.class"
    if key not in given:
        raise given.error(PROVIDERS, f"names {printable(name)!r}, but there is no {printable(key)}")
    kind = given.get(key).removeprefix(PREFIX)
    parameters = f"{PROVIDERS}.{name}.param."
    if kind == "EnvVarConfigProvider":
        return _environment_provider(given, f"{parameters}allowlist.pattern", environment)
    allowed = _allowed_paths(given, f"{parameters}allowed.paths")
    if kind == "FileConfigProvider":
        return lambda path, variable: _value_in_file(allowed, path, variable)
    if kind == "DirectoryConfigProvider":
        return lambda path, variable: _value_of_file(allowed, path, variable)
    raise given.error(
        key, f"must be Kafka's own EnvVarConfigProvider, FileConfigProvider or DirectoryConfigProvider ({PREFIX}*)"
    )


def _environment_provider(given: ClientSettings, pattern_key: str, environment: Mapping[str, str]) -> Provider:
    try:
        pattern = re.compile(given.get(pattern_key, ".*"), re.DOTALL)
    except (re.error, RecursionError):
        raise given.error(pattern_key, "is not a regular expression") from None

    def value(path: str, name: str) -> str | None:
        if path:
            raise ClientPropertiesError("a variable of the environment has no path")
        return environment.get(name) if pattern.fullmatch(name) else None

    return value


def _allowed_paths(given: ClientSettings, key: str) -> tuple[Path, ...] | None:
    paths = given.names(key)
    if not paths:
        return None
    for path in paths:
        if not Path(path).is_absolute() or not Path(path).exists():
            raise given.error(key, "must list absolute paths which exist")
    return tuple(Path(os.path.normpath(path)) for path in paths)


def _checked(allowed: tuple[Path, ...] | None, path: str) -> Path:
    if "://" in path or path.startswith(("\\\\", "//")) or not path.isprintable():
        raise ClientPropertiesError("must be a path on this machine")
    normal = Path(os.path.normpath(path))
    if allowed is not None and not any(normal.is_relative_to(it) for it in allowed):
        raise ClientPropertiesError("is outside of allowed.paths")
    return normal


def _value_in_file(allowed: tuple[Path, ...] | None, path: str, key: str) -> str | None:
    if not path:
        return None
    return read_properties(find_file(str(_checked(allowed, path))), encoding="utf-8").values.get(key)


def _value_of_file(allowed: tuple[Path, ...] | None, path: str, name: str) -> str | None:
    if not path or name in ("", ".", "..") or "/" in name:
        return None
    file = _checked(allowed, path) / name
    if not file.is_file():
        return None
    try:
        return read_bounded(file, printable(str(file), 300), VALUE_BYTES_MAX).decode()
    except UnicodeDecodeError:
        raise ClientPropertiesError(f"{printable(str(file), 300)}: is not UTF-8") from None
