"""Replay of recorded brokers against their own answers: live, compacted, every codec, and an older release."""

from collections.abc import Callable

import pytest

from tests.conformance.families import recorded_groups
from tests.recorded import RECORDINGS

AFTER_CLEANING = "after-cleaning"


def every(_: str) -> bool:
    return True


def before_cleaning(label: str) -> bool:
    return label != AFTER_CLEANING


def after_cleaning(label: str) -> bool:
    return label == AFTER_CLEANING


@pytest.mark.parametrize(
    ("recording", "logs", "labels", "snapshots"),
    [
        ("full-a", "logs", every, 315),
        ("p50", "logs", every, 281),
        ("compact", "logs-before", before_cleaning, 82),
        ("compact", "logs", after_cleaning, 24),
        ("compact-partial", "logs", after_cleaning, 23),
        ("codec-gzip", "logs", every, 42),
        ("codec-lz4", "logs", every, 42),
        ("codec-snappy", "logs", every, 42),
        ("codec-zstd", "logs", every, 42),
        ("old-40", "logs", every, 123),
    ],
)
def test_replayed_groups_are_what_the_broker_said(
    recording: str, logs: str, labels: Callable[[str], bool], snapshots: int
) -> None:
    """Every answer of Admin is met, and no log of a real broker contradicts itself."""
    outcome = recorded_groups.run(RECORDINGS / recording, logs=logs, labels=labels)
    assert (outcome.failures, outcome.anomalies) == ([], [])
    assert outcome.snapshots == snapshots
    assert outcome.record_count > snapshots


def test_compacted_log_does_not_meet_answers_from_before() -> None:
    """The comparison can fail: what compaction took out is not met by chance."""
    outcome = recorded_groups.run(RECORDINGS / "compact", logs="logs", labels=before_cleaning)
    assert len(outcome.failures) > outcome.snapshots / 3
    assert outcome.anomalies == []
