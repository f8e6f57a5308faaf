"""A coordinator loads its log from the log start offset: where that moved, a new leader forgot what is below."""

from collections.abc import Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import Final

import pytest

from jobs.cli_enums import Listing
from jobs.queries.answers.findings import findings
from jobs.queries.answers.group_history import events_and_steps
from jobs.queries.answers.group_verdicts import group_verdicts
from jobs.queries.as_of.as_of import SilverAt
from jobs.queries.sql.sql import run_query
from jobs.queries.sql.sql_duckdb import DuckDb
from schemas.share_group_state import TOPIC as SHARE_TOPIC
from schemas.tables import TABLES
from tests.cases.harness import CASES, Ledger
from tests.cases.small_logs import NOON_MS, SmallLog

LOGS: Final = CASES / "log-start-moved"
OF_REPLAY_AND_AUDIT: Final = tuple(name for name in TABLES if name.startswith(("silver.", "gold.")))
SECOND_MS: Final = 1_000


def present(ledger: Ledger, at_ms: int | None = None) -> dict[str, tuple[str, list[str], dict[int, int]]]:
    """By group: its state, its members, and its committed offsets by partition."""
    return {
        group.group_id: (
            group.state,
            [member.member_id for member in group.members],
            {place.partition: offset.offset for place, offset in group.offsets.items()},
        )
        for group in SilverAt(ledger.tables, at_ms).groups(with_offsets=True)
    }


def forgotten(ledger: Ledger) -> dict[tuple[str, int], tuple[int, str]]:
    """By group and place: how many committed offsets were forgotten, and how sure that is."""
    counts = {
        row["group_id"]: int(dict(row["details"])["offset_count"])
        for row in ledger.rows("silver.group_events")
        if row["event_type"] == "FORGOTTEN"
    }
    return {
        (row["group_id"], row["log_offset"]): (counts[row["group_id"]], row["confidence"])
        for row in ledger.rows("gold.log_anomalies")
        if row["rule"] == "FORGOTTEN"
    }


def everything(ledger: Ledger) -> dict[str, list[str]]:
    """All rows of silver and gold, but for which of them may still change."""
    return {name: sorted(str({**row, "is_settled": None}) for row in ledger.rows(name)) for name in OF_REPLAY_AND_AUDIT}


def a_log(epochs: Mapping[int, int], topic: str | None = None) -> SmallLog:
    """Offsets 0 to 59: `old` has a member and two offsets, of which one is committed on; `new` comes at 35. `epochs`:
    the leader epochs, by their first offset."""
    log = SmallLog() if topic is None else SmallLog(topic=topic)
    for offset in range(60):
        log.leader_epoch = epochs.get(offset, log.leader_epoch)
        at_ms = NOON_MS + offset * SECOND_MS
        if offset == 0:
            log.generation("old", 1, {"m": (0, 1)}, at_ms)
        elif offset == 10:
            log.commit("old", 1, 555, at_ms)
        elif offset == 35:
            log.generation("new", 1, {"n": (0,)}, at_ms)
        else:
            log.commit("old", 0, 100 + offset, at_ms)
    return log


def copy_of(
    log: SmallLog, root: Path, first: int, end: int, *, start: int = 0, checkpoint: Sequence[tuple[int, int]] = ()
) -> Path:
    """The folder of a broker with the batches from an offset to another, and its log start offset."""
    folder = root / f"{log.topic}-{log.partition}"
    folder.mkdir(parents=True)
    (folder / f"{first:020d}.log").write_bytes(b"".join(log.batches[first:end]))
    if start:
        text = f"0\n1\n{log.topic} {log.partition} {start}\n"
        (root / "log-start-offset-checkpoint").write_text(text)
    if checkpoint:
        lines = "".join(f"{epoch} {offset}\n" for epoch, offset in checkpoint)
        (folder / "leader-epoch-checkpoint").write_text(f"0\n{len(checkpoint)}\n{lines}")
    return root


