"""What a damaged log lost may tell of groups that an answer does not have: each answer says so, and where."""

from pathlib import Path
from typing import Final

import pytest

from jobs.cli import app as cli
from schemas import share_group_state
from schemas.consumer_offsets import RecordType
from tests.cases.harness import Ledger
from tests.cases.small_logs import NOON_MS, SmallLog
from tests.cases.test_caveats import iso

MINUTE: Final = 60_000
OFFSETS: Final = "__consumer_offsets"
THEN: Final = iso(NOON_MS + MINUTE)
PAST: Final = ("--at", THEN)
CHECKPOINT: Final = f"0\n1\n{OFFSETS} 0 4\n"


def answer(capsys: pytest.CaptureFixture[str], ledger: Ledger, *words: str) -> tuple[str, str]:
    """What a job prints, and what it remarks."""
    cli.main([*words, "--warehouse", str(ledger.root), "--cluster-id", ledger.cluster_id, "--format", "csv"])
    found = capsys.readouterr()
    return found.out, found.err


def begun_late(root: Path, *, checkpoint: str = "") -> Path:
    """A log whose first four records are lost: two groups with members, and a commit of each. Another group is in
    another log partition, and reads a partition of the same topic."""
    log, other = SmallLog(0), SmallLog(1)
    for group, partition in (("lost", 5), ("left", 0)):
        log.generation(group, 1, {"m": (partition,)}, NOON_MS)
        log.commit(group, partition, 10, NOON_MS)
    log.batches = []
    log.commit("left", 1, 20, NOON_MS + MINUTE)
    other.generation("other", 1, {"o": (0,)}, NOON_MS)
    logs = other.write(root / "logs")
    (logs / f"{OFFSETS}-0").mkdir()
    if checkpoint:
        (logs / "log-start-offset-checkpoint").write_text(checkpoint)
    return log.write_behind(logs)


@pytest.mark.parametrize("count", [(f"{OFFSETS}=2",), ()], ids=["known", "unknown"])
def test_a_group_that_may_be_in_what_is_lost(
    ledger: Ledger, tmp_path: Path, capsys: pytest.CaptureFixture[str], count: tuple[str, ...]
) -> None:
    """There is no word of it anywhere: it is not said to be none without what was not read, wherever it may be. So may
    an owner, whether another group owned the partition, or none is known to have owned it."""
    ledger.night(begun_late(tmp_path), partitions=count)
    hole = f"offsets 0 to 3 of {OFFSETS}-0 are MISSING"
    for words in (
        ["describe", "--group", "lost"],
        ["describe", "--group", "lost", *PAST],
        ["restore", "--group", "lost", *PAST],
        ["history", "--group", "lost"],
        ["audit", "--list", "owners", "--group", "lost"],
    ):
        assert hole in answer(capsys, ledger, *words)[1], words
    for partition, at in (("0", ()), ("5", ()), ("0", PAST), ("5", PAST)):
        owners, remarks = answer(capsys, ledger, "owner", "--topic", "in", "--partition", partition, *at)
        assert (",other," in owners or "\nother," in owners) == (partition == "0")
        assert f"further groups may lack in this answer: {hole}" in remarks


