"""What cannot be replayed keeps nothing else from silver and gold: a group, a share partition, a log partition. It is
said with its place, the night ends with 3, and the next night tries again."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from coordinator_core.bytes import codec
from coordinator_core.bytes.codec import uuid_text
from coordinator_core.bytes.log.batch import Record, build_batch
from coordinator_core.history import groups as history
from coordinator_core.history.checkpoint import pack_group
from coordinator_core.history.intervals import Intervals
from coordinator_core.replay.columnar import share_state_columnar
from coordinator_core.replay.columnar.offsets_columnar import ColumnarOffsetReplay
from coordinator_core.replay.columnar.share_state_columnar import ColumnarShareReplay
from coordinator_core.replay.key_buckets import keys_in
from jobs.bronze.reader import read_log
from jobs.cli_enums import View
from jobs.delta.core_tables import assignments_table, rows_table
from jobs.errors import JobError
from jobs.queries.answers.audit_report import Span, completeness
from jobs.queries.as_of.in_log import require_groups
from jobs.silver import replay as replay_module
from jobs.silver import tasks
from schemas.cluster_metadata import TOPIC_RECORD
from schemas.consumer_offsets import TOPIC
from schemas.share_group_state import TOPIC as SHARE_TOPIC
from schemas.tables.silver import SILVER_TABLES
from tests.answers import describe
from tests.cases.harness import CLUSTER_ID, Ledger
from tests.cases.small_logs import NOON_MS, SmallLog
from tests.cases.test_not_judged import by_group, more
from tests.cases.test_times import gold
from tests.lengths import takes_minutes

DAY_MS = 86_400_000
ERRORS = (ValueError, OverflowError, TypeError, RecursionError, KeyError)


def planted(error: type[Exception], function: Callable[..., Any], is_bad: Callable[..., bool]) -> Callable[..., Any]:
    """A function that fails where its arguments are of something bad."""

    def failing(*args: Any, **named: Any) -> Any:
        if is_bad(*args):
            raise error("planted")
        return function(*args, **named)

    return failing


def silver(ledger: Ledger) -> dict[str, list[str]]:
    """All of silver, in one order."""
    return {table.full_name: sorted(map(repr, ledger.rows(table.full_name))) for table in SILVER_TABLES}


def _has_bad(rows: Any) -> bool:
    return any(str(getattr(row, "group_id", "")).startswith("bad") for row in rows)


def _has_record_of(prefix: str, _: Any, chunk: Any) -> bool:
    keys = (key for is_share in (False, True) for _, key in keys_in(chunk, is_share=is_share))
    return any((key if isinstance(key, str) else key.group_id).startswith(prefix) for key in keys)


def plant(patch: pytest.MonkeyPatch, depth: str, error: type[Exception]) -> None:
    """Let one depth of the replay fail for what is of a group whose id begins with `bad`."""
    match depth:
        case "value":  # a member's host is the only thing of a record that names the group
            made = planted(error, codec.decode_value, lambda *args: b"/bad-host" in args[2])
            patch.setattr(codec, "decode_value", made)
        case "history":
            made = planted(error, history.GroupHistory.apply, lambda _, step: step.group_id.startswith("bad"))
            patch.setattr(history.GroupHistory, "apply", made)
        case "saved":
            patch.setattr(history, "pack_group", planted(error, pack_group, _is_bad_state))
        case "open rows":
            made = planted(error, Intervals.close_all, lambda _, group, step, __: step is None and _is_bad_group(group))
            patch.setattr(Intervals, "close_all", made)
        case "columns":
            patch.setattr(tasks, "rows_table", planted(error, rows_table, lambda _, rows, *__: _has_bad(rows)))
        case "commits":
            made = planted(error, ColumnarOffsetReplay.feed, partial(_has_record_of, "bad"))
            patch.setattr(ColumnarOffsetReplay, "feed", made)


def _is_bad_state(saved: Any) -> bool:
    return saved.group is not None and _is_bad_group(saved.group)


def _is_bad_group(group: Any) -> bool:
    return bool(group.group_id.startswith("bad"))


def with_host(log: SmallLog, at_ms: int, generation: int) -> None:
    """A generation of the bad group whose member has a host that its bytes show."""
    log.generation("bad", generation, {"bad-host": (0, 1)}, at_ms)


@contextmanager
def planting(depth: str, error: type[Exception]) -> Iterator[None]:
    """The fault is there meanwhile."""
    with pytest.MonkeyPatch.context() as patch:
        plant(patch, depth, error)
        yield


def first_log() -> SmallLog:
    """Groups with members, and others that only commit."""
    log = SmallLog()
    for group_id in ("bad", "good", "also"):
        log.generation(group_id, 1, {"a": (0,)}, NOON_MS)
        log.commit(group_id, 0, 5, NOON_MS + 1_000)
    for group_id in ("bad-simple", "good-simple"):
        log.commit(group_id, 0, 5, NOON_MS + 4_000)
    return log


DEPTHS = ("value", "history", "saved", "open rows", "columns")
OFTEN = {"history", "columns"}
"""The others run where there is time."""


@pytest.mark.parametrize(
    ("depth", "error"),
    [
        pytest.param(depth, error, marks=() if depth in OFTEN else takes_minutes)
        for depth, error in zip(DEPTHS, ERRORS, strict=True)
    ],
)
def test_a_group_that_cannot_be_replayed(tmp_path: Path, depth: str, error: type[Exception]) -> None:
    """All others are in silver and gold; its failure is a row with the place in our code and in the log, in each night
    that has it; once it is mended, silver and gold are as if it had never been."""
    ledger, whole, log, night = Ledger(tmp_path / "nights"), Ledger(tmp_path / "whole"), first_log(), 0
    elsewhere = SmallLog(1)

    def goes_on() -> Path:
        nonlocal night
        night += 1
        more(log, night)
        with_host(log, NOON_MS + night * DAY_MS + 5_000, 2 * night + 3)
        elsewhere.generation("elsewhere", night, {"a": (0,)}, NOON_MS + night * DAY_MS)
        elsewhere.write(tmp_path / "logs")
        return log.write(tmp_path / "logs")

    if DEPTHS.index(depth) % 2:  # else it fails in the first night
        assert ledger.night(goes_on(), number=night).exit_code == 0
    for _ in range(2 if depth == "history" else 1):
        with planting(depth, error):
            reported = ledger.night(goes_on(), number=night)
        assert reported.exit_code == 3, reported.text
        assert "could not be replayed: group bad" in reported.text
        rows = [row for row in ledger.rows("gold.log_anomalies") if row["rule"] == "NOT_REPLAYED"]
        bad = {row["group_id"] for row in rows}
        assert "bad" in bad and bad <= {"bad", "bad-simple"}
        for row in rows:
            assert row["details"].startswith(f"{error.__name__}: "), row["details"]
            assert "planted" in row["details"] and "test_not_replayed.py:" in row["details"]
            assert (row["log_topic"], row["log_partition"], row["category"]) == (TOPIC, 0, "AUDIT")
            assert 0 <= row["log_offset"] < log.next_offset
        good = {"good", "also", "good-simple", "elsewhere"}
        assert good <= by_group(ledger, "silver.group_events").keys() | by_group(ledger, "silver.offset_commits").keys()
        assert set(by_group(ledger, "gold.rebalances")) == {"good", "also", "elsewhere"}
        assert set(by_group(ledger, "gold.partition_owners")) == {"good", "also", "elsewhere"}
        newest = max(row["generation"] for row in ledger.rows("silver.group_generations") if row["group_id"] == "good")
        assert newest == 2 * night + 2
        facts = reported.facts["ledger"][TOPIC]
        assert facts["record_count"] == sum(facts[name] for name in facts if name in COUNTED)
        assert facts["quarantined_count"] > 0
        said = completeness(ledger.tables, TOPIC, Span(None, None), {"bad"})
        assert any("group bad could not be judged" in line for line in said.statements)
        said = completeness(ledger.tables, TOPIC, Span(None, None), {"good"}, {TOPIC: 2})
        assert said.is_complete
    assert ledger.night(goes_on(), number=night).exit_code == 0
    assert not [row for row in ledger.rows("gold.log_anomalies") if row["category"] == "AUDIT"]
    assert whole.night(tmp_path / "logs").exit_code == 0
    assert silver(ledger) == silver(whole)
    assert gold(ledger) == gold(whole)


COUNTED = frozenset(
    {
        "decoded_count",
        "tombstone_count",
        "control_count",
        "not_used_count",
        "unknown_type_count",
        "quarantined_count",
    }
)


def share_log(group_ids: tuple[str, ...], nights: int) -> SmallLog:
    """Share partitions of some groups, some nights long. The codec reads the records of the bad one, since they have a
    field that no declaration has."""
    log = SmallLog(0, SHARE_TOPIC)
    for night in range(nights):
        for group_id in group_ids:
            batches = tuple((10 * at, 10 * at + 9, 4 * (at % 2), 1 + at % 2) for at in range(2 * night + 2))
            log.snapshot(group_id, NOON_MS + night * DAY_MS, batches, snapshot_epoch=night, is_tagged=group_id == "bad")
    return log


def test_a_share_partition_that_cannot_be_replayed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same of share partitions, in the first night and in a later one."""
    ledger, whole = Ledger(tmp_path / "nights"), Ledger(tmp_path / "whole")
    group_ids = ("bad", "good", *(f"share-{number}" for number in range(3)))
    canonical = share_state_columnar._canonical_value
    failing = planted(OverflowError, canonical, lambda _: True)
    for night, is_bad in ((1, True), (2, False), (3, True), (4, False)):
        share_log(group_ids, night).write(tmp_path / "logs")
        monkeypatch.setattr(share_state_columnar, "_canonical_value", failing if is_bad else canonical)
        reported = ledger.night(tmp_path / "logs", number=night)
        assert reported.exit_code == (3 if is_bad else 0), reported.text
        rows = [row for row in ledger.rows("gold.log_anomalies") if row["rule"] == "NOT_REPLAYED"]
        assert len(rows) == is_bad
        if is_bad:
            (row,) = rows
            assert (row["group_id"], row["log_topic"], row["partition"]) == ("bad", SHARE_TOPIC, 0)
            assert row["log_offset"] == (night - 1) // 2 * 2 * len(group_ids)
            assert f"of share partition bad:{row['topic_id']}:0; {SHARE_TOPIC}-0 at offset" in row["details"]
        expected = set(group_ids) - ({"bad"} if is_bad else set())
        assert by_group(ledger, "gold.redeliveries").keys() == expected
    assert whole.night(tmp_path / "logs").exit_code == 0
    assert silver(ledger) == silver(whole)
    assert gold(ledger) == gold(whole)