def test_a_new_leader_forgets_what_is_below_the_log_start(ledger: Ledger) -> None:
    """From its epoch on there is neither the member nor the offset that only older records have; the past keeps them,
    and the night says what was forgotten."""
    ledger.night(LOGS / "night1", partition_counts={"__consumer_offsets": 1})
    assert present(ledger) == {"reports": ("Stable", ["m1"], {0: 139, 1: 555})}
    night = ledger.night(LOGS / "night2", number=2)
    assert present(ledger) == {"reports": ("Empty", [], {0: 159})}
    assert "1 group not loaded wholly by a new leader: reports" in night.text
    found = findings(ledger.tables)
    assert (found.new(Listing.FORGOTTEN), found.open(Listing.STARTS)) == ({"reports": 1}, {})
    # the epoch began, and the start moved, some time between the two captures
    assert forgotten(ledger) == {("reports", 45): (1, "GUESS")}
    (lost,) = (row for row in ledger.rows("gold.commit_anomalies"))
    assert (lost["kind"], lost["from_offset"], lost["to_offset"], lost["confidence"]) == (
        "FORGOTTEN",
        555,
        None,
        "GUESS",
    )
    assert (lost["owner_member_id"], lost["was_group_empty"]) == ("m1", False)
    (verdict,) = group_verdicts(ledger.tables)
    assert (verdict.verdict, verdict.rules) == ("WARN", {"FORGOTTEN": 1})
    began_ms = 1_795_777_645_000
    assert present(ledger, began_ms - 1) == {"reports": ("Stable", ["m1"], {0: 144, 1: 555})}
    assert present(ledger, began_ms) == {"reports": ("Empty", [], {0: 145})}
    assert [row["ended_by"] for row in ledger.rows("silver.group_members")] == ["FORGOTTEN"]
    events, _ = events_and_steps(ledger.tables, "reports", from_ms=began_ms, to_ms=None)
    assert [event.event for event in events] == ["forgotten by a new leader", "commit FORGOTTEN"]
    began = "make_timestamptz(1000 * {})".format
    asked = [
        ("current_offsets", [(0, 159)]),
        (f"offsets_at('reports', {began(began_ms)})", [(0, 145)]),
        (f"offsets_at('reports', {began(began_ms - 1)})", [(0, 144), (1, 555)]),
    ]
    for source, expected in asked:
        out = StringIO()
        query = f"select partition, committed_offset from {source} order by 1"
        run_query(DuckDb(ledger.warehouse), query, "csv", out)
        lines = "".join(f"{partition},{offset}\n" for partition, offset in expected)
        assert out.getvalue() == f"partition,committed_offset\n{lines}"
    assert {row["to_log_offset"] for row in ledger.rows("gold.partition_owners")} == {45}


@pytest.mark.parametrize("by", ["log-start-offset-checkpoint", "leader-epoch-checkpoint"])
def test_a_start_that_was_seen_to_move_before_the_epoch_began_is_likely(
    ledger: Ledger, tmp_path: Path, by: str
) -> None:
    """Three nights: the second one sees the start move, the third one the new leader. Where whole segments go, only the
    checkpoint of the leader epochs shows it."""
    log = a_log({50: 1})
    start = 30 if by == "log-start-offset-checkpoint" else 0
    epochs = [] if start else [(0, 30)]
    ledger.night(copy_of(log, tmp_path / "1", 0, 30, checkpoint=[(0, 0)]))
    ledger.night(copy_of(log, tmp_path / "2", 30, 45, start=start, checkpoint=epochs), number=2)
    assert present(ledger)["old"] == ("Stable", ["m"], {0: 144, 1: 555})
    last = copy_of(log, tmp_path / "3", 30, 60, start=start, checkpoint=[*epochs, (1, 50)] if epochs else ())
    ledger.night(last, number=3)
    assert present(ledger) == {"old": ("Empty", [], {0: 159}), "new": ("Stable", ["n"], {})}
    assert forgotten(ledger) == {("old", 50): (1, "LIKELY")}


