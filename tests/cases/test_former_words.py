"""Rows of bronze.quarantine with codes and messages that the last release worded otherwise."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from coordinator_core.bytes.printed.dump_log_output import NOT_PRINTED
from jobs.bronze.quarantine import FORMER_CODES, FORMER_MESSAGES
from jobs.delta.arrow_schemas import arrow_schema
from schemas.tables.bronze import QUARANTINE
from tests.cases.harness import CLUSTER_ID, Ledger
from tests.coordinator_core.bytes.printed.test_dump_log_output import DUMPING, header, record


@pytest.mark.parametrize("is_read_again", [True, False])
def test_former_words_are_replaced(tmp_path: Path, is_read_again: bool) -> None:
    """A finding stays one row and open, whether its dump is read again or another one."""
    dump, other = tmp_path / "dump.txt", tmp_path / "other.txt"
    dump.write_text("\n".join([DUMPING, header(), "| key: {} payload: {}", ""]))
    other.write_text("\n".join([DUMPING, header(7, 7), record(7), ""]))
    ledger = Ledger(tmp_path / "w")
    ledger.night(dumps=(str(dump),))
    found = ledger.rows(QUARANTINE.full_name)
    assert [row["code"] for row in found] == [NOT_PRINTED]

    [former] = FORMER_CODES
    [(words, message)] = [item for item in FORMER_MESSAGES.items() if item[1] in found[0]["message"]]
    stored: list[dict[str, Any]] = [
        row | {"code": former, "message": row["message"].replace(message, words)} for row in found
    ]
    ledger.warehouse.write(
        QUARANTINE,
        pa.Table.from_pylist(stored, schema=arrow_schema(QUARANTINE)),
        app_id="former",
        version=0,
        mode="overwrite",
        replace={"cluster_id": CLUSTER_ID},
    )
    if is_read_again:
        dump.write_text(dump.read_text() + "\n")
    ledger.night(number=2, dumps=(str(dump if is_read_again else other),))
    assert ledger.rows(QUARANTINE.full_name) == found
