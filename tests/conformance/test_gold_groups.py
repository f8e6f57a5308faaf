"""Owners and rebalances against what the clients of the recordings said and did.

Recall of owners: every assignment that a client reported lies in an interval of gold.partition_owners. Precision of
rebalance causes: of those which the clients' words can judge, CERTAIN ones are right without exception, LIKELY ones in
nineteen of twenty. Recall: every member that went is named, with LEFT or EXPIRED as the cause.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Final

import pytest

from coordinator_core.inference.audit.groups import GroupGold, audit_group
from coordinator_core.inference.facts.rows import RebalanceRow
from coordinator_core.inference.facts.settings import InferenceSettings
from coordinator_core.inference.groups.owners import REVOKED
from jobs.delta.cluster_tables import ClusterTables
from jobs.delta.warehouse import Warehouse
from jobs.silver.bundles import group_lives
from jobs.silver.reader import SilverFiles
from schemas.tables.silver import GROUP_EVENTS, OFFSET_COMMITS, SILVER_TABLES
from tests.claims import Claim, hand_over
from tests.conformance.conftest import ReportLine
from tests.conformance.group_truth import EXPIRED, LEFT, GroupTruth, read_group_truth
from tests.conformance.recordings import Recording, WarehouseOf, cluster_id_of, recordings_in
from tests.coordinator_core.inference.group_lives import unowned_ms
from tests.recorded import RECORDINGS

LIKELY_MIN: Final = 0.95
CLOCK_MS: Final = 5
"""Clients and broker ran on one machine; a client's event is written a little before or after the broker's record."""


GoldOf = Callable[[Recording], GroupGold]


@pytest.fixture(scope="module")
def gold_of(warehouse_of: WarehouseOf) -> GoldOf:
    """What the audit makes of a recording's silver, once."""
    return cache(partial(_gold_of, warehouse_of))


def _gold_of(warehouse_of: WarehouseOf, recording: Recording) -> GroupGold:
    files = SilverFiles.of(
        ClusterTables(Warehouse(str(warehouse_of(recording))), cluster_id_of(recording)), SILVER_TABLES
    )
    log_partitions = {
        log_partition
        for table in (GROUP_EVENTS, OFFSET_COMMITS)
        for log_partition in files.scan(table, ["log_partition"])["log_partition"].to_pylist()
    }
    gold = GroupGold()
    for log_partition in sorted(log_partitions):
        for life in group_lives(files, log_partition):
            gold.extend(audit_group(life, InferenceSettings()))
    return gold


def test_assignments_that_clients_reported_have_owners(
    whole: Recording, gold_of: GoldOf, report_line: ReportLine
) -> None:
    """Whatever partition a client said it was given, gold has it as owner at that time."""
    gold, truth = gold_of(whole), read_group_truth(whole.path)
    intervals: dict[tuple[str, str, str | None, int], list[tuple[int, int | None]]] = {}
    for row in gold.owners:
        key = row.group_id, row.member_id, row.topic, row.partition
        intervals.setdefault(key, []).append((row.valid_from, row.valid_to))
    missing = []
    count = 0
    for event in truth.assigned:
        for topic, partition in event.partitions:
            count += 1
            owned_rows = intervals.get((event.group_id, event.member_id, topic, partition), [])
            if not any(
                begin - CLOCK_MS <= event.at_ms and (end is None or event.at_ms <= end) for begin, end in owned_rows
            ):
                missing.append((event.group_id, event.member_id, topic, partition, event.at_ms, owned_rows))
    report_line(f"{whole.name} owners: recall {count - len(missing)} of {count} reported assignments")
    assert not missing
    assert count > 0


def test_no_partition_has_two_owners(recording: Recording, gold_of: GoldOf) -> None:
    """A real coordinator never lets two members own one partition, whatever the cleaner left of its log."""
    assert [row for row in gold_of(recording).owners if row.is_double] == []


def test_causes_of_rebalances(
    recording: Recording, gold_of: GoldOf, report_line: ReportLine, request: pytest.FixtureRequest
) -> None:
    """What gold says of why a group rebalanced is what the clients did."""
    gold, truth = gold_of(recording), read_group_truth(recording.path)
    right: Counter[str] = Counter()
    wrong: dict[str, list[Claim]] = {}
    claims = [claim for row in gold.rebalances for claim in _judged(row, truth)]
    for claim in claims:
        right[claim.confidence] += claim.is_true
        if not claim.is_true:
            wrong.setdefault(claim.confidence, []).append(claim)
    hand_over(claims, request.node)
    report_line(f"{recording.name} causes of rebalances: {_precision(right, wrong)}")
    assert not wrong.get("CERTAIN")
    likely = right["LIKELY"] + len(wrong.get("LIKELY", ()))
    assert right["LIKELY"] >= LIKELY_MIN * likely, wrong["LIKELY"]


