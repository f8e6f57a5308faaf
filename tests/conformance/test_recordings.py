"""Recordings of real brokers: the tables which the jobs make of their logs, against what the brokers said at the time
and against what Kafka's dump tool says of every batch and record.
"""

from collections.abc import Callable

import pytest

from tests.conformance import compare
from tests.conformance.compare import Tally
from tests.conformance.explained import (
    CLASSIC_REBALANCING,
    CONNECT_ASSIGNMENT,
    EXPECTED_ANSWERS,
    SHARE_INITIALIZING,
)
from tests.conformance.recordings import LOGS_BEFORE, Recording, SilverOf
from tests.conformance.truth import CONSUMER_OFFSETS, SHARE_GROUP_STATE, read_truth
from tests.recorded import RECORDINGS

ReportLine = Callable[[str], None]


@pytest.fixture
def conclude(recording: Recording, report_line: ReportLine) -> Callable[[Tally], None]:
    """Print a tally's line, and fail where anything differs or nothing was compared."""

    def conclude(tally: Tally) -> None:
        report_line(f"{recording.name} {tally.line}")
        assert not tally.failures, tally.report

    return conclude


def test_groups_as_the_broker_described_them(
    recording: Recording, silver_of: SilverOf, conclude: Callable[[Tally], None]
) -> None:
    """At every still moment each group has the type, epochs, members, assignments and offsets that Admin showed, and
    no group is there that the broker did not list."""
    tally = compare.compare_groups(silver_of(recording), read_truth(recording.path), compare.moments_of(recording))
    conclude(tally)
    assert tally.compared > 0
    _assert_explained(recording, tally, {CLASSIC_REBALANCING, CONNECT_ASSIGNMENT})


def test_share_partitions_as_the_coordinator_described_them(
    recording: Recording, silver_of: SilverOf, conclude: Callable[[Tally], None]
) -> None:
    """At every still moment the state of each share partition is what ReadShareGroupState answered, by offset."""
    tally = compare.compare_share_partitions(
        silver_of(recording), read_truth(recording.path), compare.moments_of(recording)
    )
    conclude(tally)
    assert tally.compared > 0 or not _has_share_state(recording)
    _assert_explained(recording, tally, {SHARE_INITIALIZING})


def test_batch_headers_as_dumped(recording: Recording, silver_of: SilverOf, conclude: Callable[[Tally], None]) -> None:
    """bronze.record_batches has every batch of the dumps with every field of its header, and no other batch."""
    conclude(compare.compare_headers(silver_of(recording), compare.dumps_of(recording.decoded)))


def test_keys_values_and_markers_as_dumped(
    recording: Recording, silver_of: SilverOf, conclude: Callable[[Tally], None]
) -> None:
    """Each record in bronze decodes to the offset, key and value that the dump tool printed as JSON."""
    conclude(compare.compare_records(silver_of(recording), compare.dumps_of(recording.decoded)))


def test_offset_commits_as_dumped(recording: Recording, silver_of: SilverOf, conclude: Callable[[Tally], None]) -> None:
    """silver.offset_commits has one row for each dumped commit and tombstone."""
    dumps = compare.dumps_of(recording.decoded)
    conclude(compare.compare_offset_commits(silver_of(recording), dumps.get(CONSUMER_OFFSETS, [])))


def test_generations_members_and_assignments_as_dumped(
    recording: Recording, silver_of: SilverOf, conclude: Callable[[Tally], None]
) -> None:
    """The interval tables have the intervals, with their columns, which the dumped group records make, and no other."""
    dumps = compare.dumps_of(recording.decoded)
    for tally in compare.compare_intervals(silver_of(recording), dumps.get(CONSUMER_OFFSETS, [])):
        conclude(tally)


def test_reconciliations_as_dumped(
    recording: Recording, silver_of: SilverOf, conclude: Callable[[Tally], None]
) -> None:
    """silver.group_events has one MEMBER_RECONCILED for each dumped current assignment."""
    dumps = compare.dumps_of(recording.decoded)
    conclude(compare.compare_reconciliations(silver_of(recording), dumps.get(CONSUMER_OFFSETS, [])))


def test_share_states_as_dumped(recording: Recording, silver_of: SilverOf, conclude: Callable[[Tally], None]) -> None:
    """silver.share_partition_states has one row for each dumped snapshot, update and tombstone."""
    dumps = compare.dumps_of(recording.decoded)
    conclude(compare.compare_share_states(silver_of(recording), dumps.get(SHARE_GROUP_STATE, [])))


def test_nothing_is_lost(recording: Recording, silver_of: SilverOf, conclude: Callable[[Tally], None]) -> None:
    """Nothing of a real log is quarantined or breaks a rule of replay, and bronze.coverage names exactly the offsets
    which the dumps lack."""
    events = silver_of(recording)["silver.group_events"]
    assert [event for event in events if event["event_type"] == "ANOMALY"] == []
    conclude(compare.compare_coverage(silver_of(recording), compare.dumps_of(recording.decoded)))


def test_generations_say_what_is_missing(
    recording: Recording, silver_of: SilverOf, conclude: Callable[[Tally], None]
) -> None:
    """A generation is contiguous exactly if the one before it is in the table, or it is a group's first."""
    conclude(compare.compare_contiguity(silver_of(recording)))


def test_clients_saw_the_same(whole: Recording, silver_of: SilverOf, report_line: ReportLine) -> None:
    """What members were given in which generation, which commits were confirmed, and how transactions ended."""
    tally = compare.compare_client_views(silver_of(whole), whole)
    report_line(f"{whole.name} {tally.line}")
    assert tally.equal > 0
    assert not tally.failures, tally.report


def test_compacted_logs_replay_to_the_same_end(
    compacted: Recording, silver_of: SilverOf, report_line: ReportLine
) -> None:
    """A compacted log gives the end state of the log it was made from, and says that its history has holes."""
    before = Recording(compacted.path, LOGS_BEFORE)
    tally = compare.compare_end_states(silver_of(before), silver_of(compacted), compacted)
    report_line(f"{compacted.name} {tally.line}")
    assert tally.equal > 0
    assert not tally.failures, tally.report
    whole, holes = compare.holes_said(silver_of(before)), compare.holes_said(silver_of(compacted))
    report_line(f"{compacted.name} rows on holes: {', '.join(f'{name} {count}' for name, count in holes.items())}")
    assert not any(whole.values())
    assert holes["coverage COMPACTED"] > 0
    assert holes["generations not contiguous"] > 0


def _assert_explained(recording: Recording, tally: Tally, reasons: set[str]) -> None:
    """How often a reason explains a difference is known of the project's own recordings."""
    if recording.path.parent == RECORDINGS:
        expected = EXPECTED_ANSWERS.get(recording.name, {})
        assert tally.explained == {name: count for name, count in expected.items() if name in reasons}


def _has_share_state(recording: Recording) -> bool:
    return any(recording.logs.glob(f"{SHARE_GROUP_STATE}-*"))
