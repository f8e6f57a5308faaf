"""Output of kafka-dump-log before Kafka 3.8 is refused with one fault a file; that of 3.8 is read."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator_core.bytes.printed.dump_log_output import (
    NOT_PRINTED,
    PRINT_ALL,
    Dumped,
    DumpedBatch,
    DumpedFault,
    DumpedGap,
    read_dump_log_output,
)
from tests.conftest import PROJECT_ROOT

PRINTED = sorted((PROJECT_ROOT / "tests" / "data" / "older_dumps").glob("*.txt"))
"""What the tool of each release prints: `2.8.2-magic-1.txt` is that of 2.8.2 on a segment of magic 1."""
PRINTS_JSON = "3.8.1-magic-2"


def read(text: str) -> list[Dumped]:
    """What comes of the lines of a dump, without the empty ones."""
    return list(read_dump_log_output([(number, line) for number, line in enumerate(text.split("\n"), 1) if line]))


@pytest.mark.parametrize("path", [it for it in PRINTED if it.stem != PRINTS_JSON], ids=lambda path: path.stem)
def test_a_file_of_an_older_tool_is_one_fault(path: Path) -> None:
    """It has the line, the log partition and the offset, and says to run a newer tool; a next file is read."""
    newer = next(it for it in PRINTED if it.stem == PRINTS_JSON).read_text()
    fault, *others = read(f"{path.read_text()}\n{newer}")
    assert isinstance(fault, DumpedFault)
    assert (fault.code, fault.partition, fault.offset is not None) == (NOT_PRINTED, 7, True)
    assert fault.message.endswith(PRINT_ALL)
    assert others == read(newer)
    assert len(others) == sum(isinstance(it, DumpedBatch) for it in others) == 12


LINES = [line for path in PRINTED for line in path.read_text().split("\n") if line]


@given(st.lists(st.sampled_from(LINES), max_size=30))
def test_any_lines_in_any_order_give_batches_faults_and_gaps(lines: list[str]) -> None:
    """Nothing else is raised."""
    assert all(isinstance(it, DumpedBatch | DumpedFault | DumpedGap) for it in read("\n".join(lines)))
