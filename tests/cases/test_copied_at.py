"""Who knows when a copy was made says it, and answers are complete up to then."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from jobs.cli.arguments import settings_of
from jobs.errors import ArgumentError
from jobs.queries.answers.audit_report import Completeness, Span, completeness
from jobs.settings import Settings
from schemas.consumer_offsets import TOPIC
from tests.cases.harness import Ledger
from tests.cases.small_logs import NOON_MS, SmallLog
from tests.jobs.dump_builders import kafka_rows, write_json_lines

HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class CopiedLedger(Ledger):
    """Runs on sources that were copied at a time."""

    copied_at_ms: int | None = None

    def settings(self, **values: Any) -> Settings:
        """With the time of the copy."""
        return replace(Ledger.settings(self, **values), copied_at_ms=self.copied_at_ms)


def copied(root: Path, *, commits: int = 1) -> Path:
    """Two log partitions, of which one is idle soon and a third is empty."""
    busy, idle, empty = SmallLog(0), SmallLog(1), SmallLog(2)
    idle.commit("idle", 0, 1, NOON_MS)
    for number in range(commits):
        busy.commit("busy", 0, number, NOON_MS + number * HOUR_MS)
    for log in (busy, idle, empty):
        log.write(root / "logs")
    return root / "logs"


def said(ledger: Ledger, to_ms: int) -> Completeness:
    """Whether the log was read up to a time."""
    return completeness(ledger.tables, TOPIC, Span(None, to_ms), None, {TOPIC: 3})


def test_a_copy_reaches_to_the_time_at_which_it_was_made(tmp_path: Path) -> None:
    """Idle and empty log partitions too, and no further; a copy of which nobody says it leaves that bound as it was."""
    root = tmp_path / "warehouse"
    plain, reported = Ledger(root), CopiedLedger(root, copied_at_ms=NOON_MS + 5 * HOUR_MS)
    logs = copied(tmp_path, commits=3)
    plain.night(logs, number=1)
    assert not said(plain, NOON_MS + 2 * HOUR_MS).is_complete
    assert reported.night(logs, number=2, partitions=(f"{TOPIC}=3",)).exit_code == 0
    assert said(reported, NOON_MS + 5 * HOUR_MS).is_complete
    assert not said(reported, NOON_MS + 5 * HOUR_MS + 2).is_complete
    plain.night(copied(tmp_path, commits=9), number=3)
    assert said(plain, NOON_MS + 5 * HOUR_MS).is_complete
    assert not said(plain, NOON_MS + 6 * HOUR_MS).is_complete
    # an older copy read again says nothing of what came since, and is none that cannot be
    earlier = CopiedLedger(root, copied_at_ms=NOON_MS + 8 * HOUR_MS)
    earlier.night(logs, number=4)
    CopiedLedger(root, copied_at_ms=NOON_MS + 3 * HOUR_MS).night(logs, number=5)
    assert said(plain, NOON_MS + 8 * HOUR_MS).is_complete


def test_a_dump_reaches_to_the_time_at_which_it_was_made(tmp_path: Path) -> None:
    """And what the user says of the number of log partitions is kept of it as of segments."""
    logs = copied(tmp_path, commits=3)
    dump = (str(write_json_lines(kafka_rows(logs), tmp_path / "rows.json")),)
    ledger = CopiedLedger(tmp_path / "warehouse", copied_at_ms=NOON_MS + 5 * HOUR_MS)
    ledger.night(dumps=dump, partitions=(f"{TOPIC}=2",))
    found = completeness(ledger.tables, TOPIC, Span(None, NOON_MS + 5 * HOUR_MS))
    assert found.is_complete, found.statements
    assert not completeness(ledger.tables, TOPIC, Span(None, NOON_MS + 5 * HOUR_MS + 2)).is_complete


@pytest.mark.parametrize(
    ("copied_at_ms", "words"),
    [
        (NOON_MS + HOUR_MS - 1, f"{TOPIC}-0 has a record of 2026-05-28T21:26:40.000Z"),
        (NOON_MS + 1_000 * 24 * HOUR_MS, "lies ahead of this run"),
    ],
)
def test_a_time_that_cannot_be_is_refused(tmp_path: Path, copied_at_ms: int, words: str) -> None:
    """Before the last record, or ahead of the run: nothing is complete up to then."""
    ledger = CopiedLedger(tmp_path / "warehouse", copied_at_ms=copied_at_ms)
    logs = copied(tmp_path, commits=2)
    with pytest.raises(ArgumentError, match=words):
        ledger.night(logs)
    Ledger(tmp_path / "warehouse").night(logs, number=2)
    assert not said(ledger, NOON_MS + HOUR_MS).is_complete


def test_the_option_goes_with_a_copy(tmp_path: Path) -> None:
    """It says when segments or dumps were copied, and is none of a live cluster."""
    at = "2026-05-28T21:26:40Z"
    settings = settings_of(str(tmp_path), "c", segments=[str(tmp_path)], copied_at=at)
    assert settings.copied_at_ms == NOON_MS + HOUR_MS
    with pytest.raises(ArgumentError, match="--segments or --dump"):
        settings_of(str(tmp_path), "c", bootstrap_servers="h:1", copied_at=at)
