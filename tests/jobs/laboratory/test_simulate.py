"""simulate: from a scenario to segments, through nightly, to silver tables which say what truly happened."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from coordinator_core.bytes.log.batch import Record, build_batch
from coordinator_core.live.runtime.partition import PartitionLog
from jobs.errors import ArgumentError, ScenarioFileError, SimulateError
from jobs.exit_codes import DONE
from jobs.laboratory.simulate import simulate, write_log
from tests.conftest import PROJECT_ROOT
from tests.lengths import is_long
from tests.made_once import MadeOnce
from tests.scenarios import Scenario, scenario_of

SCENARIOS = PROJECT_ROOT / "scenarios"
CHECKED = ["rolling-deploy", "bad-day", "consumer-protocol", "share-poison", "exactly-once"]
"""Scenarios which go all the way through Spark here."""
if is_long():
    CHECKED.append("busy-day")  # many minutes: with `make test-live`


@pytest.fixture(scope="module", params=CHECKED)
def simulated(request: pytest.FixtureRequest, made_once: MadeOnce) -> Scenario:
    """One scenario after another."""
    return scenario_of(made_once, request.param)


def test_nightly_reads_every_record(simulated: Scenario) -> None:
    """The ledger balances, nothing is quarantined, nothing is missing."""
    assert simulated.night.exit_code == DONE, simulated.night.text


def test_offset_commits_equal_the_truth(simulated: Scenario) -> None:
    """Every commit which a coordinator took is a row, with its outcome; and there is no other row."""
    outcomes: dict[int, list[Any]] = {}
    for line in simulated.truth("transactions"):
        outcomes.setdefault(line["producer_id"], []).append((line["log"], line["outcome"]))
    expected = set()
    for line in simulated.truth("commits"):
        partition = line["log_partition"]
        for topic, number, committed_offset, log_offset in line["offsets"]:
            outcome = "APPLIED"
            if line["producer_id"] >= 0:
                outcome = _outcome(outcomes.get(line["producer_id"], []), partition, log_offset)
            expected.add((partition, log_offset, line["group"], topic, number, committed_offset, outcome))
    for line in simulated.truth("deletions"):
        if line["what"] == "OFFSET":
            partition, log_offset = line["log"]
            expected.add((partition, log_offset, line["group"], line["topic"], line["partition"], None, "APPLIED"))
    found = {
        (
            row["log_partition"],
            row["log_offset"],
            row["group_id"],
            row["topic"],
            row["partition"],
            row["committed_offset"],
            row["outcome"],
        )
        for row in simulated.rows("silver.offset_commits")
    }
    assert found == expected


def _outcome(markers: list[Any], partition: int, log_offset: int) -> str:
    """What the first marker of the producer after the record says."""
    later = [(log[1], outcome) for log, outcome in markers if log[0] == partition and log[1] > log_offset]
    if not later:
        return "PENDING"
    return "APPLIED" if min(later)[1] == "COMMITTED" else "ABORTED"


def test_generations_equal_the_truth(simulated: Scenario) -> None:
    """Every generation and group epoch which a coordinator wrote is a row which begins when it was written."""
    expected: dict[tuple[str, int], tuple[str, int, int, int | None]] = {}
    for line in simulated.truth("generations"):
        # The same generation may be written again (a static member came back): it is one row.
        partition, log_offset = line["log"]
        is_classic = line["group_type"] == "CLASSIC"
        # Of an epoch the tables take the last record of its operation; the truth has the epoch's own.
        what = (line["group_type"], partition, line["ts_ms"], log_offset if is_classic else None)
        expected.setdefault((line["group"], line["generation"]), what)
    found = {
        (row["group_id"], row["generation"]): (
            row["group_type"],
            row["log_partition"],
            round(row["valid_from"].timestamp() * 1000),
            row["from_log_offset"] if row["group_type"] == "CLASSIC" else None,
        )
        for row in simulated.rows("silver.group_generations")
    }
    assert found == expected


def test_classic_assignments_equal_the_truth(simulated: Scenario) -> None:
    """Who had what in which generation of a classic group is what its leader gave."""
    rows = [row for row in simulated.rows("silver.member_assignments") if row["group_type"] == "CLASSIC"]
    for line in simulated.truth("generations"):
        if line["group_type"] != "CLASSIC":
            continue
        _, log_offset = line["log"]
        expected = {
            (member_id, topic, number)
            for member_id, member in line["members"].items()
            for topic, numbers in member["assignment"]
            for number in numbers
        }
        found = {
            (row["member_id"], row["topic"], row["partition"])
            for row in rows
            if row["group_id"] == line["group"]
            and row["from_log_offset"] <= log_offset
            and (row["to_log_offset"] is None or row["to_log_offset"] > log_offset)
        }
        assert found == expected, (line["group"], line["generation"])


def test_current_assignments_of_modern_groups_equal_the_truth(simulated: Scenario) -> None:
    """What members of consumer and share groups own at the end is what their coordinator last wrote of them."""
    expected: dict[tuple[str, str], set[tuple[str, int]]] = {}
    for line in simulated.truth("assignments"):
        key = (line["group"], line["member_id"])
        if line["member_epoch"] is None:
            expected.pop(key, None)
        else:
            expected[key] = {(topic_id, number) for topic_id, numbers in line["assigned"] for number in numbers}
    found: dict[tuple[str, str], set[tuple[str, int]]] = {}
    for row in simulated.rows("silver.member_assignments"):
        is_open = row["to_log_offset"] is None and row["assignment"] == "CURRENT"
        if row["group_type"] in {"CONSUMER", "SHARE"} and is_open:
            key = (row["group_id"], row["member_id"])
            found.setdefault(key, set()).add((row["topic_id"], row["partition"]))
    assert found == {key: partitions for key, partitions in expected.items() if partitions}


def test_share_state_equals_the_truth(simulated: Scenario) -> None:
    """The open batches of every share partition are what its share coordinator knew when the clock stopped."""
    expected = {
        (line["group"], line["topic_id"], line["partition"], offset): (state, delivery_count)
        for line in simulated.truth("end_share")
        for first, last, state, delivery_count in line["state_batches"]
        for offset in range(first, last + 1)
    }
    found = {
        (row["group_id"], row["topic_id"], row["partition"], offset): (
            row["delivery_state_code"],
            row["delivery_count"],
        )
        for row in simulated.rows("silver.share_state_batches")
        if row["to_log_offset"] is None
        for offset in range(row["first_offset"], row["last_offset"] + 1)
    }
    assert found == expected


def test_an_output_folder_with_something_in_it_is_refused(tmp_path: Path) -> None:
    """A simulation never mixes with other files."""
    (tmp_path / "here").write_text("mine")
    with pytest.raises(ArgumentError, match="not an empty folder"):
        simulate(str(SCENARIOS / "rolling-deploy.toml"), str(tmp_path))


def test_a_file_that_is_no_scenario_is_named(tmp_path: Path) -> None:
    """The error names the file, the key, and what to do."""
    path = tmp_path / "wrong.toml"
    path.write_text('name = "x"\nstart = 2026-01-05T00:00:00Z\nduration = "5 minutes"\n')
    with pytest.raises(ScenarioFileError, match=r"wrong\.toml: duration: must be a duration, as"):
        simulate(str(path), str(tmp_path / "out"))
    with pytest.raises(SimulateError, match=r"there is no scenario .*missing\.toml"):
        simulate(str(tmp_path / "missing.toml"), str(tmp_path / "out"))


def test_the_release_may_be_given_in_place_of_the_scenarios(tmp_path: Path) -> None:
    """Logs of another release, from the same file; an unknown one is a wrong argument, and nothing is written."""
    scenario = tmp_path / "scenario.toml"
    text = (SCENARIOS / "rolling-deploy.toml").read_text()
    scenario.write_text(re.sub(r'duration = "\w+"', 'duration = "3m"', text, count=1).split("[[fault]]")[0])
    for version in (None, "4.3", "4.4"):
        simulate(str(scenario), str(tmp_path / str(version)), kafka_version=version)
    default, as_43, as_44 = (
        [it.read_bytes() for it in sorted((tmp_path / version / "logs").rglob("*.log"))]
        for version in ("None", "4.3", "4.4")
    )
    assert default == as_43 != as_44
    with pytest.raises(SimulateError, match=r"--kafka-version: no Kafka version '2\.8' is known") as error:
        simulate(str(scenario), str(tmp_path / "unknown"), kafka_version="2.8")
    assert error.value.exit_code == 2
    assert not (tmp_path / "unknown").exists()


def test_one_seed_gives_the_same_files_whatever_pythons_hash_seed(tmp_path: Path) -> None:
    """Segments and truth, byte for byte, from two processes in which sets and maps come in different orders."""
    text = (SCENARIOS / "share-poison.toml").read_text()
    scenario = tmp_path / "scenario.toml"
    shorter = "[[fault]]".join(text.replace('duration = "30m"', 'duration = "13m"', 1).split("[[fault]]")[:4])
    scenario.write_text(text if is_long() else shorter)
    files: list[dict[str, bytes]] = []
    for hash_seed in ("0", "5"):
        output = tmp_path / hash_seed
        options = {"--scenario": scenario, "--output": output, "--seed": 3}
        subprocess.run(
            [sys.executable, "-m", "jobs", "simulate", *(str(word) for option in options.items() for word in option)],
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(PROJECT_ROOT)},
            cwd=tmp_path,
            check=True,
            capture_output=True,
        )
        files.append({str(path.relative_to(output)): path.read_bytes() for path in output.rglob("*") if path.is_file()})
    assert len(files[0]) > len(("logs", "truth"))
    assert files[0] == files[1]


@pytest.mark.parametrize(("log_start_offset", "first"), [(0, 0), (2, 0), (3, 3), (7, 6)])
def test_segments_below_the_log_start_offset_are_deleted(tmp_path: Path, log_start_offset: int, first: int) -> None:
    """As on a broker: whole segments only, and the one that has the log start offset stays."""
    log = PartitionLog("__share_group_state", 0)
    for _ in range(9):
        log.append(0, build_batch([Record(0, 1, b"key", b"value")]))
    log.delete_records(log_start_offset)
    three_batches = 3 * len(build_batch([Record(0, 1, b"key", b"value")]))
    record_count, size_bytes = write_log(tmp_path, log, "t" * 22, three_batches)
    segments = sorted((tmp_path / "__share_group_state-0").glob("*.log"))
    assert [int(path.stem) for path in segments] == list(range(first, 9, 3))
    assert size_bytes == sum(path.stat().st_size for path in segments)
    assert record_count == 9 - first
