"""The conformance tests can fail: each lie in their input is found, and only that."""

import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobs.spark.executors import Executor
from tests.conformance import compare
from tests.conformance.dump import DumpBatch, UnreadableDump, parse_dump
from tests.conformance.explained import CLASSIC_REBALANCING, explanation
from tests.conformance.recordings import LOGS, LOGS_BEFORE, Recording, SilverOf, make_warehouse
from tests.conformance.tables import Row, Tables, deltas, read_tables
from tests.conformance.truth import (
    CONSUMER_OFFSETS,
    SHARE_GROUP_STATE,
    GroupAnswer,
    Truth,
    group_answers,
    read_truth,
    share_answers,
)
from tests.recorded import RECORDINGS

Json = dict[str, Any]
FIRST_SEGMENT = f"{0:020}.log"
SHARE_KEY = ("group_id", "topic_id", "partition")


@pytest.fixture
def recording() -> Recording:
    """The small one: every group type but streams."""
    return Recording(RECORDINGS / "codec-lz4")


@pytest.fixture
def truth(recording: Recording) -> Truth:
    """A copy that a test may change."""
    return copy.deepcopy(read_truth(recording.path))


def _consumer_answer(truth: Truth) -> Json:
    """A consumer group with members and offsets, at a moment that counts."""
    for answer in group_answers(truth, frozenset()):
        reported = answer.answer
        if reported is not None and reported["type"] == "Consumer" and reported["members"] and reported["offsets"]:
            return truth.snapshots[answer.snapshot].groups[answer.group_id]  # type: ignore[return-value]
    raise AssertionError("the recording has no such answer")


def _share_state(truth: Truth) -> Json:
    """A share partition with batches, at a moment that counts."""
    for answer in share_answers(truth, frozenset()):
        if answer.state is not None and answer.state["batches"]:
            return answer.state  # type: ignore[return-value]
    raise AssertionError("the recording has no such answer")


LIES: dict[str, Callable[[Json], object]] = {
    "no member": lambda group: group["members"].pop(),
    "another member": lambda group: group["members"].append(dict(group["members"][0], member_id="nobody")),
    "another host": lambda group: group["members"][0].update(host="/203.0.113.1"),
    "another epoch": lambda group: group["members"][0].update(member_epoch=99),
    "less assigned": lambda group: group["members"][0]["assignment"].pop(),
    "less target": lambda group: group["members"][0]["target"].pop(),
    "another offset": lambda group: next(iter(group["offsets"].values())).update(offset=99_999),
    "another metadata": lambda group: next(iter(group["offsets"].values())).update(metadata="other"),
    "no offset": lambda group: group["offsets"].popitem(),
    "another type": lambda group: group.update(type="Share"),
    "another group epoch": lambda group: group.update(group_epoch=99),
    "another state": lambda group: group.update(state="Dead"),
}
"""What the broker did not say of a consumer group."""


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_a_lie_about_a_group_is_found(
    recording: Recording, truth: Truth, silver_of: SilverOf, lie: Callable[[Json], object]
) -> None:
    """One changed answer of the broker gives one failure, and is not explained away."""
    tables = silver_of(recording)
    honest = compare.compare_groups(tables, truth)
    lie(_consumer_answer(truth))
    tally = compare.compare_groups(tables, truth)
    assert not honest.failures
    assert (len(tally.failures), tally.explained) == (1, honest.explained)


def test_a_group_which_the_broker_does_not_list_is_found(
    recording: Recording, truth: Truth, silver_of: SilverOf
) -> None:
    """A group of the tables that the broker did not list is too many."""
    reported = _consumer_answer(truth)
    snapshot = next(s for s in truth.snapshots if reported in s.groups.values())
    removed = next(group_id for group_id, group in snapshot.groups.items() if group is reported)
    del snapshot.groups[removed]  # type: ignore[attr-defined]
    tally = compare.compare_groups(silver_of(recording), truth)
    assert len(tally.failures) == 1
    assert removed in tally.failures[0]


def test_a_group_which_the_tables_lack_is_found(recording: Recording, truth: Truth, silver_of: SilverOf) -> None:
    """A group that the broker lists must be in the tables, whatever else they hold."""
    reported = _consumer_answer(truth)
    snapshot = next(s for s in truth.snapshots if reported in s.groups.values())
    group_id = next(group_id for group_id, group in snapshot.groups.items() if group is reported)
    rows = {
        name: [row for row in rows if name.startswith("bronze.") or row.get("group_id") != group_id]
        for name, rows in silver_of(recording).rows.items()
    }
    assert compare.compare_groups(Tables(rows), truth).failures


