"""The harness itself: a case runs to its end and its tables can be read."""

from tests.cases.harness import CASES, Ledger


def test_a_night_over_a_case_fills_the_tables(ledger: Ledger) -> None:
    """One night over a small log ends well, and silver has its commits."""
    night = ledger.night(CASES / "X-compaction" / "full")
    assert night.exit_code == 0
    assert len(ledger.rows("silver.offset_commits")) == 10
    assert night.facts["found"]["headline"] in night.text
