"""Redeliveries and archived records against what the share consumers of the recordings saw and did.

Judged offset by offset. Recall: of what clients saw, and the log can show, how much gold has. Precision: of what gold
claims, how much is so. A row's `cause` must be right always, also where it says that it is only LIKELY; `likely_cause`
must be right wherever the row is CERTAIN, and in nine of ten otherwise.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache, partial
from typing import Any, Final

import pytest

from coordinator_core.inference.facts.settings import InferenceSettings
from coordinator_core.inference.shares.shares import audit_share_log
from coordinator_core.replay.columnar.share_state_rows import RECORD_KINDS
from jobs.delta.cluster_tables import ClusterTables
from jobs.delta.warehouse import Warehouse
from jobs.gold.audit_shares import archived_table, redeliveries_table
from jobs.gold.share_reader import configs, share_log, share_members, share_states
from jobs.silver.reader import SilverFiles
from schemas.tables.silver import SHARE_PARTITION_STATES, SILVER_TABLES
from tests.claims import Claim, hand_over
from tests.conformance.conftest import ReportLine
from tests.conformance.recordings import Recording, WarehouseOf, cluster_id_of
from tests.conformance.share_truth import Place, ShareTruth, read_share_truth

Row = Mapping[str, Any]
LIKELY_MIN: Final = 0.9
ONE_OPERATION_MS: Final = 1_500
"""A client's acknowledgement and the coordinator's record of it are no further apart."""


@dataclass(slots=True)
class Gold:
    """Gold rows of one recording, and when the log of each share partition begins (epoch ms)."""

    redeliveries: list[Row] = field(default_factory=list)
    archived: list[Row] = field(default_factory=list)
    begins_ms: dict[tuple[str, str, int], int] = field(default_factory=dict)
    ends_ms: int = 0
    """The newest record of any."""

    def can_show(self, place: Place, time_ms: int) -> bool:
        """Does the log of this share partition go from before that time until after it?"""
        is_begun = self.begins_ms.get(place[:3], time_ms + 1) <= time_ms
        return is_begun and time_ms + ONE_OPERATION_MS <= self.ends_ms


@dataclass(slots=True)
class Tally:
    """Right and wrong answers to one question, in offsets."""

    right: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def add(self, kind: str, is_right: bool, what: object) -> None:
        """Count one answer."""
        self.right[kind] += is_right
        if not is_right:
            self.wrong.append(f"{kind}: {what}")

    def share_of(self, kind: str) -> float:
        """Right ones of all of a kind, 1 where there is none."""
        wrong = sum(text.startswith(f"{kind}:") for text in self.wrong)
        return self.right[kind] / (self.right[kind] + wrong) if self.right[kind] + wrong else 1.0


@pytest.fixture(scope="module")
def gold_of(warehouse_of: WarehouseOf) -> Callable[[Recording], Gold]:
    """What the audit makes of a recording's silver, once."""
    return cache(partial(_gold_of, warehouse_of))


@pytest.fixture
def gold(recording: Recording, gold_of: Callable[[Recording], Gold]) -> Gold:
    """Of this recording."""
    return gold_of(recording)


def _gold_of(warehouse_of: WarehouseOf, recording: Recording) -> Gold:
    """Log partition by log partition."""
    warehouse = Warehouse(str(warehouse_of(recording)))
    files = SilverFiles.of(ClusterTables(warehouse, cluster_id_of(recording)), SILVER_TABLES)
    known, members = configs(files), share_members(files)
    found = Gold()
    for log_partition in _log_partitions(files):
        log = share_log(files, log_partition, share_states(files, log_partition))
        audit = audit_share_log(log, known, members, InferenceSettings())
        found.redeliveries.extend(redeliveries_table(audit.redeliveries, log.keys, log_partition).to_pylist())
        found.archived.extend(archived_table(audit.archived, log.keys, log_partition).to_pylist())
        found.ends_ms = max(found.ends_ms, int(log.states.at_ms.max(initial=0)))
        firsts = log.states.begins() & (log.states.record_kind != RECORD_KINDS.index("TOMBSTONE"))
        for key, at_ms in zip(log.states.key[firsts].tolist(), log.states.at_ms[firsts].tolist(), strict=True):
            place = (log.keys.group_ids[log.keys.group[key]], log.keys.topics[key] or "", int(log.keys.partition[key]))
            found.begins_ms[place] = min(at_ms, found.begins_ms.get(place, at_ms))
    return found


def _log_partitions(files: SilverFiles) -> list[int]:
    return sorted(set(files.scan(SHARE_PARTITION_STATES, ["log_partition"])["log_partition"].to_pylist()))


@pytest.fixture
def truth(recording: Recording) -> ShareTruth:
    """What the clients of a recording saw."""
    return read_share_truth(recording.path)