def test_a_start_that_moved_after_the_epoch_began_forgets_nothing(ledger: Ledger, tmp_path: Path) -> None:
    """The first night has the epoch already: its leader loaded all of the log."""
    log = a_log({40: 1})
    ledger.night(copy_of(log, tmp_path / "1", 0, 50))
    ledger.night(copy_of(log, tmp_path / "2", 30, 60, start=30), number=2)
    assert present(ledger)["old"] == ("Stable", ["m"], {0: 159, 1: 555})
    assert forgotten(ledger) == {}


def test_records_below_the_log_start_are_known_to_the_leader_that_wrote_them(ledger: Ledger) -> None:
    """DeleteRecords moved the start within a segment, and no leader has loaded the log since: the one that is there
    still has them."""
    night = ledger.night(LOGS / "mid")
    assert present(ledger) == {"reports": ("Stable", ["m1"], {0: 159, 1: 555})}
    assert forgotten(ledger) == {}
    assert findings(ledger.tables).open(Listing.STARTS) == {"__consumer_offsets-0": 1}
    assert "1 log start that moved: __consumer_offsets-0" in night.text and "audit --list starts" in night.text


def test_the_first_capture_may_have_a_leader_that_did_not_load_all(ledger: Ledger, tmp_path: Path) -> None:
    """A segment has records below the log start, and an epoch begins above it."""
    ledger.night(copy_of(a_log({45: 1}), tmp_path / "1", 0, 60, start=30))
    assert present(ledger) == {"old": ("Empty", [], {0: 159}), "new": ("Stable", ["n"], {})}
    assert forgotten(ledger) == {("old", 45): (1, "GUESS")}


NIGHTS: Final = {
    "certain": ({50: 1}, ((0, 30, 0), (30, 45, 30), (30, 60, 30))),
    "moved twice": ({20: 1, 52: 2}, ((0, 12, 0), (11, 40, 11), (36, 60, 36))),
}


@pytest.mark.parametrize("name", NIGHTS)
def test_any_order_of_copies_gives_the_same_tables(tmp_path: Path, name: str) -> None:
    """Night by night, at once, or with the newest first."""
    epochs, copies = NIGHTS[name]
    log = a_log(epochs)
    folders = [
        copy_of(log, tmp_path / str(number), first, end, start=start)
        for number, (first, end, start) in enumerate(copies)
    ]
    at_once = Ledger(tmp_path / "at once")
    at_once.night(*folders)
    expected = everything(at_once)
    numbers = tuple(range(len(folders)))
    for order in (numbers, numbers[::-1]):
        ledger = Ledger(tmp_path / f"order {order}")
        for number, index in enumerate(order, 1):
            ledger.night(folders[index], number=number)
        assert everything(ledger) == expected, order


def test_what_kafka_prunes_of_share_state_is_not_forgotten(tmp_path: Path) -> None:
    """The share coordinator deletes records below the snapshots that it needs; the start of that log says nothing."""
    log = SmallLog(topic=SHARE_TOPIC)
    for number in range(20):
        log.leader_epoch = number // 10
        log.snapshot("g", NOON_MS + number, (), snapshot_epoch=number, start_offset=number)
    ledgers = [Ledger(tmp_path / f"warehouse {start}") for start in (0, 8)]
    for ledger, start in zip(ledgers, (0, 8), strict=True):
        ledger.night(copy_of(log, tmp_path / f"1 {start}", 0, 8))
        ledger.night(copy_of(log, tmp_path / f"2 {start}", 8, 20, start=start), number=2)
    assert everything(ledgers[0]) == everything(ledgers[1])
    assert all(row["leader_epoch"] >= 0 for row in ledgers[1].rows("state.offset_ranges"))


def test_a_log_whose_start_never_moved_has_nothing_of_it(ledger: Ledger, tmp_path: Path) -> None:
    """A new leader of it knows all; no row is written for its log start."""
    ledger.night(copy_of(a_log({45: 1}), tmp_path / "1", 0, 60, checkpoint=[(0, 0), (1, 45)]))
    assert present(ledger)["old"] == ("Stable", ["m"], {0: 159, 1: 555})
    assert {row["leader_epoch"] for row in ledger.rows("state.offset_ranges")} == {0, 1}
    assert not any(row["change"] == "FORGOTTEN" for row in ledger.rows("silver.offset_commits"))
