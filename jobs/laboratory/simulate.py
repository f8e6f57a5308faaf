"""simulate: from a scenario file, write the logs of a cluster's coordinators as brokers would, and the truth about
them.

Writes `<output>/logs/<topic>-<partition>/`, like a broker's log directory, and `<output>/truth/*.jsonl`, whose format
is in the docstring of `simulator.simulation`. The same scenario and seed always give the same bytes.
"""

import json
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import IO, Any, Final, Self

from coordinator_core.bytes.kafka_versions import kafka_version as release
from coordinator_core.bytes.log.write import (
    SegmentRules,
    leader_epoch_checkpoint,
    offset_checkpoint,
    partition_metadata,
    segment_files,
)
from coordinator_core.errors import UnknownKafkaVersion
from coordinator_core.live.runtime.partition import PartitionLog
from coordinator_core.text import duration_of
from jobs.console.command_name import command
from jobs.console.conversation import Conversation
from jobs.console.names import or_nearest, some_of
from jobs.console.output import csv_line, say, time_text
from jobs.errors import ArgumentError, KafkaVersionError, ScenarioFileError
from jobs.laboratory.exchange_story import story_of
from jobs.queries.as_of.in_log import require_forwards
from jobs.queries.as_of.moments import Clock, read_moment
from jobs.settings import PROJECT_ROOT
from simulator.simulation.exchange import NEVER_MS, REQUESTS, STATES, Watch
from simulator.simulation.scenario import Scenario
from simulator.simulation.scenario_file import as_release, parse_scenario
from simulator.simulation.scenario_place import ScenarioError
from simulator.simulation.simulation import Simulation, Summary
from simulator.simulation.truth import MemorySink

LOG_START_OFFSET_CHECKPOINT: Final = "log-start-offset-checkpoint"
"""In the folder of the logs: the log start offset of each log."""

WAREHOUSE: Final = "warehouse"
"""Folder with the tables of an exchange."""

SCENARIO_BYTES_MAX: Final = 16 * 1024 * 1024
"""Maximum size of a scenario file."""


Span = tuple[str | None, str | None, str | None]
"""--from, --to and --timezone: times as everywhere, as if now were its end, or how long after its start, as
90s.
"""
WHOLE: Final[Span] = (None, None, None)


@dataclass(frozen=True, slots=True)
class Written:
    summary: Summary
    output: str
    log_partition_count: int
    record_count: int
    """Number of records and markers in the segments of all logs."""
    size_bytes: int


class TruthFiles:
    """Writes the truth, with one open file for each kind of line."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self._folder = folder
        self._files: dict[str, IO[str]] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def write(self, file: str, facts: dict[str, Any]) -> None:
        lines = self._files.get(file)
        if lines is None:
            path = self._folder / f"{file}.jsonl"
            lines = self._stack.enter_context(path.open("w", encoding="utf-8", newline="\n", buffering=1 << 20))
            self._files[file] = lines
        plain = {name: _in_order(value) for name, value in facts.items()}
        lines.write(json.dumps(plain, separators=(",", ":"), default=_plain) + "\n")


def _in_order(value: Any) -> Any:
    """Sort nested maps by key: dumps of coordinators come in Python's hash order."""
    if isinstance(value, dict):
        return {name: _in_order(value[name]) for name in sorted(value)}
    return [_in_order(item) for item in value] if isinstance(value, list | tuple) else value


def _plain(value: Any) -> Any:
    """Sort sets; bytes are not allowed."""
    if isinstance(value, set | frozenset):
        return sorted(value)
    raise TypeError(f"{type(value).__name__} has no place in the truth")


