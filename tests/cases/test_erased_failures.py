"""What could not be replayed may name clients: an erasure reaches it."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from coordinator_core.history import groups as history
from jobs.operations.erase import KEY_BYTES, erase, erased_ids
from jobs.silver.replay_failures import TEXT_MAX, fault_text
from schemas.tables.state import CHECKPOINTS, Checkpoint
from tests.cases.harness import FIRST_NIGHT, Ledger
from tests.cases.small_logs import NOON_MS, SmallLog
from tests.cases.test_not_replayed import first_log
from tests.jobs.in_process import in_process
from tests.jobs.operations.test_erase import all_bytes

CLIENT = "client-of-somebody"


def test_an_erasure_reaches_what_could_not_be_replayed(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An exception names what it met, such as a client id: no byte of it is left, and all else of the row is."""

    def failing(_: Any, step: Any) -> Any:
        raise KeyError(CLIENT)

    with monkeypatch.context() as patch:
        patch.setattr(history.GroupHistory, "apply", failing)
        ledger.night(first_log().write(tmp_path / "logs"))
    before = ledger.checkpoints(Checkpoint.FAILURE)
    assert before and all(CLIENT in row["error"] for row in before)
    at = datetime(2026, 2, 1, tzinfo=UTC)
    erase(in_process(), ledger.warehouse, ids=erased_ids([f"client-id={CLIENT}"]), new_key=b"k" * KEY_BYTES, at=at)
    after = ledger.checkpoints(Checkpoint.FAILURE)
    assert [row | {"error": None} for row in after] == [row | {"error": None} for row in before]
    assert all("KeyError" in row["error"] and ".py:" in row["error"] for row in after)
    assert [path for path, data in all_bytes(Path(ledger.root)) if CLIENT.encode() in data] == []
    (column,) = (it for it in CHECKPOINTS.columns if it.name == "error")
    assert column.is_personal


def test_no_part_of_an_id_is_kept_of_a_long_text() -> None:
    """An erasure could not find it."""
    for cut in range(len(CLIENT)):
        error = ValueError("x" * (TEXT_MAX - cut - 1) + " " + CLIENT)
        assert fault_text(error).rstrip() == "ValueError: " + "x" * (TEXT_MAX - cut - 1)
    assert fault_text(ValueError("y" * (TEXT_MAX + 1))) == "ValueError: "


@pytest.mark.parametrize("is_erased", [True, False])
def test_who_is_who_is_not_certain_behind_an_erasure(ledger: Ledger, tmp_path: Path, is_erased: bool) -> None:
    """The erased id is in use, and comes back in later records: that a member of that id joined is no proof."""
    log = SmallLog()
    log.generation("g", 1, {"alice-laptop": (0,), "bobby-laptop": (1,), "carol-laptop": (2,)}, NOON_MS)
    ledger.night(log.write(tmp_path / "logs"))
    if is_erased:
        at = FIRST_NIGHT + timedelta(days=1, hours=1)
        erase(in_process(), ledger.warehouse, ids=erased_ids(["member=alice-laptop"]), new_key=b"k" * KEY_BYTES, at=at)
    log.generation("g", 2, {"alice-laptop": (0, 2), "bobby-laptop": (1,)}, NOON_MS + 1_000)
    log.generation("g", 3, {"alice-laptop": (0, 1, 2)}, NOON_MS + 2_000)
    ledger.night(log.write(tmp_path / "logs"), number=2)
    rows = sorted(ledger.rows("gold.rebalances"), key=lambda row: int(row["to_generation"]))
    expected = ["LIKELY" if is_erased else "CERTAIN", "CERTAIN"]
    assert [row["confidence"] for row in rows[1:]] == expected
