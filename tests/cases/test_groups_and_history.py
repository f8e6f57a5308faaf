"""`groups` and `history` say what they cannot know: a group that is not judged, or of a time not read, is not OK."""

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from jobs.cli import app as cli
from jobs.queries.answers.group_verdicts import FAILED, OK, WARN, group_verdicts
from schemas.consumer_offsets import TOPIC
from tests.cases.harness import CLUSTER_ID, Ledger
from tests.cases.small_logs import NOON_MS, SmallLog
from tests.cases.test_grown_topics import compacted_logs, group_in
from tests.cases.test_not_judged import groups_log, plant
from tests.recorded import RECORDINGS

LOGS = RECORDINGS / "full-a" / "logs"
SHARES_LOG = "__share_group_state"
Ask = Callable[..., tuple[int, str, str]]


@pytest.fixture
def ask(ledger: Ledger, capsys: pytest.CaptureFixture[str]) -> Ask:
    """Exit code, stdout and stderr of a command line."""

    def answer(*words: str) -> tuple[int, str, str]:
        code = cli.main([*words, "--warehouse", str(ledger.root), "--cluster-id", CLUSTER_ID])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return answer


def test_no_group_is_ok_in_a_time_that_was_not_read(ledger: Ledger, ask: Ask, tmp_path: Path) -> None:
    """A time after the end of the log is an error, and so are seconds given for milliseconds."""
    log = SmallLog()
    log.commit("g", 0, 5, NOON_MS)
    log.generation("g", 1, {"m": (0,)}, NOON_MS + 1_000)
    ledger.night(log.write(tmp_path / "logs"))
    for time, said in (("2100-01-01", "after the end of what was read"), (str(NOON_MS // 1000), "are these seconds?")):
        code, out, err = ask("groups", "--from", time)
        assert (code, out) == (2, "") and said in err
    code, out, _ = ask("groups", "--from", str(NOON_MS))
    assert code == 0 and "OK" in out


def test_a_group_that_could_not_be_judged_needs_somebody(
    ledger: Ledger, ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gold has nothing of it, which looks like a group to which nothing happened."""
    with monkeypatch.context() as patch:
        plant(patch)
        assert ledger.night(groups_log().write(tmp_path / "logs")).exit_code == 3
    verdicts = {it.group_id: it for it in group_verdicts(ledger.tables)}
    assert (verdicts["bad"].verdict, verdicts["bad"].rules) == (WARN, {FAILED: 1})
    assert verdicts["good"].rules.get(FAILED) is None
    assert "bad could not be judged, so gold lacks it" in ask("history", "--group", "bad")[2]
    assert "judged" not in ask("history", "--group", "good")[2]


def test_a_group_is_shown_as_it_is_where_kafka_looks_for_it(ledger: Ledger, tmp_path: Path) -> None:
    """After __consumer_offsets got more partitions what is in the former one is of the past, though it is younger."""
    group = group_in(0, 2)
    logs = compacted_logs(tmp_path / "logs", group)
    ledger.night(logs, partitions=(f"{TOPIC}=3",))
    newest = {row["log_partition"]: row["valid_from"] for row in ledger.rows("silver.group_generations")}
    assert newest[0] > newest[2]
    (now,) = [it for it in group_verdicts(ledger.tables) if it.group_id == group]
    assert now.last_change_ms == round(newest[2].timestamp() * 1000)


def test_log_partitions_in_no_source_are_named(ledger: Ledger, ask: Ask, tmp_path: Path) -> None:
    """Of both logs, also where nothing tells how many there are: those below the highest that was found are missing."""
    for name in (f"{TOPIC}-0", f"{TOPIC}-3", f"{SHARES_LOG}-1", f"{SHARES_LOG}-4"):
        shutil.copytree(LOGS / name, tmp_path / "logs" / name)
    night = ledger.night(tmp_path / "logs")
    assert f"(2 of at least 4 were found; in no source: 1, 2): say it with --partitions {TOPIC}=COUNT" in night.text
    groups, shares = f"log partitions 1, 2 of {TOPIC} are in no source", f"log partitions 0, 2, 3 of {SHARES_LOG}"
    err = ask("groups")[2]
    assert groups in err and shares in err
    for words in (["owner", "--topic", "nope", "--partition", "0"], ["describe"]):
        assert groups in ask(*words)[2]
    code, _, err = ask("describe", "--group", "nope")
    assert code == 2 and "Log partitions 1, 2 are in no source" in err
    code, _, err = ask("history", "--group", "nope")
    assert code == 2 and "Log partitions 1, 2 are in no source" in err


def test_markers_and_aborted_records_are_not_given_up(ledger: Ledger, ask: Ask) -> None:
    """`history` passes over them by that name, and counts records as `groups` and the findings of a night do."""
    ledger.night(LOGS)
    lines = ask("history", "--group", "s10-readcommitted")[1].splitlines()
    markers = [line for line in lines if " passed over (" in line]
    by_name = Counter(line.rpartition(", ")[2] for line in markers)
    assert by_name == {"TRANSACTION_MARKER": 5, "ABORTED_TRANSACTION": 4}
    assert not any(" given up (" in line for line in lines)
    (verdict,) = group_verdicts(ledger.tables, match="s10-readcommitted")
    assert verdict.given_up_count == 0 and verdict.verdict == OK
    # of a log that was read whole, and judged, nothing else is said
    gone = "1 more group is gone (c14-nocommit): "
    assert ask("history", "--group", "c01-range")[2] == ""
    assert ask("groups", "--format", "json")[2].startswith(gone)
    assert all(line.startswith(("look at the worst: ", "and: ", gone)) for line in ask("groups")[2].splitlines())
    assert ask("groups", "--needs-attention", "--match", "c01-range")[2] == "no group needs attention\n"