def test_lists_of_all_groups_say_what_may_lack(
    ledger: Ledger, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The log partition of which something is lost has no group of the list."""
    log = SmallLog(0)
    log.generation("lost", 1, {"m": (0,)}, NOON_MS)
    log.batches = []
    log.commit("h", 0, None, NOON_MS)
    other = SmallLog(1)
    other.commit("other", 0, 1, NOON_MS)
    logs = other.write(tmp_path / "logs")
    (logs / f"{OFFSETS}-0").mkdir()
    ledger.night(log.write_behind(logs))
    said = f"further groups may lack in this answer: offsets 0 to 0 of {OFFSETS}-0 are MISSING"
    for words in (["describe"], ["describe", "--members"], ["groups"]):
        assert said in answer(capsys, ledger, *words)[1], words
    assert said not in answer(capsys, ledger, "describe", "--group", "other")[1]


def test_what_kafka_deleted_was_in_force_before(
    ledger: Ledger, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Below the log start offset: Kafka does not have it now either, and answers of before say that they lack it."""
    ledger.night(begun_late(tmp_path, checkpoint=CHECKPOINT), partitions=(f"{OFFSETS}=2",))
    hole = f"offsets 0 to 3 of {OFFSETS}-0 are MISSING (deleted by Kafka"
    for words, is_said in (
        (["describe", "--group", "left"], False),
        (["describe", "--group", "left", *PAST], True),
        (["describe", "--group", "lost"], True),  # whether there was ever such a group
        (["describe", "--group", "lost", *PAST], True),
        (["restore", "--group", "left", *PAST], True),
        (["history", "--group", "left"], True),
        (["owner", "--topic", "in", "--partition", "0"], False),
        (["owner", "--topic", "in", "--partition", "0", *PAST], True),
        (["owner", "--topic", "in", "--partition", "5"], True),  # whether it was ever owned
        (["owner", "--topic", "in", "--partition", "5", *PAST], True),
        (["describe", "--group", "left", "--at", iso(NOON_MS + 10_000 * 24 * 60 * MINUTE)], False),
    ):
        assert (hole in answer(capsys, ledger, *words)[1]) == is_said, words


def test_events_that_compaction_took_are_said(
    ledger: Ledger, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By history, of the group's own log partition, and by groups in one line; the newest state lacks nothing."""
    log, other = SmallLog(0), SmallLog(1)
    log.commit("g", 0, 30, NOON_MS)
    log.skip(3)
    log.commit("g", 1, 20, NOON_MS + MINUTE)
    other.commit("h", 0, 1, NOON_MS)
    other.write(tmp_path / "logs")
    ledger.night(log.write(tmp_path / "logs"))
    said = f"3 records of {OFFSETS}-0 between offsets 1 and 3 had been compacted when it was read: what they changed"
    for words, is_said in (
        (["history", "--group", "g"], True),
        (["groups"], True),
        (["history", "--group", "h"], False),
        (["describe", "--group", "g"], False),
    ):
        assert (said in answer(capsys, ledger, *words)[1]) == is_said, words


def test_a_log_partition_that_ends_before_the_time_is_said(
    ledger: Ledger, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Copies end at unlike times: answers of all groups count those that end before the asked time, and an empty one,
    of groups and of share state; an answer of a time that all were read up to says nothing of it."""
    topic = share_group_state.TOPIC
    for partition, minutes in ((0, 1), (1, 3)):
        log, states = SmallLog(partition), SmallLog(partition, topic)
        log.generation(f"g{partition}", 1, {"m": (partition,)}, NOON_MS)
        log.group_record(RecordType.SHARE_GROUP_METADATA, {"group_id": f"s{partition}"}, {"epoch": 1}, NOON_MS)
        log.commit(f"g{partition}", partition, 10, NOON_MS + minutes * MINUTE)
        states.snapshot("s", NOON_MS + minutes * MINUTE, (), start_offset=5)
        states.write(log.write(tmp_path / "logs"))
    (tmp_path / "logs" / f"{OFFSETS}-2").mkdir()
    (tmp_path / "logs" / f"{OFFSETS}-2" / f"{0:020d}.log").write_bytes(b"")
    ledger.night(tmp_path / "logs", partitions=(f"{OFFSETS}=3",))
    late, early = ("--at", iso(NOON_MS + 2 * MINUTE)), ("--at", iso(NOON_MS + MINUTE))
    of_late = f"2 log partitions of {OFFSETS} (0, 2) were not read up to that time"
    for words in (["describe"], ["owner", "--topic", "in", "--partition", "0"]):
        assert of_late in answer(capsys, ledger, *words, *late)[1]
        assert (
            f"1 log partition of {OFFSETS} (2) was not read up to that time"
            in answer(capsys, ledger, *words, *early)[1]
        )
        assert "not read up to" not in answer(capsys, ledger, *words)[1]
    assert f"1 log partition of {topic} (0) was not read up to" in answer(capsys, ledger, "describe", *late)[1]
    assert f"of {topic}" not in answer(capsys, ledger, "describe", *early)[1]


def test_queries_say_what_no_table_has(ledger: Ledger, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """After the rows: missing ranges and log partitions, of the asked cluster or of each; nothing of a whole log."""
    whole = Ledger(Path(ledger.root), cluster_id="whole")
    log = SmallLog(0)
    log.commit("g", 0, 1, NOON_MS)
    whole.night(log.write(tmp_path / "whole"), partitions=(f"{OFFSETS}=1",))
    ledger.night(begun_late(tmp_path / "late"), number=2, partitions=(f"{OFFSETS}=3",))
    said = f"note: not read of cluster case: 1 range of offsets and log partitions 2 of {OFFSETS}. No table has"
    query = ["sql", "-e", "select group_id from current_offsets", "--engine", "duckdb"]
    assert said in answer(capsys, ledger, *query)[1]
    assert "not read" not in answer(capsys, whole, *query)[1]
    cli.main([*query, "--warehouse", str(ledger.root)])
    assert said in capsys.readouterr().err