@pytest.mark.parametrize(
    ("place", "change"), [(0, -1), (1, 1), (2, 2), (3, 1)], ids=["first", "last", "state", "count"]
)
def test_a_lie_about_a_share_partition_is_found(
    recording: Recording, truth: Truth, silver_of: SilverOf, place: int, change: int
) -> None:
    """One changed batch of the share coordinator's answer gives one failure."""
    _share_state(truth)["batches"][-1][place] += change
    tally = compare.compare_share_partitions(silver_of(recording), truth)
    assert len(tally.failures) == 1


def test_a_share_partition_which_the_broker_does_not_list_is_found(
    recording: Recording, truth: Truth, silver_of: SilverOf
) -> None:
    """A share partition with deliveries that the broker did not list is too many, and no initialisation."""
    state = _share_state(truth)
    for snapshot in truth.snapshots:
        for group in snapshot.groups.values():
            for name, reported in list(group.get("coordinator_state", {}).items()):
                if reported is state:
                    del group["coordinator_state"][name]
    tally = compare.compare_share_partitions(silver_of(recording), truth)
    assert (len(tally.failures), tally.explained.total()) == (1, 0)


@pytest.mark.parametrize(
    ("table", "column", "value"),
    [
        ("bronze.record_batches", "producer_epoch", 99),
        ("bronze.record_batches", "control_type", "MAYBE"),
        ("silver.offset_commits", "committed_offset", -7),
        ("silver.group_generations", "generation", 99),
        ("silver.group_generations", "to_log_offset", 0),
        ("silver.group_generations", "is_contiguous", None),
        ("silver.group_members", "client_id", "nobody"),
        ("silver.member_assignments", "partition", 99),
        ("silver.share_partition_states", "snapshot_epoch", -7),
        ("bronze.coverage", "kind", "MISSING"),
    ],
)
def test_a_wrong_column_is_found(
    recording: Recording, silver_of: SilverOf, table: str, column: str, value: Any
) -> None:
    """One changed value in one row of a table differs from the dump."""
    honest = silver_of(recording)
    rows = list(honest[table])
    rows[len(rows) // 2] = {**rows[len(rows) // 2], column: value}
    assert not _failures(honest, recording)
    assert _failures(Tables({**honest.rows, table: rows}), recording)


@pytest.mark.parametrize(
    "table",
    [
        "bronze.record_batches",
        "bronze.coverage",
        "silver.offset_commits",
        "silver.group_generations",
        "silver.group_members",
        "silver.member_assignments",
        "silver.group_events",
        "silver.share_partition_states",
    ],
)
def test_a_missing_row_and_a_row_too_many_are_found(recording: Recording, silver_of: SilverOf, table: str) -> None:
    """Each table is compared both ways."""
    honest = silver_of(recording)
    row = next(row for row in honest[table] if row.get("event_type", "MEMBER_RECONCILED") == "MEMBER_RECONCILED")
    less = [other for other in honest[table] if other is not row]
    assert _failures(Tables({**honest.rows, table: less}), recording)
    assert _failures(Tables({**honest.rows, table: [*honest[table], dict(row)]}), recording)


def _failures(tables: Tables, recording: Recording) -> list[str]:
    dumps = compare.dumps_of(recording.decoded)
    commits, states = dumps[CONSUMER_OFFSETS], dumps[SHARE_GROUP_STATE]
    tallies = [
        compare.compare_headers(tables, dumps),
        compare.compare_records(tables, dumps),
        compare.compare_offset_commits(tables, commits),
        *compare.compare_intervals(tables, commits),
        compare.compare_reconciliations(tables, commits),
        compare.compare_share_states(tables, states),
        compare.compare_coverage(tables, dumps),
        compare.compare_contiguity(tables),
    ]
    return [failure for tally in tallies for failure in tally.failures]


def test_bytes_which_decode_to_something_else_are_found(recording: Recording, silver_of: SilverOf) -> None:
    """A dump that prints another value than the batch holds differs in that record alone."""
    dumps = copy.deepcopy(compare.dumps_of(recording.decoded))
    record = next(r for batch in dumps[CONSUMER_OFFSETS] for r in batch.records if r.record_type == 1 and r.value)
    assert record.value is not None
    record.value["data"]["metadata"] += "!"
    tally = compare.compare_records(silver_of(recording), dumps)
    assert len(tally.failures) == 1
    assert "metadata" in tally.failures[0]


def test_a_client_who_saw_something_else_is_found(recording: Recording, silver_of: SilverOf, tmp_path: Path) -> None:
    """Assignments, commits and ends of transactions of clients that the tables do not have are failures."""
    (tmp_path / "truth").mkdir()
    text = (recording.path / "truth" / "events.jsonl").read_text(encoding="utf-8")
    other = text.replace('"result":"abort"', '"result":"commit"').replace('"generation":1,', '"generation":77,')
    (tmp_path / "truth" / "events.jsonl").write_text(other.replace('"offset":', '"offset":1'), encoding="utf-8")
    reported = compare.compare_client_views(silver_of(recording), Recording(tmp_path))
    assert {failure.split()[0] for failure in reported.failures} == {"assigned", "commit", "txn"}


def test_a_log_which_was_pruned_says_so(silver_of: SilverOf, tmp_path: Path, no_spark: Executor) -> None:
    """Of a share state log that begins in the middle, rows are not complete until a snapshot of their key, and the end
    state is the one of the whole log."""
    whole = Recording(RECORDINGS / "compact", LOGS_BEFORE)
    dump = compare.dumps_of(whole.decoded)[SHARE_GROUP_STATE]
    cut = _cut_in_the_middle(dump)
    for place in {batch.place for batch in cut}:
        own = [batch for batch in cut if batch.place == place]
        source = whole.logs / f"{place.topic}-{place.partition}" / FIRST_SEGMENT
        folder = tmp_path / LOGS / source.parent.name
        folder.mkdir(parents=True)
        (folder / own[0].file_name).write_bytes(source.read_bytes()[own[0].position :])
    make_warehouse(no_spark, tmp_path / LOGS, tmp_path / "warehouse", cluster_id="pruned")
    tables = read_tables(tmp_path / "warehouse")
    tally = compare.compare_share_states(tables, cut)
    assert not tally.failures, tally.report
    assert compare.holes_said(tables)["coverage MISSING"] == len({batch.place for batch in cut})
    assert compare.holes_said(tables)["share states not complete"] > 0
    kept = {_key(row) for row in tables["silver.share_partition_states"]}
    assert _open_batches(tables, kept) == _open_batches(silver_of(whole), kept)


def _cut_in_the_middle(dump: list[DumpBatch]) -> list[DumpBatch]:
    """Each log from its first update after a quarter of it on."""
    kept: list[DumpBatch] = []
    for place in sorted({batch.place for batch in dump}):
        own = [batch for batch in dump if batch.place == place]
        start = next(
            number for number, batch in enumerate(own) if number > len(own) // 4 and batch.records[0].record_type == 1
        )
        name = f"{own[start].base_offset:020}.log"
        kept += [replace(batch, file_name=name) for batch in own[start:]]
    return kept


def _key(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in SHARE_KEY)


def _open_batches(tables: Tables, keys: set[tuple[Any, ...]]) -> set[tuple[Any, ...]]:
    names = (*SHARE_KEY, "first_offset", "last_offset", "delivery_state", "delivery_count")
    return {
        tuple(row[name] for name in names)
        for row in tables["silver.share_state_batches"]
        if row["to_log_offset"] is None and _key(row) in keys
    }


def test_an_explanation_covers_every_difference() -> None:
    """A rebalancing group is excused for its members, never for its offsets; a stable one for nothing."""
    members = (("member count",), 1, 0)
    offsets = (("offset", "t-0"), (1, None, ""), (2, None, ""))
    rebalancing = GroupAnswer(0, "", "g", 0, 1, {"state": "PreparingRebalance", "protocol_type": "consumer"})
    stable = GroupAnswer(0, "", "g", 0, 1, {"state": "Stable", "protocol_type": "consumer"})
    assert explanation(rebalancing, [members]) == CLASSIC_REBALANCING
    assert explanation(rebalancing, [members, offsets]) is None
    assert explanation(stable, [members]) is None


def test_the_dump_reader_skips_no_line() -> None:
    """A line of unknown form stops the comparison: what it says might matter."""
    with pytest.raises(UnreadableDump):
        list(parse_dump(["Dumping a/__consumer_offsets-0/00000000000000000000.log", "| something: else"]))


def test_facts_differ_in_both_directions() -> None:
    """A fact that one side lacks is a difference, also where the other says None."""
    assert deltas({("a",): 1}, {}) == [(("a",), 1, None)]
    assert deltas({}, {("a",): None}) == [(("a",), None, None)]
    assert deltas({("a",): 1}, {("a",): 1}) == []
