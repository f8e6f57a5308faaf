"""An erasure that was killed between two tables, and repeated."""

import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from jobs.delta.warehouse import Warehouse
from jobs.operations.erase import erase, erased_ids
from tests.cases.harness import CASES, FIRST_NIGHT, Ledger
from tests.cases.test_copies import contents
from tests.jobs.in_process import in_process

MEMBERS = "silver.group_members"
AT = FIRST_NIGHT + timedelta(days=4)


class KilledError(Exception):
    """In place of a signal."""


def run_erase(ledger: Ledger, ids: list[str], key: bytes) -> dict[str, int]:
    """With the key that the warehouse gets where it has none."""
    return erase(in_process(), ledger.warehouse, ids=ids, new_key=key, at=AT)


def test_one_id_has_one_pseudonym_wherever_the_kill_came(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed behind the first table or the last, and repeated: the tables are those of one go."""
    first = Ledger(tmp_path / "first")
    first.night(CASES / "C-expiry" / "logs")
    members = [row["member_id"] for row in first.rows(MEMBERS) if len(row["member_id"]) > 3]
    ids = erased_ids([f"member={member_id}" for member_id in members])
    whole = Ledger(shutil.copytree(tmp_path / "first", tmp_path / "whole"))
    counts = run_erase(whole, ids, b"1" * 32)
    changed = sum(1 for count in counts.values() if count)
    expected = contents(whole)
    assert changed > 3 and expected != contents(first)
    swap = Warehouse.swap
    for stop in (1, changed - 1):
        ledger = Ledger(shutil.copytree(tmp_path / "first", tmp_path / f"killed-{stop}"))
        swapped = 0

        def killed(self: Warehouse, *arguments: Any, stop: int = stop, **options: Any) -> Any:
            nonlocal swapped
            if swapped == stop:
                raise KilledError
            swapped += 1
            return swap(self, *arguments, **options)

        with monkeypatch.context() as patch:
            patch.setattr(Warehouse, "swap", killed)
            with pytest.raises(KilledError):
                run_erase(ledger, ids, b"1" * 32)
        run_erase(ledger, ids, b"2" * 32)
        assert contents(ledger) == expected, stop


def test_a_key_that_was_not_written_whole_is_rebuilt(tmp_path: Path) -> None:
    """It has changed no table; nobody else may read it."""
    ledger = Ledger(tmp_path / "warehouse")
    ledger.night(CASES / "C-expiry" / "logs")
    path = tmp_path / "warehouse" / "_erasure_key"
    path.write_bytes(b"half")
    run_erase(ledger, erased_ids(["member=nobody-at-all"]), b"3" * 32)
    assert path.read_bytes() == b"3" * 32
    assert path.stat().st_mode & 0o077 == 0
