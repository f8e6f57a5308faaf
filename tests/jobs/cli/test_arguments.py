"""Which cluster a question is of."""

from pathlib import Path

import pytest

from jobs.cli.arguments import reading_settings
from jobs.errors import ArgumentError
from tests.cases.harness import CASES, Ledger


def asked(root: Path, cluster_id: str | None = None) -> str:
    """The cluster that a question of a warehouse is of."""
    return reading_settings(str(root), cluster_id).cluster_id


def test_a_warehouse_of_one_cluster_needs_no_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two, and where one is named by an option or the environment, nothing is guessed."""
    root = tmp_path / "warehouse"
    assert asked(root) == "kafka"
    Ledger(root, "orders").night(CASES / "C-expiry" / "logs")
    assert asked(root) == "orders"
    with pytest.raises(ArgumentError, match="there is no cluster 'order' \\(did you mean 'orders'\\?\\)"):
        asked(root, "order")
    Ledger(root, "payments").night(CASES / "C-expiry" / "logs")
    assert asked(root) == "kafka"
    with monkeypatch.context() as patch:
        patch.setenv("GROUPLEDGER_CLUSTER_ID", "payments")
        assert asked(root) == "payments"
