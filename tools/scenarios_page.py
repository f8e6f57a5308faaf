"""docs/internals/scenarios.md: every key, fault and truth file of `simulate`, from the declarations.

The allowed values of a key come from the error of its reader for an invalid value; its meaning comes from the docstring
below it.
"""

import ast
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, Field, fields
from itertools import pairwise
from typing import Any, Final

from coordinator_core.errors import CoreError
from coordinator_core.live.coordinator.config import GroupCoordinatorConfig
from simulator import simulation as simulate
from simulator.simulation import scenario
from simulator.simulation.scenario import (
    FAULT_KEYS,
    FAULT_KEYS_MORE,
    GROUP_KEYS,
    ClusterSpec,
    FaultSpec,
    GroupSpec,
    Scenario,
    TopicSpec,
    key_of,
)
from simulator.simulation.scenario_file import readers_of
from simulator.simulation.scenario_place import Place
from simulator.simulation.values import LEAST, MOST

Cell = Callable[[str], str]
TABLES: Final[Mapping[str, type]] = {
    "The file": Scenario,
    "`[cluster]`": ClusterSpec,
    "`[[topic]]`": TopicSpec,
    "`[[group]]`": GroupSpec,
    "`[[fault]]`": FaultSpec,
}
INTRODUCTION: Final = (
    "`./spark-submit.sh simulate --scenario FILE --output DIR` runs a cluster on a virtual clock and writes the "
    "logs of its coordinators as brokers write them, and the truth about them. This page has every key that a "
    "scenario file may have, every fault, and every file of the truth. The files that come with the project are "
    "in `scenarios/`. A key that would do nothing, or a value that brokers would refuse, is an error: one line "
    "with the file, the key and what to do, exit code 2, and nothing is written."
)


def scenarios_page(generated: str, cell: Cell) -> str:
    """The page. `cell`: converts text for a Markdown table."""
    parts = [generated, "# Scenarios", INTRODUCTION]
    abouts = field_docs()
    for title, kind in TABLES.items():
        parts += [f"## {title}", _about(kind), _keys(kind, abouts, cell)]
        if kind is ClusterSpec:
            parts += ["### `[cluster.settings]`", *_settings()]
    parts += ["### Kinds of faults", *_faults(cell), "## The truth", *_truth(cell)]
    return "\n\n".join(parts) + "\n"


def _about(kind: type) -> str:
    text = " ".join((inspect.getdoc(kind) or "").split())
    return _capital(text.partition(": ")[2]) if text.startswith("`[") else text


def _capital(text: str) -> str:
    return ". ".join(part[:1].upper() + part[1:] for part in text.split(". "))


def field_docs() -> dict[tuple[str, str], str]:
    """(class, field) -> the docstring below the field."""
    found: dict[tuple[str, str], str] = {}
    for node in ast.parse(inspect.getsource(scenario)).body:
        if not isinstance(node, ast.ClassDef):
            continue
        for line, below in zip(node.body, [*node.body[1:], None], strict=True):
            if not isinstance(line, ast.AnnAssign) or not isinstance(line.target, ast.Name):
                continue
            if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
                found[node.name, line.target.id] = " ".join(str(below.value.value).split())
    return found


def may_be(kind: type, name: str) -> str:
    """The expected values, from the error of the key's reader."""
    try:
        readers_of(kind)[name](object(), Place("key"))
    except CoreError as error:
        text = str(error).partition(": ")[2]
        return text.removeprefix("must be ").partition(": brokers refuse")[0]
    raise AssertionError(f"the reader of {kind.__name__}.{name} takes anything")


def _keys(kind: type, abouts: Mapping[tuple[str, str], str], cell: Cell) -> str:
    rows = ["| key | may be | default | |", "| --- | --- | --- | --- |"]
    for spec in fields(kind):
        about = abouts.get((kind.__name__, spec.name), "")
        if kind is GroupSpec:
            about = " ".join(part for part in (about, _used(key_of(kind, spec.name))) if part)
        shape = (
            "tables" if spec.name in {"topics", "groups", "faults", "cluster", "settings"} else may_be(kind, spec.name)
        )
        if kind is not Scenario and spec.name == "topics":
            shape = may_be(kind, spec.name)
        rows.append(f"| `{key_of(kind, spec.name)}` | {cell(shape)} | {cell(_default(spec))} | {cell(about)} |")
    return "\n".join(rows)


