"""Every family of traces and vectors that a folder holds, against Kafka's own answers in it.

A folder holds `<family>.jsonl.gz` (or has them in `traces/`) and `vectors/*.jsonl`; each file goes to the family that
its name says. Families of later work get a line that says so. A folder is judged as the release that its name ends with
(`kafka-4.4`), as 4.3 where it names none.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from coordinator_core.bytes.kafka_versions import DEFAULT_VERSION, KafkaVersion, kafka_version
from tests.conformance.families import (
    assignors,
    batches,
    combiner,
    coordinator_runtime,
    group_commands,
    group_replay,
    groups,
    lookups,
    share_coordinator,
    share_partition,
    vectors,
)

DATA: Final = Path(__file__).parent.parent / "data"
"""The traces and vectors that come with the project, of Kafka 4.3."""
DATA_OF_VERSIONS: Final = tuple(sorted(DATA.glob("kafka-*")))
"""Those of other releases, a folder each."""

Judge = Callable[..., tuple[int, int, list[str]]]
"""Called with a path, and with a `version` where it is one of VERSIONED."""

TRACES: Final[dict[str, Judge]] = {
    "combiner": combiner.run,
    "coordinator_runtime": coordinator_runtime.run,
    "lookups": lookups.run,
    "share_coordinator": share_coordinator.run,
    "group_replay": group_replay.run,
    "share_partition": share_partition.run,
}
ASSIGNOR_TRACES: Final = "assignor_"
GROUP_TRACES: Final = "group_"
"""All other files of this prefix are lives of group coordinators."""

BATCHES: Final = "batches.jsonl"
TRACE_PATTERNS: Final = ("*.jsonl.gz", "traces/*.jsonl.gz")
VECTOR_PATTERNS: Final = ("*.jsonl", "vectors/*.jsonl", "vectors/*/*.jsonl", "batches/*.jsonl", "open/*.jsonl")
NOT_JUDGED: Final = "not judged by this version"
FAILURES_MAX: Final = 10
VERSION_IN_NAME: Final = re.compile(r"-(\d+\.\d+(?:\.\d+)?)$")


class FamilyFile(NamedTuple):
    """What one judge is given: a trace file, a file of batches, or a folder of message vectors."""

    folder: Path
    name: str
    path: Path
    judge: Judge | None
    """None: a family of later work."""
    version: KafkaVersion = DEFAULT_VERSION

    def run(self) -> tuple[int, int, list[str]]:
        """What the judge says: (cases, passed, failures)."""
        assert self.judge is not None
        return self.judge(self.path, version=self.version) if self.judge in VERSIONED else self.judge(self.path)


def version_of(folder: Path) -> KafkaVersion:
    """The release that the name of a folder, or of the one around it, ends with; else the default."""
    for name in (folder.name, folder.parent.name):
        named = VERSION_IN_NAME.search(name)
        if named is not None:
            return kafka_version(named[1])
    return DEFAULT_VERSION


def family_files(folder: Path, version: KafkaVersion | None = None) -> list[FamilyFile]:
    """What a folder holds to be judged, by name, as a release (None: as the one that the folder's name says)."""
    version = version or version_of(folder)
    found = [
        FamilyFile(folder, path.name.removesuffix(".jsonl.gz"), path, _trace_judge(path), version)
        for pattern in TRACE_PATTERNS
        for path in sorted(folder.glob(pattern))
    ]
    files = [path for pattern in VECTOR_PATTERNS for path in sorted(folder.glob(pattern))]
    found += [FamilyFile(folder, "batches", path, batches.run) for path in files if path.name == BATCHES]
    message_folders = dict.fromkeys(path.parent for path in files if path.name != BATCHES)
    found += [
        FamilyFile(folder, f"vectors ({path.relative_to(folder)})", path, judge_vectors) for path in message_folders
    ]
    return found


def _trace_judge(path: Path) -> Judge | None:
    name = path.name.removesuffix(".jsonl.gz")
    if name.startswith(ASSIGNOR_TRACES):
        return assignors.run
    return TRACES.get(name) or (judge_groups if name.startswith(GROUP_TRACES) else None)


def judge_groups(path: Path, version: KafkaVersion = DEFAULT_VERSION) -> tuple[int, int, list[str]]:
    """Lives of group coordinators, both ways: their records replayed, and their requests put to the live coordinator.

    A case passes where both are right; one with an operation that nobody serves does not.
    """
    cases, _, replayed = groups.run(path, version)
    live = group_commands.judge_all(path, version=version)
    assert live.cases == cases
    failures = [*replayed, *live.failures, *(f"not served: {operation}" for operation in live.unserved)]
    failed = {failure.partition(":")[0] for failure in (*replayed, *live.failures)}
    return cases, cases - len(failed) - live.not_judged, failures


VERSIONED: Final[frozenset[Judge]] = frozenset({judge_groups, group_replay.run, combiner.run, share_coordinator.run})
"""Judges of what differs between releases."""


def judge_vectors(folder: Path) -> tuple[int, int, list[str]]:
    """All message vectors of a folder's own files, those of record batches aside: (cases, passed, failures)."""
    cases = 0
    failures = []
    for place, vector in vectors.read_vectors(folder):
        if place.partition(":")[0] == BATCHES:
            continue
        cases += 1
        fault = vectors.fault_of(vector)
        if fault:
            failures.append(f"{place} {vector['message']} v{vector['version']}: {fault}")
    return cases, cases - len(failures), failures


def test_family(family_file: FamilyFile, report_line: Callable[[str], None]) -> None:
    """Every case of the family gives what Kafka gave."""
    if family_file.judge is None:
        report_line(f"{family_file.name}: {NOT_JUDGED}")
        return
    try:
        cases, passed, failures = family_file.run()
    except Exception as error:
        report_line(f"{family_file.name}: stopped by {type(error).__name__}")
        raise
    report_line(f"{family_file.name}: cases {cases}, passed {passed}, failed {cases - passed}")
    assert cases > 0, f"{family_file.path} holds no case"
    assert passed == cases, "\n".join(failures[:FAILURES_MAX])


def test_copies_hold_every_family() -> None:
    """The data that come with the project reach every judge, and families of later work reach none."""
    files = family_files(DATA)
    judged = {file.judge for file in files}
    assert judged >= {*TRACES.values(), judge_groups, assignors.run, batches.run, judge_vectors}


@pytest.mark.parametrize(
    ("name", "judge"),
    [
        ("combiner", combiner.run),
        ("coordinator_runtime", coordinator_runtime.run),
        ("group_replay", group_replay.run),
        ("group_mixed", judge_groups),
        ("group_anything_new", judge_groups),
        ("assignor_server_uniform", assignors.run),
        ("share_partition", share_partition.run),
        ("of_a_later_kafka", None),
    ],
)
def test_the_name_of_a_file_says_its_family(tmp_path: Path, name: str, judge: Judge | None) -> None:
    """A trace goes to the judge of its name, wherever in the folder it lies."""
    for place in (tmp_path, tmp_path / "traces"):
        place.mkdir(exist_ok=True)
        (place / f"{name}.jsonl.gz").write_bytes(b"")
    assert [(file.name, file.judge) for file in family_files(tmp_path)] == [(name, judge)] * 2


@pytest.mark.parametrize(
    ("folder", "version"),
    [("traces-4.4", "4.4"), ("kafka-4.2.1", "4.2"), ("traces-4.4/traces", "4.4"), ("traces", "4.3"), ("new-44", "4.3")],
)
def test_the_name_of_a_folder_says_its_release(tmp_path: Path, folder: str, version: str) -> None:
    """A folder is judged as the release that its name ends with, unless another is asked for."""
    place = tmp_path / folder
    place.mkdir(parents=True)
    (place / "group_mixed.jsonl.gz").write_bytes(b"")
    assert [file.version for file in family_files(place)] == [kafka_version(version)]
    assert [file.version for file in family_files(place, KafkaVersion(4, 1))] == [KafkaVersion(4, 1)]