def _judged(row: RebalanceRow, truth: GroupTruth) -> Iterator[Claim]:
    """Each cause that the clients' words can judge."""
    fates = {truth.departure(member_id, row.started_at) for member_id in row.members_left}
    joiners = {event.member_id for event in truth.assigned if event.group_id == row.group_id}
    for cause, method, confidence in zip(row.causes, row.cause_methods, row.cause_confidences, strict=True):
        claim = partial(Claim, cause, method, confidence, (row.group_id, row.incarnation, row.to_generation))
        if cause in {LEFT, EXPIRED} and None not in fates and fates:
            yield claim(cause in fates)
        elif cause == "MEMBER_JOINED" and method == "IN_LOG" and joiners.issuperset(row.members_joined):
            yield claim(bool(row.members_joined))
        elif cause == "PARTITIONS_CHANGED":
            yield claim(truth.has_topic_change(row.started_at))


def _precision(right: Counter[str], wrong: dict[str, list[Claim]]) -> str:
    parts = []
    for confidence in ("CERTAIN", "LIKELY", "GUESS"):
        count = right[confidence] + len(wrong.get(confidence, ()))
        parts.append(f"{confidence} {right[confidence]} of {count} right")
    return ", ".join(parts)


GUESSES_MIN: Final = 0.7
GUESSES_COUNT_MIN: Final = 4
"""Fewer show nothing."""


def test_guesses_of_departures_are_mostly_right(gold_of: GoldOf, report_line: ReportLine) -> None:
    """Where gold guesses that a member left, or that it expired, each is right in seven of ten; elsewhere it says that
    it does not know. All that is more than a guess is right."""
    right: Counter[tuple[str, str]] = Counter()
    count: Counter[tuple[str, str]] = Counter()
    for recording in (one for one in recordings_in(RECORDINGS) if not one.is_compacted):
        truth = read_group_truth(recording.path)
        for row in gold_of(recording).rebalances:
            fates = {truth.departure(member_id, row.started_at) for member_id in row.members_left}
            if len(fates) != 1 or None in fates:
                continue
            for cause, confidence in zip(row.causes, row.cause_confidences, strict=True):
                if cause in {LEFT, EXPIRED}:
                    count[confidence, cause] += 1
                    right[confidence, cause] += cause in fates
    for confidence, cause in sorted(count):
        reported = f"{right[confidence, cause]} of {count[confidence, cause]} right"
        report_line(f"departures, all recordings: {cause} {confidence} {reported}")
    assert count["GUESS", EXPIRED] >= GUESSES_COUNT_MIN
    for confidence, cause in count:
        least = GUESSES_MIN if confidence == "GUESS" else 1
        assert right[confidence, cause] >= least * count[confidence, cause], (confidence, cause)


def test_departures_are_named(whole: Recording, gold_of: GoldOf, report_line: ReportLine) -> None:
    """Every member that stopped for good while the log went on is among those that went, but for the ones whose group
    outlived the recording."""
    gold, truth = gold_of(whole), read_group_truth(whole.path)
    named = {member_id for row in gold.rebalances for member_id in row.members_left}
    owned = {row.member_id for row in gold.owners if row.to_log_offset is not None}
    gone = {member_id for member_id, words in truth.gone.items() if any(word.cause == LEFT for word in words)} & owned
    replaced = {row.member_id for row in gold.owners if row.instance_id is not None}
    report_line(f"{whole.name} departures: recall {len(gone & named)} of {len(gone)} members that left")
    assert gone - named <= replaced


def test_sums_of_the_finer_are_the_coarser(recording: Recording, gold_of: GoldOf) -> None:
    """Unowned time, rebalances, storms and commit anomalies of a group are one number however they are summed."""
    gold = gold_of(recording)
    unowned = [
        Counter[str]({row.group_id: 0 for row in gold.days}),
        Counter[str]({row.group_id: 0 for row in gold.days}),
        Counter[str]({row.group_id: 0 for row in gold.days}),
    ]
    for sums, rows in zip(unowned, unowned_ms(gold), strict=True):
        for group_id, milliseconds in rows:
            sums[group_id] += milliseconds
    assert unowned[0] == unowned[1] == unowned[2]
    assert all((row.unowned_partition_ms or 0) >= (row.revoked_partition_ms or 0) >= 0 for row in gold.rebalances)
    days = Counter[tuple[str, str]]()
    for day in gold.days:
        days["rebalances", day.group_id] += day.rebalance_count
        days["storms", day.group_id] += day.storm_rebalance_count
        days["odd", day.group_id] += day.commit_anomaly_count
    with_days = [
        row for row in gold.rebalances if row.group_type != "SHARE"
    ]  # those of share groups count other things
    rows_of = Counter(("rebalances", row.group_id) for row in with_days)
    rows_of += Counter(("storms", row.group_id) for row in with_days if row.in_storm)
    rows_of += Counter(("odd", row.group_id) for row in gold.anomalies)
    assert +days == rows_of


def test_revocations_without_an_epoch_have_a_mark(whole: Recording, gold_of: GoldOf) -> None:
    """Where a member no longer subscribed to a topic it lost partitions that its target still had: no rebalance did
    that, and the time until somebody owned them again is marked so."""
    gold = gold_of(whole)
    marked = {row.group_id for row in gold.owners if row.gap_cause == REVOKED}
    assert marked == {row.group_id for row in gold.rebalances if row.revoked_partition_ms}
    if whole.name == "full-a":
        assert "k04-regex" in marked
