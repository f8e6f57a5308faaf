"""Logs that several releases wrote in place: the ledger's offsets are what each broker answered at its time."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.lengths import is_long
from tests.maven import Unavailable
from tools.upgraded_log import compare, make_steps, tell

SHORT = {"zookeeper": ("0.9.0.1", "0.11.0.3", "3.9.1"), "kraft": ("3.5.2", "4.2.0", "4.4.0")}
"""Of the chains of the tool, which takes minutes for all: formats 0, 1 and 2, both coordinators, and their rules."""


@pytest.mark.parametrize("chain", SHORT)
def test_a_log_that_was_upgraded_in_place(chain: str, tmp_path: Path) -> None:
    """After each night and as of each time, whatever the nights; the export has the bytes of the brokers."""
    try:
        steps = make_steps(tmp_path / "upgraded", SHORT[chain], zookeeper=chain == "zookeeper")
    except Unavailable as error:
        if is_long():
            raise
        pytest.skip(str(error))
    compared = compare(steps, tmp_path / "work")
    differences: Sequence[str] = [difference for it in compared for difference in it.differences]
    assert not differences, "\n".join(tell(compared))
    assert all(it.point_count for it in compared)