def places(row: Row) -> Iterator[Place]:
    """Every offset of a row."""
    for offset in range(row["first_offset"], row["last_offset"] + 1):
        yield Place(row["group_id"], row["topic"] or "", row["partition"], offset)


def by_place(rows: Iterable[Row]) -> dict[Place, list[Row]]:
    """Rows by each offset that they are of."""
    found: dict[Place, list[Row]] = defaultdict(list)
    for row in rows:
        for place in places(row):
            found[place].append(row)
    return found


def claim(row: Row, place: Place, is_true: bool) -> Claim:
    """What a row says of the likely cause at one of its offsets."""
    return Claim(row["likely_cause"], row["method"], row["confidence"], place, is_true)


def at_ms(row: Row) -> int:
    """Epoch ms of a row."""
    at: datetime = row["at"]
    return round(at.timestamp() * 1000)


def test_every_delivery_above_one_has_its_redelivery(
    recording: Recording, gold: Gold, truth: ShareTruth, report_line: ReportLine
) -> None:
    """A record that was delivered for the n-th time was handed back, or given out again, at n - 1 or more."""
    rows = by_place(gold.redeliveries)
    tally = Tally()
    for place, deliveries in truth.deliveries.items():
        for time_ms, count in deliveries:
            if count > 1 and gold.can_show(place, time_ms):
                is_reported = any(row["to_delivery_count"] >= count - 1 for row in rows.get(place, ()))
                tally.add("redelivered", is_reported, (place, count))
    report_line(f"{recording.name}: redeliveries, recall {tally.share_of('redelivered'):.4f} of {_sum(tally)}")
    assert not tally.wrong


def test_every_redelivery_happened(
    recording: Recording, gold: Gold, truth: ShareTruth, report_line: ReportLine, request: pytest.FixtureRequest
) -> None:
    """What a row says of its offsets is what clients saw, and its likely cause is what they did."""
    happened, likely, certain = Tally(), Tally(), Tally()
    claims = []
    for row in gold.redeliveries:
        for place in places(row):
            happened.add(row["cause"], _did_happen(row, truth.deliveries.get(place, [])), (row, place))
            if row["likely_cause"] is not None:
                tally = certain if row["confidence"] == "CERTAIN" else likely
                claims.append(claim(row, place, row["likely_cause"] == _how_it_came_back(row, truth, place)))
                tally.add("cause", claims[-1].is_true, (row, place))
    hand_over(claims, request.node)
    report_line(
        f"{recording.name}: redeliveries, precision {_precision(happened):.4f} of {_sum(happened)}; likely cause, "
        f"CERTAIN {certain.share_of('cause'):.4f} of {_sum(certain)}, LIKELY {likely.share_of('cause'):.4f} of "
        f"{_sum(likely)}"
    )
    assert not happened.wrong
    assert not certain.wrong
    assert likely.share_of("cause") >= LIKELY_MIN, likely.wrong


def _did_happen(row: Row, deliveries: list[tuple[int, int]]) -> bool:
    counts = [count for _, count in deliveries]
    if row["cause"] == "COUNT_LOST":
        return len(counts) > 1
    return row["to_delivery_count"] in counts


def _how_it_came_back(row: Row, truth: ShareTruth, place: Place) -> str:
    """RELEASED where a client released it at this count and time, else by the lock or the session."""
    for time_ms, count, kind in truth.attempts.get(place, ()):
        if count == row["to_delivery_count"] and abs(time_ms - at_ms(row)) <= ONE_OPERATION_MS and kind == "release":
            return "RELEASED"
    acquired_ms = [
        at_ms(row) - time_ms for time_ms, count in truth.deliveries[place] if count == row["to_delivery_count"]
    ]
    return "LOCK_TIMEOUT" if any(acquired >= 2_900 for acquired in acquired_ms) else "SESSION_CLOSED"


def test_everything_given_up_is_reported(
    recording: Recording, gold: Gold, truth: ShareTruth, report_line: ReportLine
) -> None:
    """Every record that was rejected, released at the limit, or deleted before it was delivered has its row."""
    rows = by_place(gold.archived)
    tally = Tally()
    for place, acknowledgements in truth.acknowledgements.items():
        limit = truth.limit_of(place.group_id)
        for time_ms, count, kind in acknowledgements:
            if not gold.can_show(place, time_ms):
                continue
            if kind == "reject" or (kind == "release" and count >= limit):
                expected = "REJECT_OR_GAP" if count < limit else "LIMIT_OR_REJECT"
                is_reported = any(
                    row["cause"] == expected and row["delivery_count"] == count for row in rows.get(place, ())
                )
                tally.add(kind, is_reported, (place, count, rows.get(place)))
    for place in _deleted_unseen(gold, truth):
        causes = {row["cause"] for row in rows.get(place, ())}
        tally.add("deleted", causes == {"START_OFFSET_MOVED"}, (place, causes))
    report_line(
        f"{recording.name}: archived records, recall reject {tally.share_of('reject'):.4f}, limit "
        f"{tally.share_of('release'):.4f}, retention {tally.share_of('deleted'):.4f} of {_sum(tally)}"
    )
    assert not tally.wrong


