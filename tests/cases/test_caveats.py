"""Answers come with what they cannot know, where it matters: former homes, holes, open transactions, times."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from coordinator_core.replay.lookup import SharePartitionKey, key_partition
from jobs.cli import app as cli
from jobs.cli_enums import Listing, View
from jobs.errors import ArgumentError, NoSuchGroupError
from jobs.operations.nightly import run_capture
from jobs.queries.answers.audit_report import Span, run_audit_report
from jobs.queries.answers.restore import run_restore
from jobs.queries.as_of.as_of import SilverAt
from jobs.queries.verify.verify_ledger import Ledger as VerifyLedger
from jobs.queries.verify.verify_ledger import Window
from schemas import share_group_state
from schemas.consumer_offsets import RecordType
from tests.answers import printed
from tests.cases.harness import CASES, Ledger
from tests.cases.small_logs import NOON_MS, SmallLog
from tests.cases.test_answers import described, ms, owned, restored
from tests.coordinator_core.group_records import T1
from tests.jobs.dump_builders import kafka_rows, write_json_lines

MINUTE = 60_000
LATER = "2100-01-01T00:00:00Z"
OFFSETS = "__consumer_offsets"


def audited(ledger: Ledger, listing: Listing, span: Span = Span()) -> str:  # noqa: B008
    """What audit prints."""
    return printed(run_audit_report, ledger.tables, listing=listing, span=span)[0]


def test_lists_say_which_rows_are_of_before_the_topic_grew(ledger: Ledger) -> None:
    """The log partition where the group was is named, and by what number of partitions it is elsewhere now; verify
    compares what is in the log partition that the broker's own number points to, and no other."""
    ledger.night(CASES / "J-partitions" / "logs")
    for listing in (Listing.OWNERS, Listing.REBALANCES, Listing.COMMITS):
        (line,) = [line for line in audited(ledger, listing).splitlines() if "group grp3: it is in " in line]
        assert line.startswith("# ")
        assert f"{OFFSETS}-50: " in line and f"Its records in {OFFSETS}-0 are from before the topic" in line
    windows = {(OFFSETS, number): Window(1_000, 1_000) for number in range(60)}
    for partition_count, offset, generation in ((60, 12, 1), (50, 5000, 4)):
        known = VerifyLedger(ledger.tables, windows, partition_counts={OFFSETS: partition_count})
        assert {value[0] for value in known.committed_offsets()["grp3"].base.values()} == {offset}
        assert {row["generation"] for row in known.groups()["grp3"].generations} == {generation}


def test_lists_of_shares_say_nothing_of_homes_of_groups(ledger: Ledger) -> None:
    """Share state is in a topic of its own; a group that never moved has no such line either."""
    ledger.night(CASES / "S-skew" / "logs")
    assert "from before the topic" not in audited(ledger, Listing.OWNERS)


def test_a_share_partition_is_where_its_hash_points_now(ledger: Ledger, tmp_path: Path) -> None:
    """After __share_group_state grew, the state in the log partition of before is none of now, whichever is longer."""
    topic = share_group_state.TOPIC
    before, now = SmallLog(0, topic), SmallLog(2, topic)
    group = next(it for it in map("s{}".format, range(100)) if places(it) == (0, 2))
    for number in range(3):
        before.snapshot(group, NOON_MS + number, ((900, 909, 0, 1),), start_offset=900, snapshot_epoch=number)
    now.snapshot(group, NOON_MS + MINUTE, ((10, 19, 0, 1),), start_offset=10)
    # the coordinator of before goes on to prune what it has
    before.snapshot(group, NOON_MS + 2 * MINUTE, ((900, 909, 0, 1),), start_offset=900, snapshot_epoch=9)
    log = SmallLog(1, topic)
    log.snapshot("other", NOON_MS, (), start_offset=5)
    for each in (before, now, log):
        each.write(tmp_path / "logs")
    ledger.night(tmp_path / "logs")
    assert starts(ledger, group, None) == [10]
    assert starts(ledger, group, NOON_MS + 10) == [900]
    assert starts(ledger, "other", None) == [5]