def put_topic(log: SmallLog, name: str, at_ms: int) -> None:
    """A record of the metadata log: a topic is made."""
    fields = codec.make(TOPIC_RECORD, topic_id=uuid_text(name.encode().ljust(16)), name=name)
    batch = build_batch([Record(log.next_offset, at_ms, None, codec.encode_metadata(TOPIC_RECORD, fields, 0))])
    log.batches.append(batch)
    log.next_offset += 1


@pytest.mark.parametrize(
    "topic",
    [TOPIC, pytest.param(SHARE_TOPIC, marks=takes_minutes), pytest.param("__cluster_metadata", marks=takes_minutes)],
)
def test_a_log_partition_that_cannot_be_replayed(tmp_path: Path, topic: str) -> None:
    """Where no key can be blamed, the others are replayed, and silver has it as it was: where it cannot be read, and
    where a compiled loop fails, which has the records of all keys."""
    ledger, whole = Ledger(tmp_path / "nights"), Ledger(tmp_path / "whole")
    first, second = SmallLog(), SmallLog(1)
    first.generation("good", 1, {"a": (0,)}, NOON_MS)
    second.generation("other", 1, {"a": (0,)}, NOON_MS)
    broken = second if topic == TOPIC else SmallLog(0, topic)
    behind = SmallLog(1, SHARE_TOPIC)
    behind.snapshot("behind", NOON_MS, ((0, 9, 0, 1),))
    if topic == SHARE_TOPIC:
        broken = share_log(("share",), 1)
    elif topic != TOPIC:
        put_topic(broken, "in", NOON_MS)
    logs = {id(log): log for log in (first, second, broken, behind)}.values()

    def written() -> Path:
        for log in logs:
            log.write(tmp_path / "logs")
        return tmp_path / "logs"

    assert ledger.night(written(), number=1).exit_code == 0
    before = silver(ledger)
    first.generation("good", 2, {"a": (0,), "b": (1,)}, NOON_MS + 5_000)
    if topic == TOPIC:
        broken.generation("other", 2, {"a": (0,), "b": (1,)}, NOON_MS + 5_000)
    elif topic == SHARE_TOPIC:
        broken.snapshot("share", NOON_MS + DAY_MS, ((0, 9, 0, 1), (10, 19, 4, 2), (20, 29, 0, 1)), snapshot_epoch=1)
    else:
        put_topic(broken, "out", NOON_MS + 5_000)
    behind.snapshot("behind", NOON_MS + DAY_MS, ((0, 9, 2, 1),), snapshot_epoch=1)
    patch = pytest.MonkeyPatch()
    if topic == SHARE_TOPIC:
        is_bad = partial(_has_record_of, "share")
        patch.setattr(ColumnarShareReplay, "feed", planted(TypeError, ColumnarShareReplay.feed, is_bad))
    else:
        patch.setattr(tasks, "read_log", planted(TypeError, read_log, lambda files, *_: _is_of(broken, files)))
    reported = ledger.night(written(), number=2)
    assert reported.exit_code == 3
    assert "could not be replayed: no group of it: TypeError: planted" in reported.text
    (row,) = [row for row in ledger.rows("gold.log_anomalies") if row["rule"] == "LOG_NOT_REPLAYED"]
    assert (row["group_id"], row["log_topic"], row["log_partition"]) == (None, topic, broken.partition)
    assert f"{topic}-{broken.partition}" in reported.text
    after = silver(ledger)
    assert any("'good'" in text and "'generation': 2" in text for text in after["silver.group_generations"])
    if topic == TOPIC:
        of_other = [text for text in before["silver.group_generations"] if "'other'" in text]
        assert [text for text in after["silver.group_generations"] if "'other'" in text] == of_other
        assert by_group(ledger, "gold.rebalances").keys() == {"good"}
    elif topic == SHARE_TOPIC:
        of_share, was = (
            [text for text in rows["silver.share_partition_states"] if "'share'" in text] for rows in (after, before)
        )
        assert of_share == was
    assert sum("'behind'" in text for text in after["silver.share_partition_states"]) == 2
    patch.undo()
    assert ledger.night(written(), number=3).exit_code == 0
    assert whole.night(tmp_path / "logs").exit_code == 0
    assert silver(ledger) == silver(whole)
    assert gold(ledger) == gold(whole)


