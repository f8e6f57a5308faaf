"""Every mechanism: its file and its test are there, and what is seen is seen."""

import re
from collections import Counter, defaultdict

import pytest

from jobs.console.conversation import lines
from jobs.laboratory.simulate import explain
from schemas.tables import TABLES
from tests.conftest import PROJECT_ROOT
from tools.mechanisms_page import Mechanism, outside, stories

ALL: list[Mechanism] = [mechanism for rows in stories().values() for mechanism in rows]
TRACES = "tests/conformance/test_traces.py"
TEST = re.compile(r"^\s*def test_|\bparametrize\(", re.MULTILINE)
"""A test, or a table of cases, which may prove another mechanism."""
COLUMN = re.compile(r"(silver|gold)\.\w+\.\w+")


def test_files_and_tests_are_there() -> None:
    """No row names a file that moved, and no mechanism is named twice."""
    missing = [name for it in ALL for name in (it.file, it.test) if not (PROJECT_ROOT / name).is_file()]
    assert missing == []
    assert len({it.what for it in ALL}) == len(ALL) >= 150
    assert all(len(row) == 2 for row in outside())


def test_a_file_proves_no_more_than_it_has_tests() -> None:
    """Tests go when Kafka's own traces say the same: then the row names the traces, which prove any number."""
    rows = Counter(it.test for it in ALL)
    assert rows.pop(TRACES) > 50
    tests = {name: len(TEST.findall((PROJECT_ROOT / name).read_text("utf-8"))) for name in rows}
    assert {name: count for name, count in rows.items() if count > tests[name]} == {}


def test_columns_are_there() -> None:
    """What is seen in a table is a column of it."""
    columns = {f"{table.full_name}.{column.name}" for table in TABLES.values() for column in table.columns}
    named = {found.group() for it in ALL if (found := COLUMN.match(it.seen))}
    assert len(named) > 20
    assert named <= columns


SEEN: dict[tuple[str, str], list[str]] = defaultdict(list)
for mechanism in ALL:
    if mechanism.exchange is not None:
        SEEN[mechanism.exchange[:2]].append(mechanism.exchange[2])


@pytest.mark.simulator
@pytest.mark.parametrize(("scenario", "group_id"), sorted(SEEN), ids=str)
def test_what_is_seen_is_printed(scenario: str, group_id: str) -> None:
    """`simulate --explain` of the scenario prints each text."""
    story = "\n".join(lines(explain(f"scenarios/{scenario}.toml", group_id)))
    assert [text for text in SEEN[scenario, group_id] if text not in story] == []
