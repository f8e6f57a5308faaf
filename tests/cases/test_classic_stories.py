"""Classic groups as public reports tell them: what gold and its readers say of each."""

import pytest

from jobs.cli_enums import Listing
from jobs.queries.answers.findings import findings, lines
from jobs.queries.answers.group_history import events_and_steps
from jobs.queries.answers.group_verdicts import WARN, group_verdicts
from tests.cases.harness import CASES, Ledger

pytestmark = pytest.mark.first


@pytest.fixture(scope="module")
def stories(tmp_path_factory: pytest.TempPathFactory) -> Ledger:
    """A night over all of them."""
    ledger = Ledger(tmp_path_factory.mktemp("stories") / "warehouse")
    assert ledger.night(CASES / "classic-stories" / "logs").exit_code == 0
    return ledger


def causes_of(stories: Ledger, group_id: str) -> list[tuple[int, list[tuple[str, str, str]]]]:
    """Of each rebalance, by generation."""
    rows = [row for row in stories.rows("gold.rebalances") if row["group_id"] == group_id]
    return [
        (
            row["to_generation"],
            list(zip(row["causes"], row["cause_methods"], row["cause_confidences"], strict=True)),
        )
        for row in sorted(rows, key=lambda row: row["to_generation"])
    ]


def test_commits_of_others_are_no_sign_of_life(stories: Ledger) -> None:
    """A had crashed while B went on to commit A's partition together with its own."""
    assert causes_of(stories, "foreign")[-1] == (6, [("MEMBER_EXPIRED", "SILENT_FOR_SESSION", "LIKELY")])
    ((_, causes),) = causes_of(stories, "foreign-idle")[1:]
    assert causes == [("UNKNOWN", "LEFT_OR_EXPIRED", "GUESS")]


def test_kafka_streams_announces_its_probing_rebalances(stories: Ledger) -> None:
    """As the assignment before says (KIP-441); and once more, when what was revoked is assigned."""
    probing = [("PROBING_REBALANCE", "NEXT_REBALANCE_ANNOUNCED", "LIKELY")]
    assert causes_of(stories, "streams-app")[1:] == [
        *((generation, probing) for generation in (21, 22, 23, 24)),
        (25, [("PROBING_REBALANCE", "COOPERATIVE_FOLLOW_UP", "LIKELY")]),
        (26, [("UNKNOWN", "NO_EVIDENCE", "GUESS")]),  # nothing announced it
    ]
    events = events_and_steps(stories.tables, "streams-app", from_ms=None, to_ms=None)[0]
    announced = [event.text for event in events if event.event == "rebalance announced"]
    assert announced[0] == "a member is to join again at 2026-11-25T09:56:40.000Z"


def test_what_was_right_stays(stories: Ledger) -> None:
    """Readers, mirrors and workers whose stories the log tells."""
    reader = [row for row in stories.rows("gold.rebalances") if row["group_id"] == "clickhouse-reader"]
    assert len(reader) == 60 and all(row["in_storm"] for row in reader)
    assert causes_of(stories, "mm2-failback")[-1][1] == [
        ("GROUP_EMPTIED", "NO_MEMBERS_LEFT", "CERTAIN"),
        ("MEMBER_EXPIRED", "SILENT_FOR_SESSION", "GUESS"),
    ]
    assert [causes[0][:2] for _, causes in causes_of(stories, "connect-cluster")] == [
        ("FIRST", "FIRST_GENERATION"),
        ("MEMBER_JOINED", "IN_LOG"),
        ("MEMBER_JOINED", "COOPERATIVE_FOLLOW_UP"),
        ("UNKNOWN", "NO_EVIDENCE"),
        ("UNKNOWN", "NO_EVIDENCE"),
        ("UNKNOWN", "COOPERATIVE_FOLLOW_UP"),
    ]
    assert causes_of(stories, "append-time-2")[-1][1] == [
        ("GROUP_EMPTIED", "NO_MEMBERS_LEFT", "CERTAIN"),
        ("MEMBER_LEFT", "HEARD_WITHIN_SESSION", "LIKELY"),
    ]
    went_back = [row for row in stories.rows("gold.commit_anomalies") if row["group_id"] == "mm2-standby"]
    assert [(row["kind"], row["confidence"]) for row in went_back] == [("REWIND", "CERTAIN")] * 2


def test_two_processes_with_one_instance_id_are_found(stories: Ledger) -> None:
    """Which instance id, where, and since when: in what was found, in the group's verdict, and line by line."""
    found = findings(stories.tables)
    assert found.new(Listing.INSTANCES) == {"static-dup (i1)": 23}
    assert any("static-dup (i1) (23)" in line and "audit --list instances" in line for line in lines(found))
    (verdict,) = group_verdicts(stories.tables, match="static-dup")
    assert (verdict.verdict, verdict.why) == (WARN, "1 instance id of several processes")
    events = events_and_steps(stories.tables, "static-dup", from_ms=None, to_ms=None)[0]
    replaced = [event.text for event in events if event.event == "static member replaced"]
    assert len(replaced) == 23
    assert replaced[0] == "i1: pod-b on /10.0.2.2, in place of i1: pod-a on /10.0.2.1"