@takes_minutes
def test_rows_that_are_no_columns_and_of_no_group_to_blame(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log partitions whose rows they are are left out; share states are replayed, and the next night has all."""
    ledger, whole = Ledger(tmp_path / "nights"), Ledger(tmp_path / "whole")
    first_log().write(tmp_path / "logs")
    share_log(("share",), 1).write(tmp_path / "logs")
    with monkeypatch.context() as patch:
        patch.setattr(tasks, "assignments_table", planted(KeyError, assignments_table, lambda *_: True))
        assert ledger.night(tmp_path / "logs").exit_code == 3
    rows = [row for row in ledger.rows("gold.log_anomalies") if row["category"] == "AUDIT"]
    assert [(row["rule"], row["log_topic"], row["log_partition"]) for row in rows] == [("LOG_NOT_REPLAYED", TOPIC, 0)]
    assert ledger.rows("silver.share_partition_states") and not ledger.rows("silver.group_generations")
    for night in (ledger.night(tmp_path / "logs", number=2), whole.night(tmp_path / "logs")):
        assert night.exit_code == 0
    assert silver(ledger) == silver(whole)


def _is_of(log: SmallLog, files: Any) -> bool:
    values = files[0].partition_values
    return (values["topic"], int(values["partition"])) == (log.topic, log.partition)


def test_answers_say_what_could_not_be_replayed(tmp_path: Path) -> None:
    """describe of a group that silver has in part, and of one that it has not at all."""
    ledger, log = Ledger(tmp_path / "warehouse"), first_log()
    with planting("history", TypeError):
        ledger.night(log.write(tmp_path / "logs"))
    for ask in (
        lambda: describe(ledger.warehouse, CLUSTER_ID, view=View.MEMBERS, group_ids=["bad"]),
        lambda: require_groups(ledger.tables, ["bad"]),
    ):
        with pytest.raises(JobError, match="could be replayed: TypeError: planted"):
            ask()
    assert ledger.night(tmp_path / "logs", number=2).exit_code == 0
    more(log, 1)
    with planting("history", TypeError):
        ledger.night(log.write(tmp_path / "logs"), number=3)
    found = describe(ledger.warehouse, CLUSTER_ID, view=View.MEMBERS, group_ids=["bad", "good"])
    notes = {it.group.group_id: it.note for it in found}
    assert notes["good"] is None
    assert notes["bad"] is not None and "silver lacks it from offset" in notes["bad"]


def test_what_retention_took_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the log partition's beginning is in bronze no more, and no earlier state of its replay either, the other
    groups go on, and the failure stays."""
    ledger, log = Ledger(tmp_path / "warehouse"), first_log()
    with planting("history", TypeError):
        ledger.night(log.write(tmp_path / "logs"))
    monkeypatch.setattr(replay_module, "deleted_ranges", lambda *_: {(TOPIC, 0): ((0, 3),)})
    more(log, 1)
    for number in (2, 3):
        assert ledger.night(log.write(tmp_path / "logs"), number=number).exit_code == 3
        rows = [row for row in ledger.rows("gold.log_anomalies") if row["rule"] == "NOT_REPLAYED"]
        assert {row["group_id"] for row in rows} == {"bad", "bad-simple"}
        assert max(row["generation"] for row in ledger.rows("silver.group_generations")) == 4
        assert "bad" not in by_group(ledger, "silver.group_generations")
