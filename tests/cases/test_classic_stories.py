"""Classic groups as public reports tell them: what gold and its faces say of each."""

import pytest

from tests.cases.harness import CASES, Ledger


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Ledger:
    """A night over all of them."""
    ledger = Ledger(tmp_path_factory.mktemp("stories") / "warehouse")
    assert ledger.night(CASES / "classic-stories" / "logs").exit_code == 0
    return ledger


def causes_of(told: Ledger, group_id: str) -> list[tuple[int, list[tuple[str, str, str]]]]:
    """Of each rebalance, by generation."""
    rows = [row for row in told.rows("gold.rebalances") if row["group_id"] == group_id]
    return [
        (
            row["to_generation"],
            list(zip(row["causes"], row["cause_methods"], row["cause_confidences"], strict=True)),
        )
        for row in sorted(rows, key=lambda row: row["to_generation"])
    ]


def test_commits_of_others_are_no_sign_of_life(told: Ledger) -> None:
    """A had crashed while B went on to commit A's partition together with its own."""
    assert causes_of(told, "foreign")[-1] == (6, [("MEMBER_EXPIRED", "SILENT_FOR_SESSION", "LIKELY")])
    ((_, causes),) = causes_of(told, "foreign-idle")[1:]
    assert causes == [("UNKNOWN", "LEFT_OR_EXPIRED", "GUESS")]


def test_what_was_right_stays(told: Ledger) -> None:
    """Readers, mirrors and workers whose stories the log tells."""
    reader = [row for row in told.rows("gold.rebalances") if row["group_id"] == "clickhouse-reader"]
    assert len(reader) == 60 and all(row["in_storm"] for row in reader)
    assert causes_of(told, "mm2-failback")[-1][1] == [
        ("GROUP_EMPTIED", "NO_MEMBERS_LEFT", "CERTAIN"),
        ("MEMBER_EXPIRED", "SILENT_FOR_SESSION", "GUESS"),
    ]
    assert [causes[0][:2] for _, causes in causes_of(told, "connect-cluster")] == [
        ("FIRST", "FIRST_GENERATION"),
        ("MEMBER_JOINED", "IN_LOG"),
        ("MEMBER_JOINED", "COOPERATIVE_FOLLOW_UP"),
        ("UNKNOWN", "NO_EVIDENCE"),
        ("UNKNOWN", "NO_EVIDENCE"),
        ("UNKNOWN", "COOPERATIVE_FOLLOW_UP"),
    ]
    assert causes_of(told, "append-time-2")[-1][1] == [
        ("GROUP_EMPTIED", "NO_MEMBERS_LEFT", "CERTAIN"),
        ("MEMBER_LEFT", "HEARD_WITHIN_SESSION", "LIKELY"),
    ]
    went_back = [row for row in told.rows("gold.commit_anomalies") if row["group_id"] == "mm2-standby"]
    assert [(row["kind"], row["confidence"]) for row in went_back] == [("REWIND", "CERTAIN")] * 2
