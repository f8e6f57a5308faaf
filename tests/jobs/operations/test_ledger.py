"""The ledger line: it balances, or it says by how much it does not."""

from coordinator_core.history.ledger import LedgerCounts
from jobs.operations.ledger import ledger_line, total


def test_a_balanced_ledger_is_an_equation() -> None:
    """Every part is named, in one line."""
    counts = LedgerCounts(1679, 1400, 162, 81, 0, 0, 36)
    assert counts.difference == 0
    assert ledger_line(counts) == (
        "1,679 records in = 1,400 decoded + 162 tombstones + 81 control + 36 not used + 0 unknown type + 0 quarantined"
    )


def test_a_ledger_that_does_not_balance_says_so() -> None:
    """A lost record and a doubled one are both reported, with their sign."""
    lost, doubled = LedgerCounts(10, 9), LedgerCounts(10, 11)
    assert ledger_line(lost).endswith("DOES NOT BALANCE, +1")
    assert ledger_line(doubled).endswith("DOES NOT BALANCE, -1")


def test_total_adds_all_topics() -> None:
    """Nothing of any topic is left out."""
    assert total({}) == LedgerCounts()
    assert total({"a": LedgerCounts(1, 1), "b": LedgerCounts(2, 0, 2)}) == LedgerCounts(3, 1, 2)