def _used(key: str) -> str:
    """The kinds of groups for which a key has an effect."""
    use = GROUP_KEYS.get(key)
    if use is None:
        return ""
    needs = [f"`{name}` {' or '.join(values)}" for name, values in use.needs.items()]
    where = f"In {' and '.join(use.protocols)} groups" if len(use.protocols) < 4 else "In every group"
    return f"{where}{', with ' + ' and '.join(needs) if needs else ''}."


def _default(spec: "Field[Any]") -> str:
    if spec.default is MISSING:
        return "" if spec.default_factory is not MISSING else "needed"
    value = spec.default
    if value is None or value in ((), ""):
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if spec.name.endswith("_ms"):
        return ", ".join(map(_duration, value)) if isinstance(value, tuple) else _duration(value)
    return str(value)


def _duration(ms: int) -> str:
    for unit, size in (("h", 3_600_000), ("m", 60_000), ("s", 1000)):
        if ms and ms % size == 0:
            return f"{ms // size}{unit}"
    return f"{ms}ms"


def _settings() -> Iterator[str]:
    yield (
        "Settings of the group coordinator by Kafka's names, in quotes. A number out of its range is refused, as "
        "brokers refuse it."
    )
    rows = ["| setting | default | least | most |", "| --- | --- | --- | --- |"]
    for spec in fields(GroupCoordinatorConfig):
        if spec.name == "kafka_version":
            continue  # a key of [cluster]
        name, value = spec.name.replace("_", "."), spec.default
        is_number = isinstance(value, int) and not isinstance(value, bool)
        least = str(LEAST.get(spec.name, 1)) if is_number else ""
        most = str(MOST.get(spec.name, 2**31 - 1)) if is_number else ""
        shown = ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
        rows.append(f"| `{name}` | {shown} | {least} | {most} |")
    yield "\n".join(rows)


def fault_docs() -> dict[str, str]:
    """Kind of fault -> its effect, from the docstring of `FAULT_KEYS`."""
    body = ast.parse(inspect.getsource(scenario)).body
    (text,) = [
        str(below.value.value)
        for line, below in pairwise(body)
        if isinstance(line, ast.AnnAssign)
        and getattr(line.target, "id", None) == "FAULT_KEYS"
        and isinstance(below, ast.Expr)
        and isinstance(below.value, ast.Constant)
    ]
    pieces = re.split(rf"(?:^|(?<=\s))({'|'.join(FAULT_KEYS)}): ", " ".join(text.split()))
    found = dict(zip(pieces[1::2], (piece.strip() for piece in pieces[2::2]), strict=True))
    return {kind: about[0].upper() + about[1:] for kind, about in found.items()}


def _faults(cell: Cell) -> Iterator[str]:
    yield "Each has `kind` and `at`, and most may have `every`; any other key is refused."
    about = fault_docs()
    rows = ["| fault | needs | may have | |", "| --- | --- | --- | --- |"]
    for kind, needed in FAULT_KEYS.items():
        more = ", ".join(f"`{key}`" for key in FAULT_KEYS_MORE.get(kind, ()))
        rows.append(f"| `{kind}` | {', '.join(f'`{key}`' for key in needed)} | {more} | {cell(about[kind])} |")
    yield "\n".join(rows)


def truth_docs() -> dict[str, str]:
    """Truth file -> the content of its lines, from the docstring of the package."""
    text = (inspect.getdoc(simulate) or "").partition("\nThe truth\n")[2].partition("\nWhat is simplified")[0]
    found: dict[str, str] = {}
    for name, about in re.findall(
        r"`(\w+\.jsonl?)`: (.*?)(?=(?:[*.]?\s+`\w+\.jsonl?`:)|\Z|\n\n|\n\* )", text, re.DOTALL
    ):
        found[name] = " ".join(about.split()).rstrip(".") + "."
    return found


def _truth(cell: Cell) -> Iterator[str]:
    yield (
        "Files of `DIR/truth`, JSON, one object a line, in the order of `ts_ms` (epoch ms of the virtual clock). Keys "
        "that end in `_ms` are such times. `log` is the log partition and offset of the record that says the same, "
        "where one does. Files of share groups have `group`, `topic`, `partition`, `first_offset` and `last_offset` "
        "(inclusive) as well."
    )
    rows = ["| file | its lines |", "| --- | --- |"]
    rows += [f"| `{name}` | {cell(about)} |" for name, about in truth_docs().items()]
    yield "\n".join(rows)