def places(group: str) -> tuple[int, int]:
    """Log partitions of partition 0 of topic T1 in a group, of 2 and of 3."""
    key = SharePartitionKey(group, T1, 0).as_coordinator_key()
    return key_partition(key, 2), key_partition(key, 3)


def starts(ledger: Ledger, group: str, at_ms: int | None) -> list[int | None]:
    """Start offsets of a group's share partitions."""
    silver = SilverAt(ledger.tables, at_ms, [group])
    return [start.start_offset for start in silver._share_starts().get(group, {}).values()]


def test_a_hole_in_the_log_partition_of_a_group_is_said(ledger: Ledger, tmp_path: Path) -> None:
    """By describe and restore, with its offsets; not of a time before it, and not of a group elsewhere."""
    log, other = SmallLog(0), SmallLog(1)
    log.commit("g", 0, 1, NOON_MS)
    log.commit("g", 1, 1, NOON_MS + MINUTE)
    log.commit("g", 0, 2, NOON_MS + 2 * MINUTE)
    log.batches[-1] = log.batches[-1][:-1] + bytes([log.batches[-1][-1] ^ 0xFF])
    log.commit("g", 1, 3, NOON_MS + 3 * MINUTE)
    other.commit("h", 0, 1, NOON_MS)
    log.write(tmp_path / "logs")
    ledger.night(other.write(tmp_path / "logs"))
    hole = f"offsets 2 to 2 of {OFFSETS}-0 are CORRUPT"
    assert any(hole in line for line in described(ledger, "g")[1])
    assert any(hole in line for line in restored(ledger, "g", LATER)[1])
    assert not any("CORRUPT" in line for line in described(ledger, "h")[1])
    assert not any("CORRUPT" in line for line in restored(ledger, "h", LATER)[1])
    (line,) = [line for line in restored(ledger, "g", iso(NOON_MS))[1] if "CORRUPT" in line]
    assert line.startswith(f"note: g: of the current offsets: {hole}")
    assert any(hole in line for line in restored(ledger, "g", iso(NOON_MS + 2 * MINUTE))[1])


def test_what_compaction_took_before_it_was_read_is_said(ledger: Ledger, tmp_path: Path) -> None:
    """Commits and generations were in force for a while, and replaced before anybody read them: answers of that time
    say so. Not those of a time before, of now, of a time after the log was read, and of a group elsewhere."""
    log, other = SmallLog(0), SmallLog(1)
    log.generation("g", 1, {"m": (0,)}, NOON_MS)
    log.commit("g", 0, 1, NOON_MS)
    other.commit("h", 0, 1, NOON_MS)
    other.write(tmp_path / "logs")
    ledger.night(log.write(tmp_path / "logs"), number=1)
    log.skip(3)
    log.commit("g", 1, 5, NOON_MS + 2 * MINUTE)
    log.generation("g", 3, {"m": (0,)}, NOON_MS + 4 * MINUTE)
    ledger.night(log.write(tmp_path / "logs"), number=2)
    said = f"3 records of {OFFSETS}-0 between offsets 2 and 4 had been compacted when it was read"
    for at in (NOON_MS + 2 * MINUTE, NOON_MS + 3 * MINUTE):
        for remarks in (
            described(ledger, "g", iso(at)),
            restored(ledger, "g", iso(at)),
            owned(ledger, "in", 0, iso(at)),
        ):
            assert any(said in line for line in remarks[1])
    for other_time in (iso(NOON_MS - 1), LATER):
        assert not any(said in line for line in owned(ledger, "in", 0, other_time)[1])
    assert not any(said in line for line in described(ledger, "g")[1])
    assert not any(said in line for line in described(ledger, "g", LATER)[1])
    assert not any(said in line for line in restored(ledger, "h", iso(NOON_MS + 3 * MINUTE))[1])


