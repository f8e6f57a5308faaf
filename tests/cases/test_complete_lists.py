"""A list is complete only where gold is of all that was read, and where times tell what belongs to its span."""

from datetime import UTC, datetime
from itertools import product
from pathlib import Path

import pytest

from jobs.cli import app as cli
from jobs.cli_enums import Listing
from jobs.console.command_name import command
from jobs.operations.nightly import run_audit, run_replay
from jobs.queries.answers.audit_report import Span, completeness, run_audit_report
from jobs.queries.as_of.as_of import GROUPS_LOG
from tests.answers import printed
from tests.cases.harness import CASES, Ledger
from tests.cases.small_logs import NOON_MS, SmallLog
from tests.recorded import RECORDINGS

SECOND = 1_000
HOUR_MS = 3_600_000
LATER = datetime(2026, 11, 30, tzinfo=UTC)
ONE = (f"{GROUPS_LOG}=1",)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Ledger:
    """A night over the recording that comes with the project."""
    ledger = Ledger(tmp_path_factory.mktemp("lists") / "warehouse")
    ledger.night(RECORDINGS / "full-a" / "logs")
    return ledger


def audited(ledger: Ledger, listing: Listing, span: Span = Span()) -> tuple[list[str], list[str]]:  # noqa: B008
    """The statements and the rows of a list."""
    lines = printed(run_audit_report, ledger.tables, listing=listing, span=span)[0].splitlines()
    statements = [line for line in lines if line.startswith("#")]
    return statements, lines[len(statements) + 1 :]


def test_what_was_captured_and_not_replayed_makes_no_list_complete(
    ledger: Ledger, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An offset went back, and only capture has run since: list and answers say so until replay and audit have."""
    log = SmallLog()
    log.commit("g", 0, 10, NOON_MS)
    ledger.night(log.write(tmp_path / "logs"), partitions=ONE)
    assert audited(ledger, Listing.COMMITS)[0][0].startswith("# COMPLETE")
    log.commit("g", 0, 3, NOON_MS + SECOND)
    ledger.capture(log.write(tmp_path / "logs"), number=2, topics=(GROUPS_LOG,))
    place = ["--warehouse", str(ledger.root), "--cluster-id", ledger.cluster_id]
    said = f"captured and not replayed yet: {GROUPS_LOG}-0 offsets 1 to 1. Run {command('replay')} {' '.join(place)}"
    statements, _ = audited(ledger, Listing.COMMITS)
    assert statements[0].startswith("# NOT COMPLETE") and f"# {said}" in statements
    for words in (
        ["describe", "--group", "g"],
        ["owner", "--topic", "in", "--partition", "0"],
        ["restore", "--group", "g", "--at", "2100-01-01T00:00:00Z"],
    ):
        cli.main([*words, *place])
        assert said in capsys.readouterr().err
    ledger.run(run_replay, number=3)
    complete = completeness(ledger.tables, GROUPS_LOG, Span())
    assert not complete.is_complete and any("not audited yet" in line for line in complete.statements)
    ledger.run(run_audit, number=3)
    statements, rows = audited(ledger, Listing.COMMITS)
    assert statements[0].startswith("# COMPLETE") and any("REWIND" in row for row in rows)
    cli.main(["describe", "--group", "g", *place])
    assert "not replayed" not in capsys.readouterr().err


def test_a_fuller_copy_that_was_captured_alone_is_not_replayed(ledger: Ledger) -> None:
    """Its offsets were replayed, from a copy that was cleaned: coverage says CAPTURED of what silver does not have."""
    ledger.night(CASES / "X-compaction" / "cleaned", partitions=(f"{GROUPS_LOG}=13",))
    ledger.capture(CASES / "X-compaction" / "full", number=2, topics=(GROUPS_LOG,))
    statements, _ = audited(ledger, Listing.COMMITS)
    assert any(f"captured and not replayed yet: {GROUPS_LOG}-12 offsets 0 to " in line for line in statements)


def test_rows_without_a_time_are_in_the_list_of_any_span(ledger: Ledger, tmp_path: Path) -> None:
    """That a record has no time does not keep it from a list that is called complete; the list says how many there
    are."""
    log = SmallLog()
    log.generation("g", 1, {"a": (0,)}, None)
    log.generation("g", 2, {"a": (0,), "b": (1,)}, NOON_MS)
    log.commit("g", 0, 9, NOON_MS + SECOND)
    log.commit("g", 0, 3, None, version=1, commit_ms=None)
    log.commit("g", 0, 9, NOON_MS + 3 * SECOND)
    ledger.night(log.write(tmp_path / "logs"), partitions=ONE)
    counts = {Listing.REBALANCES: 2, Listing.OWNERS: 2, Listing.COMMITS: 1}
    for span, (listing, count) in product((Span(None, NOON_MS + 2 * SECOND), Span(NOON_MS, None)), counts.items()):
        statements, rows = audited(ledger, listing, span)
        assert statements[0].startswith("# COMPLETE")
        assert len(rows) == count, listing
        assert any("1 row without a time" in line for line in statements)
        assert not any("without a time" in line for line in audited(ledger, listing)[0])


def test_a_copy_that_ends_behind_a_step_back_proves_no_more_than_its_last_time(ledger: Ledger, tmp_path: Path) -> None:
    """The leader's clock is an hour behind: records to come have times that were read already. Once it has caught up
    all is proven again, and a list of a part of the log says where its time went back."""
    log = SmallLog()
    for number, at_ms in enumerate((0, HOUR_MS, 100 * SECOND)):
        log.commit("g", 0, number, NOON_MS + at_ms)
    ledger.night(log.write(tmp_path / "logs"), partitions=ONE)
    assert "to 2026-05-28T20:28:20.000Z was read" in audited(ledger, Listing.COMMITS)[0][0]
    until = Span(None, NOON_MS + HOUR_MS // 2)
    statements, _ = audited(ledger, Listing.COMMITS, until)
    assert statements[0].startswith("# NOT COMPLETE")
    log.commit("g", 0, 9, NOON_MS + 2 * HOUR_MS)
    ledger.night(log.write(tmp_path / "logs"), number=2)
    assert "to 2026-05-28T22:26:40.000Z was read" in audited(ledger, Listing.COMMITS)[0][0]
    statements, _ = audited(ledger, Listing.COMMITS, until)
    assert statements[0].startswith("# COMPLETE")
    assert f"# the time of {GROUPS_LOG}-0 went back at offset 2, from 2026-05-28T21:26:40.000Z to " in statements[1]


@pytest.mark.parametrize(
    ("listing", "group_id", "reported"),
    [
        (Listing.ARCHIVED, "c01-range", "group c01-range is no share group: it is never in this list"),
        (Listing.WITHOUT_COPY, "k01-uniform", "group k01-uniform is no share group: it is never in this list"),
        (
            Listing.OWNERS,
            "s05-limit",
            "group s05-limit is a share group, which has no owners: it is never in this list",
        ),
        (Listing.REDELIVERIES, "s05-limit", None),
        (Listing.OWNERS, "k06-migrate", None),
    ],
)
def test_a_list_says_which_groups_are_never_in_it(
    recorded: Ledger, listing: Listing, group_id: str, reported: str | None
) -> None:
    """COMPLETE and no row of a group of another type looks as if nothing had happened to it."""
    text, _ = printed(run_audit_report, recorded.tables, listing=listing, group_ids=[group_id])
    lines = [line for line in text.splitlines() if "never in this list" in line]
    assert lines == ([] if reported is None else [f"# {reported}"])