def _deleted_unseen(gold: Gold, truth: ShareTruth) -> Iterator[Place]:
    """Offsets below a deletion which no client of a group was given before it or after, and that it had come to."""
    for topic, partition, kept_from, _ in truth.records_deleted:
        for group_id, of_topic, of_partition in gold.begins_ms:
            if (of_topic, of_partition) != (topic, partition):
                continue
            delivered = {
                place.offset
                for place in truth.deliveries
                if (place.group_id, place.topic, place.partition) == (group_id, topic, partition)
            }
            if delivered and max(delivered) >= kept_from:
                for offset in set(range(kept_from)) - delivered:
                    yield Place(group_id, topic, partition, offset)


def test_every_archived_record_was_given_up(
    recording: Recording, gold: Gold, truth: ShareTruth, report_line: ReportLine, request: pytest.FixtureRequest
) -> None:
    """No row claims what clients saw otherwise; likely causes are what they did."""
    causes, likely = Tally(), Tally()
    claims = []
    for row in gold.archived:
        for place in places(row):
            what = _fate(row, truth, place)
            causes.add(row["confidence"], row["cause"] in _CAUSES_OF[what], (row, place, what))
            if row["likely_cause"] is not None:
                claims.append(claim(row, place, row["likely_cause"] == _likely_cause_of(what, row)))
                likely.add(row["confidence"], claims[-1].is_true, (row, place, what))
    hand_over(claims, request.node)
    report_line(
        f"{recording.name}: archived records, precision CERTAIN {causes.share_of('CERTAIN'):.4f} LIKELY "
        f"{causes.share_of('LIKELY'):.4f} of {_sum(causes)}; likely cause LIKELY {likely.share_of('LIKELY'):.4f} of "
        f"{_sum(likely)}"
    )
    assert not causes.wrong
    assert likely.share_of("CERTAIN") == 1
    assert likely.share_of("LIKELY") >= LIKELY_MIN, likely.wrong


_CAUSES_OF: Final[Mapping[str, frozenset[str]]] = {
    "reject below the limit": frozenset({"REJECT_OR_GAP"}),
    "reject at the limit": frozenset({"LIMIT_OR_REJECT"}),
    "limit": frozenset({"LIMIT_OR_REJECT"}),
    "deleted": frozenset({"START_OFFSET_MOVED"}),
    "no data": frozenset({"REJECT_OR_GAP", "UNSEEN"}),
    "still alive": frozenset(),
}
_LIKELY_CAUSE_OF: Final[Mapping[str, str | None]] = {
    "reject below the limit": "REJECTED",
    "reject at the limit": "REJECTED",
    "limit": "DELIVERY_LIMIT",
    "deleted": "AGED_OUT",
    "no data": "ABORTED_TRANSACTION",
    "still alive": None,
}


def _likely_cause_of(what: str, row: Row) -> str | None:
    """What it was. Of offsets without data the broker stores markers alone (tests/recordings/README.md, fact 12)."""
    is_stored = row["cause"] == "REJECT_OR_GAP"
    return "TRANSACTION_MARKER" if what == "no data" and is_stored else _LIKELY_CAUSE_OF[what]


def _fate(row: Row, truth: ShareTruth, place: Place) -> str:
    """What became of an offset: of those whom no client got, that it was deleted, or no data for this group."""
    limit = truth.limit_of(place.group_id)
    for _, count, kind in truth.attempts.get(place, ()):
        if kind == "reject" and count == row["delivery_count"]:
            return "reject below the limit" if count < limit else "reject at the limit"
    counts = [count for _, count in truth.deliveries.get(place, ())]
    if counts and max(counts) >= limit and row["delivery_count"] == max(counts):
        return "limit"
    if counts:
        return "still alive"
    is_deleted = any(
        (place.topic, place.partition) == (topic, partition) and place.offset < kept_from
        for topic, partition, kept_from, _ in truth.records_deleted
    )
    return "deleted" if is_deleted else "no data"


def _sum(tally: Tally) -> int:
    return sum(tally.right.values()) + len(tally.wrong)


def _precision(tally: Tally) -> float:
    return sum(tally.right.values()) / _sum(tally) if _sum(tally) else 1.0