@pytest.mark.parametrize(
    ("is_read_before", "hole"), [(False, "had been compacted when it was read"), (True, "are MISSING")]
)
def test_that_there_was_nothing_is_said_with_what_is_missing(
    ledger: Ledger, tmp_path: Path, is_read_before: bool, hole: str
) -> None:
    """A group of which nothing is left from before a time may have been there, and a partition may have had an
    owner."""
    log = SmallLog()
    log.commit("h", 0, 1, NOON_MS)
    if is_read_before:
        ledger.night(log.write(tmp_path / "first"), number=1)
        log.batches = []
    log.skip(3)
    log.commit("h", 0, 5, NOON_MS + 2 * MINUTE)
    log.generation("g", 3, {"m": (0,)}, NOON_MS + 4 * MINUTE)
    (tmp_path / "logs" / f"{OFFSETS}-0").mkdir(parents=True)
    ledger.night(log.write_behind(tmp_path / "logs") if is_read_before else log.write(tmp_path / "logs"), number=2)
    at = iso(NOON_MS + 3 * MINUTE)
    with pytest.raises(NoSuchGroupError, match=f"no such group at that time: g; .*{hole}"):
        described(ledger, "g", at)
    remarks = owned(ledger, "in", 0, at)[1]
    assert remarks[0].startswith("nobody owned it then") and hole in remarks[1]


def damaged(log: SmallLog) -> None:
    """The checksum of the last batch does not fit its bytes."""
    log.batches[-1] = log.batches[-1][:-1] + bytes([log.batches[-1][-1] ^ 0xFF])


