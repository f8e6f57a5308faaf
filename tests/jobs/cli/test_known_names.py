"""Names that the Tab key completes."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobs.cli import known_names

pytestmark = pytest.mark.first


def test_groups_and_topics_are_those_of_the_warehouse(recorded_warehouse: Path) -> None:
    """Of the one that the command line names; where there is none, nothing is offered and nothing fails."""
    named: Any = SimpleNamespace(params={"warehouse": str(recorded_warehouse / "warehouse"), "cluster_id": None})
    assert known_names.GROUPS(named, "c0")[:2] == ["c01-range", "c02-roundrobin"]
    assert known_names.GROUPS(named, "no-such") == []
    assert known_names.TOPICS(named, "c01") == ["c01-range"]
    nowhere: Any = SimpleNamespace(params={"warehouse": str(recorded_warehouse / "nowhere"), "cluster_id": "other"})
    assert known_names.GROUPS(nowhere, "") == []