def simulate(
    scenario_file: str,
    output: str,
    *,
    seed: int | None = None,
    kafka_version: str | None = None,
    exchange: Sequence[str] = (),
    explained: str | None = None,
    span: Span = WHOLE,
) -> Written:
    """Run a scenario and write the results. `output`: a local folder, new or empty. `kafka_version`: replaces the
    scenario's own. `exchange`: the groups whose exchange with the brokers is part of the truth, within `span`, and in
    tables in the folder `warehouse` there; `explained`: one more, for `explain_written`.

    Raises SimulateError where the file cannot be read or is not a scenario, the folder is not empty, or the release is
    not known.
    """
    scenario = read_scenario(scenario_file, kafka_version)
    one = None if explained is None else _watch_of(scenario, [explained], span)
    groups = [*exchange, *(() if one is None else one.group_ids or ())]
    watch = _watch_of(scenario, groups, span, may_be_all=True) if groups else None
    root = Path(output).expanduser()
    if root.exists() and (not root.is_dir() or any(root.iterdir())):
        raise ArgumentError(f"{output} is not an empty folder: a simulation never mixes with other files")
    try:
        with TruthFiles(root / "truth") as truth:
            simulation = Simulation(scenario, truth, seed=seed, watch=watch)
            summary = simulation.run()
        (root / "truth" / "scenario.json").write_text(_frame(scenario, summary), encoding="utf-8")
        record_count = size_bytes = partition_count = 0
        start_offsets = {}
        for log, topic_id in simulation.logs():
            partition_count += 1
            records, size = write_log(root / "logs", log, topic_id, scenario.cluster.segment_bytes)
            record_count, size_bytes = record_count + records, size_bytes + size
            if log.log_start_offset:
                start_offsets[log.topic, log.partition] = log.log_start_offset
        if watch is not None:
            # a fifth of a second that other simulations need not wait for
            from jobs.laboratory.exchange_tables import write_exchange  # noqa: PLC0415

            write_exchange(root / WAREHOUSE, partial(lines_of, root / "truth"), scenario.name)
        checkpoint = offset_checkpoint(LOG_START_OFFSET_CHECKPOINT, start_offsets)
        (root / "logs" / checkpoint.name).write_bytes(checkpoint.data)
    except OSError as error:
        raise ArgumentError(
            f"cannot write {error.filename or output}: {error.strerror}: name another folder"
        ) from error
    return Written(summary, output, partition_count, record_count, size_bytes)


def explain(
    scenario_file: str,
    group_id: str,
    *,
    seed: int | None = None,
    kafka_version: str | None = None,
    span: Span = WHOLE,
) -> Conversation:
    """Run a scenario, and tell what the clients of a group, its coordinator and other brokers said to each other.

    Raises SimulateError as `simulate`; ArgumentError for a group that the scenario does not have, and where nothing was
    said in the time asked for.
    """
    scenario = read_scenario(scenario_file, kafka_version)
    lines = MemorySink()
    Simulation(scenario, lines, seed=seed, watch=_watch_of(scenario, [group_id], span)).run()
    lasts_ms = scenario.start_ms, scenario.end_ms
    return _story_in(group_id, lasts_ms, *(lines.lines.get(file, ()) for file in STORY))


def explain_written(written: Written, group_id: str) -> Conversation:
    """The same from the truth of a simulation that was written with this group's exchange."""
    truth, lasts_ms = Path(written.output).expanduser() / "truth", (written.summary.from_ms, written.summary.to_ms)
    return _story_in(group_id, lasts_ms, *(lines_of(truth, file) for file in STORY))


STORY: Final = (REQUESTS, STATES, "topics")
"""The files of the truth that tell it."""


def lines_of(truth: Path, file: str) -> Iterator[Mapping[str, Any]]:
    """The lines of a file of the truth; none where there is none."""
    path = truth / f"{file}.jsonl"
    if path.exists():
        with path.open(encoding="utf-8") as lines:
            yield from map(json.loads, lines)


def _story_in(group_id: str, lasts_ms: tuple[int, int], *lines: Iterable[Mapping[str, Any]]) -> Conversation:
    story = story_of(group_id, *lines)
    if not story.events:
        lasts = " to ".join(time_text(at_ms) or "" for at_ms in lasts_ms)
        raise ArgumentError(f"group {group_id!r} says nothing in that time: the scenario is from {lasts}")
    return story


ALL_GROUPS: Final = "*"


def _watch_of(scenario: Scenario, group_ids: Sequence[str], span: Span, *, may_be_all: bool = False) -> Watch:
    """The part of an exchange: these groups between two times. Raises ArgumentError for a group that the scenario does
    not have, and for a time that is none."""
    known = [group_id for spec in scenario.groups for group_id in spec.group_ids()]
    for group_id in group_ids:
        if group_id == ALL_GROUPS and may_be_all:
            continue
        if group_id not in known:
            raise ArgumentError(f"the scenario has no group {or_nearest(group_id, known)}: it has {some_of(known)}")
    from_text, to_text, timezone = span
    clock = Clock.of(datetime.fromtimestamp(scenario.end_ms / 1000, UTC), timezone)

    def moment(text: str | None, default_ms: int) -> int:
        if text is None:
            return default_ms
        after_ms = duration_of(text)
        if after_ms is not None:
            return scenario.start_ms + after_ms
        found = read_moment(text, clock)
        if found.reading is not None:
            say(found.reading)
        return found.timestamp_ms

    from_ms, to_ms = moment(from_text, 0), moment(to_text, NEVER_MS)
    require_forwards(from_ms, to_ms)
    return Watch(None if ALL_GROUPS in group_ids else frozenset(group_ids), from_ms, to_ms)


