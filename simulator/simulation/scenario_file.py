"""Scenario files read from TOML, and checked before a run."""

import re
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import MISSING, fields, is_dataclass, replace
from functools import cache, partial
from typing import Annotated, Any, Final, TypeVar, get_args, get_origin, get_type_hints

from coordinator_core.bytes.kafka_versions import KafkaVersion
from simulator.simulation import values
from simulator.simulation.scenario import (
    GROUP_KEYS,
    ClusterSpec,
    FaultSpec,
    GroupSpec,
    Scenario,
    TopicSpec,
    key_of,
)
from simulator.simulation.scenario_checks import check
from simulator.simulation.scenario_place import Place, ScenarioError, near, shown
from simulator.simulation.values import Reader

T = TypeVar("T")

BYTE_ORDER_MARK: Final = "\ufeff"
"""Windows editors write it at the beginning of a file."""
PLAIN_KEY: Final = re.compile(r"[A-Za-z0-9_-]{1,60}", re.ASCII)


def parse_scenario(text: str, file_name: str) -> Scenario:
    """The scenario of a TOML text; `file_name` is for errors. Raises ScenarioError."""
    place = Place(f"{file_name}: ")
    try:
        document = tomllib.loads(text.removeprefix(BYTE_ORDER_MARK))
    except tomllib.TOMLDecodeError as error:
        raise ScenarioError(f"{file_name} is not valid TOML: {error}: correct it there") from error
    except RecursionError:
        raise ScenarioError(f"{file_name} is no scenario: lists or tables in it are nested too deeply") from None
    except ValueError:  # Python parses no number of more than 4,300 digits
        raise ScenarioError(f"{file_name} is no scenario: a number in it has thousands of digits") from None
    scenario: Scenario = _table(Scenario, document, place)
    check(scenario, place)
    return scenario


def as_release(scenario: Scenario, version: KafkaVersion, file_name: str) -> Scenario:
    """The scenario with brokers of another release. Raises ScenarioError if it needs a feature that this release does
    not have.
    """
    changed = replace(scenario, cluster=replace(scenario.cluster, kafka_version=version))
    check(changed, Place(f"{file_name}: "))
    return changed


def _table(kind: type[T], value: Any, place: Place) -> T:
    """Read a TOML table into a dataclass: every key must be one of its fields, and no required one may be missing."""
    if not isinstance(value, dict):
        raise place.error(f"must be a table: {TABLE_OF[kind]}")
    readers = readers_of(kind)  # type: ignore[arg-type]
    known = {key_of(kind, name): name for name in readers}
    found: dict[str, Any] = {}
    for key, given in value.items():
        if key not in known:
            name = key if PLAIN_KEY.fullmatch(key) else shown(key)
            raise place.key(name).error(f"is not known here; known are: {', '.join(known)}{near(key, known)}")
        found[known[key]] = readers[known[key]](given, place.key(key))
    for spec in fields(kind):  # type: ignore[arg-type]
        needed = spec.default is MISSING and spec.default_factory is MISSING
        if needed and spec.name not in found:
            raise place.key(key_of(kind, spec.name)).error("is missing: add it")
    made = kind(**found)
    if isinstance(made, GroupSpec):
        _check_given(made, value.keys(), place)
    return made


def _check_given(group: GroupSpec, given: Collection[str], place: Place) -> None:
    """Check that every key given to a group has an effect there: a key without effect is a misunderstanding."""
    if "max_poll_interval" in given and "member_max_poll_interval" in given:
        raise place.key("member_max_poll_interval").error("says that of each member: leave out max_poll_interval")
    for key, use in GROUP_KEYS.items():
        if key not in given:
            continue
        if group.protocol not in use.protocols:
            raise place.key(key).error(
                f"does nothing in a {group.protocol} group, {use.why}: leave it out, or set protocol to "
                f"{' or '.join(use.protocols)}"
            )
        for needed, allowed in use.needs.items():
            if (group.protocol == "share" or needed != "acknowledge") and getattr(group, needed) not in allowed:
                raise place.key(key).error(
                    f"does nothing with {needed} = {getattr(group, needed)!r}: leave it out, or set {needed} to "
                    f"{' or '.join(map(repr, allowed))}"
                )


TABLE_OF: Final[Mapping[type, str]] = {
    ClusterSpec: "write [cluster]",
    TopicSpec: "write [[topic]]",
    GroupSpec: "write [[group]]",
    FaultSpec: "write [[fault]]",
}

READERS: Final[Mapping[Any, Reader]] = {
    bool: values.flag,
    float: values.rate,
    str: values.text,
    str | None: values.text,
    tuple[str, ...]: values.texts,
    tuple[str, ...] | None: values.texts,
}
"""The reader of a field whose annotation has none, by its type."""


@cache
def readers_of(kind: type) -> Mapping[str, Reader]:
    """Field of a dataclass -> the reader and checker of its value."""
    return {name: _reader_of(hint) for name, hint in get_type_hints(kind, include_extras=True).items()}


def _reader_of(hint: Any) -> Reader:
    if get_origin(hint) is Annotated:
        reader: Reader = hint.__metadata__[0]
        return reader
    if isinstance(hint, type) and is_dataclass(hint):
        return partial(_table, hint)
    return READERS[hint] if hint in READERS else _tables(get_args(hint)[0])


def _tables(kind: type[T]) -> Reader:
    def read(value: Any, place: Place) -> tuple[T, ...]:
        if not isinstance(value, list):
            raise place.error(f"must be tables: write [[{place.rpartition(' ')[2]}]]")
        return tuple(_table(kind, item, place.item(index)) for index, item in enumerate(value))

    return read