def test_a_hole_is_said_by_all_that_tell_of_the_groups_in_it(
    ledger: Ledger, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """history, groups and whatif too, whose rows a rebalance in the hole is not among; not of a group elsewhere."""
    log, other = SmallLog(0), SmallLog(1)
    log.generation("g", 1, {"a": (0, 1)}, NOON_MS)
    log.generation("g", 2, {"a": (0,), "b": (1,)}, NOON_MS + MINUTE)
    damaged(log)
    log.commit("g", 0, 3, NOON_MS + 2 * MINUTE)
    other.generation("h", 1, {"a": (0, 1)}, NOON_MS)
    log.write(tmp_path / "logs")
    ledger.night(other.write(tmp_path / "logs"))
    hole = f"offsets 1 to 1 of {OFFSETS}-0 are CORRUPT"
    setting = ("--set", "session.timeout.ms=60000")
    for words, is_said in (
        (["history", "--group", "g"], True),
        (["groups"], True),
        (["whatif", "--group", "g", *setting], True),
        (["history", "--group", "h"], False),
        (["whatif", "--group", "h", *setting], False),
    ):
        cli.main([*words, "--warehouse", str(ledger.root), "--cluster-id", ledger.cluster_id])
        assert (hole in capsys.readouterr().err) == is_said, words


def test_a_hole_in_the_log_of_share_state_is_said(
    ledger: Ledger, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By describe and history, of share groups whose start offsets may be in it; of views without start offsets and
    of times before it nothing is said."""
    log, shares, elsewhere = SmallLog(0), SmallLog(0, share_group_state.TOPIC), SmallLog(1, share_group_state.TOPIC)
    for group in ("s", "other"):
        log.group_record(RecordType.SHARE_GROUP_METADATA, {"group_id": group}, {"epoch": 1}, NOON_MS)
    shares.snapshot("s", NOON_MS, (), start_offset=10)
    shares.snapshot("s", NOON_MS + MINUTE, (), start_offset=20, snapshot_epoch=1)
    damaged(shares)
    elsewhere.snapshot("other", NOON_MS, (), start_offset=5)
    for each in (log, shares, elsewhere):
        each.write(tmp_path / "logs")
    ledger.night(tmp_path / "logs", partitions=(f"{share_group_state.TOPIC}=3",))
    hole = f"offsets 1 to 1 of {share_group_state.TOPIC}-0 are CORRUPT"
    missing = f"log partitions 2 of {share_group_state.TOPIC} are in no source"
    offsets, remarks = described(ledger, "s")
    assert ",10," in offsets and hole in offsets and any(hole in line for line in remarks)
    assert any(missing in line for line in remarks)
    assert not any(hole in line for line in described(ledger, "other")[1])
    assert not any(share_group_state.TOPIC in line for line in described(ledger, "s", view=View.STATE)[1])
    assert any("was read up to" in line for line in described(ledger, "s", at=LATER)[1])
    for group, is_said in (("s", True), ("other", False)):
        cli.main(["history", "--group", group, "--warehouse", str(ledger.root), "--cluster-id", ledger.cluster_id])
        err = capsys.readouterr().err
        assert (hole in err) == is_said and missing in err


def test_share_groups_without_a_log_of_share_state(ledger: Ledger, tmp_path: Path) -> None:
    """That none was captured is said: it looks as if they had read nothing."""
    log = SmallLog(0)
    log.group_record(RecordType.SHARE_GROUP_METADATA, {"group_id": "s"}, {"epoch": 1}, NOON_MS)
    ledger.night(log.write(tmp_path / "logs"))
    assert any(f"nothing of {share_group_state.TOPIC} was captured" in line for line in described(ledger, "s")[1])


def iso(at_ms: int) -> str:
    """A time as text."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat()


def test_an_open_transaction_is_left_out_and_said(ledger: Ledger, tmp_path: Path) -> None:
    """Its commits may have been committed behind what was read; once the marker came, nothing is said."""
    log = SmallLog()
    log.commit("g", 0, 6, NOON_MS)
    log.commit("g", 0, 777, NOON_MS + MINUTE, producer_id=7)
    ledger.night(log.write(tmp_path / "logs"))
    plan, remarks = restored(ledger, "g", LATER)
    assert ",6," in plan and "777" not in plan.splitlines()[1].partition("1 commit of")[0]
    assert any("1 commit of a transaction has no marker" in line for line in remarks)
    assert any("has no marker" in line for line in described(ledger, "g")[1])
    log.marker(NOON_MS + 2 * MINUTE, 7, is_commit=False)
    ledger.night(log.write(tmp_path / "logs"), number=2)
    assert not any(" no marker" in line for line in restored(ledger, "g", LATER)[1])


def test_a_dump_without_markers_cannot_tell_aborted_commits(ledger: Ledger, tmp_path: Path) -> None:
    """Rows of a dump do not say what belongs to a transaction: restore and describe say so of the groups in it."""
    log = SmallLog()
    log.commit("g", 0, 6, NOON_MS)
    log.commit("g", 0, 777, NOON_MS + MINUTE, producer_id=7)
    log.marker(NOON_MS + 2 * MINUTE, 7, is_commit=False)
    rows = kafka_rows(log.write(tmp_path / "logs"))
    ledger.night(dumps=(str(write_json_lines(rows, tmp_path / "rows.json")),))
    plan, remarks = restored(ledger, "g", LATER)
    assert "777" in plan and "aborted transactions count as committed" in plan
    assert any("aborted transactions count as committed" in line for line in remarks)
    assert any("aborted transactions count as committed" in line for line in described(ledger, "g")[1])


def odd_commits(ledger: Ledger) -> list[tuple[str, int | None, int, str]]:
    """Kinds of commit anomalies, their offsets, and how sure they are."""
    rows = sorted(ledger.rows("gold.commit_anomalies"), key=lambda row: int(row["log_offset"]))
    return [(row["kind"], row["from_offset"], row["to_offset"], row["confidence"]) for row in rows]


def test_what_may_have_been_aborted_makes_nothing_certain(tmp_path: Path) -> None:
    """Rows of a dump show an aborted commit as one that counts: that an offset went back, or was reset, is LIKELY
    there, in one night or two; segments know it."""
    log = SmallLog()
    log.generation("g", 1, {"a": (0,)}, NOON_MS)
    log.generation("g", 2, {}, NOON_MS + 1)
    log.commit("h", 0, 6, NOON_MS + MINUTE)
    log.commit("h", 0, 777, NOON_MS + MINUTE, producer_id=7)
    log.marker(NOON_MS + 2 * MINUTE, 7, is_commit=False)
    first = log.write(tmp_path / "first")
    log.commit("h", 0, 7, NOON_MS + 3 * MINUTE)
    log.commit("h", 0, 5, NOON_MS + 4 * MINUTE)
    log.commit("g", 0, 9, NOON_MS + 5 * MINUTE)
    logs = log.write(tmp_path / "logs")
    dumps = [str(write_json_lines(kafka_rows(it), tmp_path / f"{it.name}.json")) for it in (first, logs)]
    at_once, by_night, segments = (Ledger(tmp_path / name) for name in ("at-once", "by-night", "segments"))
    at_once.night(dumps=(dumps[1],))
    for number, dump in enumerate(dumps, start=1):
        by_night.night(dumps=(dump,), number=number)
    segments.night(logs)
    doubtful = [("REWIND", 777, 7, "LIKELY"), ("REWIND", 7, 5, "LIKELY"), ("EMPTY_GROUP_RESET", None, 9, "LIKELY")]
    assert odd_commits(at_once) == odd_commits(by_night) == doubtful
    certain = [("ABORTED", 6, 777, "CERTAIN"), ("REWIND", 7, 5, "CERTAIN"), ("EMPTY_GROUP_RESET", None, 9, "CERTAIN")]
    assert odd_commits(segments) == certain


def test_segments_say_what_is_of_a_transaction(ledger: Ledger, tmp_path: Path) -> None:
    """The same log as segments needs no such words, and gives what was committed."""
    log = SmallLog()
    log.commit("g", 0, 6, NOON_MS)
    log.commit("g", 0, 777, NOON_MS + MINUTE, producer_id=7)
    log.marker(NOON_MS + 2 * MINUTE, 7, is_commit=False)
    ledger.night(log.write(tmp_path / "logs"))
    plan, remarks = restored(ledger, "g", LATER)
    assert ",6," in plan and "777" not in plan
    assert not any("transactions" in line for line in remarks)


def test_records_without_a_time_are_said_where_they_may_be_later(ledger: Ledger, tmp_path: Path) -> None:
    """Of a time between two records that have one; not of the newest state, which all of them are in."""
    log = SmallLog()
    log.commit("g", 0, 1, NOON_MS)
    log.commit("g", 0, 2, None, version=1, commit_ms=None)
    log.commit("g", 0, 3, NOON_MS + 2 * MINUTE)
    ledger.night(log.write(tmp_path / "logs"))
    said = "have no time: they are placed by their offsets"
    assert any(said in line for line in restored(ledger, "g", iso(NOON_MS + MINUTE))[1])
    assert not any(said in line for line in described(ledger, "g")[1])


def test_restore_takes_one_place_of_a_moment_that_the_log_has_twice(ledger: Ledger, tmp_path: Path) -> None:
    """By --log-offset, and then writes the file; any other offset is refused with the places that there are."""
    ledger.night(CASES / "S-skew" / "logs")
    at = "2026-05-28T20:28:00Z"
    plan, _ = restored(ledger, "skew", at)
    header, *rows = [line.split(",") for line in plan.splitlines()]
    position, new = header.index("LOG-POSITION"), header.index("RESTORED-OFFSET")
    found = {int(row[position].partition("@")[2]): row[new] for row in rows}
    assert sorted(found.values()) == ["20", "40"]
    asked: dict[str, Any] = {"group_ids": ["skew"], "at_ms": ms(at)}
    for log_offset, offset in found.items():
        output = tmp_path / f"{log_offset}.csv"
        printed(run_restore, ledger.tables, log_offset=log_offset, output=str(output), **asked)
        assert [line.rsplit(",", 1)[-1] for line in output.read_text().splitlines()] == [offset]
    with pytest.raises(ArgumentError, match=r"is at offset .*, not 999"):
        printed(run_restore, ledger.tables, log_offset=999, **asked)


def test_capture_alone_says_which_log_partitions_are_in_no_source(ledger: Ledger, tmp_path: Path) -> None:
    """It ends with 3, as a night does; once they came, with 0."""
    first, second = SmallLog(0), SmallLog(1)
    first.commit("g", 0, 1, NOON_MS)
    second.commit("h", 0, 1, NOON_MS)
    asked: dict[str, Any] = {"partitions": (f"{OFFSETS}=2",), "topics": (OFFSETS,)}
    one = ledger.run(run_capture, first.write(tmp_path / "a"), number=1, **asked)
    assert one.exit_code == 3
    assert f"1 of 2 log partitions of {OFFSETS} are in no source (1)" in one.text
    assert one.facts["captured"]["missing_log_partitions"] == {OFFSETS: [1]}
    both = ledger.run(run_capture, second.write(tmp_path / "b"), number=2, **asked)
    assert both.exit_code == 0 and "in no source" not in both.text
    assert both.facts["captured"]["missing_log_partitions"] == {}