def read_scenario(scenario_file: str, kafka_version: str | None = None) -> Scenario:
    """Read the scenario in a file; if it does not exist, one that comes with the project, so that
    `scenarios/bad-day.toml` works in any folder. `kafka_version`: replaces its own.

    Raises ScenarioFileError and KafkaVersionError, with the remedy.
    """
    path = Path(scenario_file).expanduser()
    if not path.exists() and (PROJECT_ROOT / path).is_file():
        path = PROJECT_ROOT / path
    if not path.exists():
        known = (f"scenarios/{it.name}" for it in (PROJECT_ROOT / "scenarios").glob("*.toml"))
        raise ScenarioFileError(f"there is no scenario {or_nearest(scenario_file, known)}: name a TOML file")
    try:
        with path.open("rb") as file:  # a device may have no end
            data = file.read(SCENARIO_BYTES_MAX + 1)
        if len(data) > SCENARIO_BYTES_MAX:
            raise ScenarioFileError(f"{scenario_file} is larger than any scenario: name a TOML file")
        text = data.decode("utf-8")
    except (OSError, ValueError) as error:
        if isinstance(error, UnicodeDecodeError):
            raise ScenarioFileError(f"{scenario_file} is no UTF-8 text: name a TOML file") from error
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ScenarioFileError(f"cannot read the scenario {scenario_file}: {reason}: name a TOML file") from error
    try:
        scenario = parse_scenario(text, path.name)
        return scenario if kafka_version is None else as_release(scenario, release(kafka_version), path.name)
    except ScenarioError as error:
        raise ScenarioFileError(str(error)) from error
    except UnknownKafkaVersion as error:
        raise KafkaVersionError(f"--kafka-version: {error}") from error


def write_log(folder: Path, log: PartitionLog, topic_id: str, segment_bytes: int) -> tuple[int, int]:
    """Write the folder of a log partition as its leader has it. Returns the number of records in its segments, and
    their size.
    """
    target = folder / f"{log.topic}-{log.partition}"
    target.mkdir(parents=True)
    batches = (batch.data for batch in log.stored_batches())
    files = [(int(Path(file.name).stem), file) for file in segment_files(batches, rules=SegmentRules(segment_bytes))]
    # brokers delete only whole segments: the one with the log start offset has batches below it, too
    first = max(base_offset for base_offset, _ in files if base_offset <= log.log_start_offset)
    kept = [file for base_offset, file in files if base_offset >= first]
    epochs = [(entry.leader_epoch, entry.start_offset) for entry in log.epochs]
    for file in (*kept, leader_epoch_checkpoint(epochs), partition_metadata(topic_id)):
        (target / file.name).write_bytes(file.data)
    return log.end_offset - first, sum(len(file.data) for file in kept if file.name.endswith(".log"))


def print_written(written: Written, output_format: str) -> None:
    """Print what was written: one JSON object, CSV lines of name and value, or lines for people."""
    if output_format == "json":
        sys.stdout.write(json.dumps(asdict(written)) + "\n")
        return
    summary = written.summary
    rows: list[tuple[str, int | str]] = [
        ("scenario", summary.scenario),
        ("seed", summary.seed),
        ("simulated", f"{_time_text(summary.from_ms)} to {_time_text(summary.to_ms)}"),
        ("groups", summary.group_count),
        ("clients", summary.client_count),
        ("requests served", summary.request_count),
        ("heartbeats left out", summary.skipped_heartbeat_count),
        ("log partitions", written.log_partition_count),
        ("records", written.record_count),
        ("bytes of segments", written.size_bytes),
        *((f"truth: {file}", count) for file, count in summary.truth_lines.items()),
        ("output", written.output),
    ]
    if REQUESTS in summary.truth_lines:
        rows.insert(-1, ("exchange as tables", str(Path(written.output) / WAREHOUSE)))
    if output_format == "csv":
        sys.stdout.writelines(map(csv_line, [("name", "value"), *rows]))
        return
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        sys.stdout.write(f"{name:<{width}}  {value:,}\n" if isinstance(value, int) else f"{name:<{width}}  {value}\n")
    following = command(f"nightly --segments {shlex.quote(str(Path(written.output) / 'logs'))} --warehouse DIR")
    sys.stdout.write(f"next: {following}\n")


def _time_text(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _frame(scenario: Scenario, summary: Summary) -> str:
    """The header: facts about the whole run."""
    facts = {
        "name": scenario.name,
        "about": scenario.about,
        "seed": summary.seed,
        "from_ms": summary.from_ms,
        "to_ms": summary.to_ms,
        "brokers": scenario.cluster.brokers,
        "consumer_offsets_partitions": scenario.cluster.consumer_offsets_partitions,
        "share_group_state_partitions": scenario.cluster.share_group_state_partitions,
    }
    return json.dumps(facts, indent=2) + "\n"
