"""The cases of a trace, one a line."""

import gzip
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Json = dict[str, Any]


def read_cases(path: str | Path) -> Iterator[Json]:
    """The lines of a trace."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def judge_cases(path: str | Path, judge: Callable[[Json], str | None]) -> tuple[int, int, list[str]]:
    """Judge every case of a trace: (cases, passed, failures). `judge` says what is wrong in one, None if nothing is."""
    faults = [(case.get("id", number), judge(case)) for number, case in enumerate(read_cases(path))]
    failures = [f"case {name}: {fault}" for name, fault in faults if fault is not None]
    return len(faults), len(faults) - len(failures), failures
