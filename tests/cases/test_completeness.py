"""COMPLETE reaches no further than what was read: of each log partition, and of log partitions that nobody named."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from coordinator_core.replay.lookup import group_partition
from jobs.cli import app as cli
from jobs.cli_enums import Listing
from jobs.errors import ArgumentError
from jobs.queries.answers.audit_report import Completeness, Span, completeness, run_audit_report
from jobs.queries.as_of.as_of import GROUPS_LOG, SHARES_LOG
from tests.answers import printed
from tests.cases.harness import Ledger
from tests.recorded import RECORDINGS

LOGS = RECORDINGS / "full-a" / "logs"
"""Five log partitions each; the last records of __share_group_state are between 02:57:53 and 02:59:18."""
METADATA = "__cluster_metadata"
TOPICS = (SHARES_LOG, METADATA)
SECOND = 1_000
END = 1_795_229_958_988
"""2026-11-21T02:59:18.988Z, of the newest record of __share_group_state; log partition 3 ends at 02:57:53.771Z."""
PROVEN = END - 85_217


def copied(folder: Path, partitions: Sequence[int] = range(5), *, with_metadata: bool = True) -> Path:
    """Some log partitions of share state, with the metadata log or without."""
    names = [f"{SHARES_LOG}-{partition}" for partition in partitions]
    for name in [*names, *([f"{METADATA}-0"] if with_metadata else ())]:
        shutil.copytree(LOGS / name, folder / name)
    return folder


def stated(ledger: Ledger, span: Span = Span(), log: str = SHARES_LOG, **more: Any) -> Completeness:  # noqa: B008
    """What is said of a span."""
    complete = completeness(ledger.tables, log, span, **more)
    assert complete.is_complete == complete.statements[0].startswith("COMPLETE")
    return complete


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Ledger:
    """A night over all of share state."""
    root = tmp_path_factory.mktemp("whole")
    ledger = Ledger(root / "warehouse")
    ledger.night(copied(root / "logs"), topics=TOPICS)
    return ledger


@pytest.fixture(scope="module")
def in_part(tmp_path_factory: pytest.TempPathFactory) -> Ledger:
    """A night over two of five log partitions of the groups."""
    root = tmp_path_factory.mktemp("part")
    for name in (f"{GROUPS_LOG}-2", f"{GROUPS_LOG}-4", f"{METADATA}-0"):
        shutil.copytree(LOGS / name, root / "logs" / name)
    ledger = Ledger(root / "warehouse")
    ledger.night(root / "logs", topics=(GROUPS_LOG, METADATA))
    return ledger


def test_log_partitions_in_no_source_are_missing(ledger: Ledger, tmp_path: Path) -> None:
    """One disk of two: the night ends with 3, names them, and nothing is complete; the other disk makes it so."""
    night = ledger.night(copied(tmp_path / "disk1", (0, 2, 4)), topics=TOPICS)
    assert night.exit_code == 3
    assert f"2 of 5 log partitions of {SHARES_LOG} are in no source (1, 3)" in night.text
    assert "NOT COMPLETE: 2 log partitions in no source" in night.facts["found"]["headline"]
    assert night.facts["replayed"]["missing_log_partitions"] == {SHARES_LOG: [1, 3]}
    assert not stated(ledger).is_complete
    assert not stated(ledger, Span(None, PROVEN)).is_complete
    night = ledger.night(copied(tmp_path / "disk2", (1, 3), with_metadata=False), topics=TOPICS, number=2)
    assert night.exit_code == 0
    assert stated(ledger).is_complete


def test_without_a_known_number_nothing_is_complete(ledger: Ledger, tmp_path: Path) -> None:
    """The highest number that was seen proves nothing: the user says it, once, or the metadata log does."""
    logs = copied(tmp_path / "logs", with_metadata=False)
    night = ledger.night(logs, topics=TOPICS)
    assert night.exit_code == 0
    assert (
        f"how many log partitions {SHARES_LOG} has is not known (5 of at least 5 were found): say it with --partitions"
        in night.text
    )
    assert not stated(ledger).is_complete
    assert stated(ledger, partition_counts={SHARES_LOG: 5}).is_complete
    assert not stated(ledger, partition_counts={SHARES_LOG: 4}).is_complete
    assert "are in no source (5)" in stated(ledger, partition_counts={SHARES_LOG: 6}).statements[1]
    ledger.night(logs, topics=TOPICS, partitions=(f"{SHARES_LOG}=5",), number=2)
    assert stated(ledger).is_complete


def test_the_bound_is_the_last_record_of_each_log_partition(whole: Ledger) -> None:
    """Not the time of the capture, days later, and no fresh log partition vouches for a stale one."""
    statements = stated(whole).statements
    assert "from its beginning to 2026-11-21T02:57:53.771Z was read" in statements[0]
    assert "up to 2026-11-21T02:59:18.988Z at the latest" in statements[1]
    assert stated(whole, Span(None, PROVEN + 1)).is_complete
    late = stated(whole, Span(None, PROVEN + 2))
    assert not late.is_complete
    assert f"nothing is known of {SHARES_LOG}-3 after its last record that was read" in late.statements[1]
    assert not stated(whole, Span(None, END + 4 * 86_400 * SECOND)).is_complete


def test_an_empty_log_partition_of_a_copy_proves_no_time(ledger: Ledger, tmp_path: Path) -> None:
    """It is there, so it is not missing; whether it was written to after it was copied, nothing tells."""
    logs = copied(tmp_path / "logs", (0, 1, 2, 4))
    (logs / f"{SHARES_LOG}-3").mkdir()
    (logs / f"{SHARES_LOG}-3" / f"{0:020d}.log").touch()
    assert ledger.night(logs, topics=TOPICS).exit_code == 0
    whole = stated(ledger)
    assert whole.is_complete
    assert "to its last record" in whole.statements[0]
    assert whole.statements[-1] == "Empty when they were copied: log partitions 3"
    assert "it was empty when it was copied" in stated(ledger, Span(None, PROVEN)).statements[1]


def test_questions_outside_of_the_log_are_errors(whole: Ledger) -> None:
    """A group that is not there, a time before the log begins or after its end, a span that runs backwards."""
    from jobs.queries.as_of.in_log import remarks_behind, require_begun, require_in_any_log

    def audit(group_ids: Sequence[str] | None, span: Span, listing: Listing = Listing.ARCHIVED) -> None:
        printed(run_audit_report, whole.tables, listing=listing, span=span, group_ids=group_ids)

    audit(["s05-limit"], Span())
    for listing in Listing:
        with pytest.raises(ArgumentError, match="no group 'S05-limit'"):
            audit(["s05-limit", "S05-limit"], Span(), listing)
    with pytest.raises(ArgumentError, match=r"before the log begins: .* was read from 2026-11-21T02:57:30"):
        audit(None, Span(None, END - 86_400 * SECOND))
    with pytest.raises(ArgumentError, match="after the end of what was read"):
        audit(None, Span(END + 1, None))
    with pytest.raises(ArgumentError, match="--from must be before --to"):
        audit(None, Span(END, END))
    with pytest.raises(ArgumentError, match="before the log begins"):
        require_begun(whole.tables, END - 86_400 * SECOND)
    with pytest.raises(ArgumentError, match="after the end"):
        require_in_any_log(whole.tables, END + 1, None)
    ends = require_begun(whole.tables, END)
    assert list(remarks_behind(ends, END)) == []
    assert list(remarks_behind(ends, END + 1)) == [
        "the log was read up to 2026-11-21T02:59:18.988Z: what came after that is not known"
    ]


def test_of_a_group_the_end_of_its_own_log_partition_counts(in_part: Ledger) -> None:
    """Log partition 2 of the groups was read up to 02:59:18.994Z, number 4 up to 03:00:02.828Z."""
    from jobs.bronze.log_ends import log_ends
    from jobs.queries.as_of.in_log import remarks_behind

    ends = log_ends(in_part.tables)
    by_place = {row["log_partition"]: row["group_id"] for row in in_part.rows("silver.group_generations")}
    at_ms = END + 10 * SECOND
    assert list(remarks_behind(ends, at_ms, [by_place[4]])) == []
    reported = list(remarks_behind(ends, at_ms, [by_place[2]]))
    assert reported == [f"{GROUPS_LOG}-2 was read up to 2026-11-21T02:59:18.994Z: what came after that is not known"]
    nobody = next(name for name in map(str, range(99)) if group_partition(name, 5) == 3)
    with pytest.raises(ArgumentError, match=f"{GROUPS_LOG}-3, where it would be, is in no source"):
        printed(run_audit_report, in_part.tables, listing=Listing.COMMITS, group_ids=[nobody])


def test_answers_name_what_is_in_no_source(in_part: Ledger, capsys: pytest.CaptureFixture[str]) -> None:
    """owner, describe and restore do not take a group for absent, nor a partition for free, where the log partitions
    that would tell are in no source."""
    nobody = next(name for name in map(str, range(99)) if group_partition(name, 5) == 3)
    place = ["--warehouse", str(in_part.root), "--cluster-id", in_part.cluster_id]

    def stderr(*words: str, code: int = 0) -> str:
        assert cli.main([*words, *place]) == code
        return capsys.readouterr().err

    some = f"3 of 5 log partitions of {GROUPS_LOG} are in no source (0, 1, 3)"
    assert some in stderr("owner", "--topic", "none", "--partition", "0", code=2)
    assert some in stderr("describe")
    own = f"{GROUPS_LOG}-3, where it would be, is in no source"
    assert own in stderr("describe", "--group", nobody, code=2)
    assert own in stderr("restore", "--group", nobody, "--at", str(END), code=2)
    there = {row["log_partition"]: row["group_id"] for row in in_part.rows("silver.group_generations")}
    assert "no source" not in stderr("describe", "--group", there[2])


def test_answers_of_share_state_alone_say_so(whole: Ledger, capsys: pytest.CaptureFixture[str]) -> None:
    """Which groups there were is in the other coordinator's log, and an empty answer is none about it."""
    place = ["--warehouse", str(whole.root), "--cluster-id", whole.cluster_id]
    for words, code in ((["describe"], 0), (["describe", "--group", "s05-limit"], 2)):
        assert cli.main([*words, *place]) == code
        assert f"nothing of {GROUPS_LOG} was captured" in capsys.readouterr().err
