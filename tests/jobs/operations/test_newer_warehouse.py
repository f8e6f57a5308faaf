"""A warehouse which a newer version of the project wrote is refused by every job that writes, untouched."""

import json
from pathlib import Path
from typing import Any

import pytest

from coordinator_core.history.checkpoint import STATE_FORMAT
from jobs.cli import session
from jobs.cli.app import main
from jobs.console.progress import Steps
from jobs.delta.silver_format import SILVER_FORMAT
from jobs.delta.warehouse import Warehouse
from jobs.errors import WarehouseError
from jobs.exit_codes import FAILED
from jobs.gold.snapshot import AUDIT_FORMAT
from jobs.operations.newer_warehouse import require_not_newer
from jobs.settings import Settings
from schemas.tables.declare import Table
from schemas.tables.state import RUN_STARTS, RUNS
from tests.jobs.in_process import in_process
from tests.jobs.table_rows import rows
from tests.recorded import RECORDINGS

LOGS = RECORDINGS / "codec-gzip" / "logs"


def of_run(number: int, newer: int) -> list[tuple[Table, dict[str, Any]]]:
    """What a run leaves of its formats, each in its table, so much above ours."""
    replay = {"cluster_id": "c", "replay_version": number}
    settings = json.dumps({"format": AUDIT_FORMAT + newer})
    return [
        (RUNS, replay | {"silver_format": SILVER_FORMAT + newer}),
        (RUN_STARTS, replay | {"silver_format": SILVER_FORMAT + newer, "state_format": STATE_FORMAT}),
        (RUN_STARTS, replay | {"silver_format": SILVER_FORMAT, "state_format": STATE_FORMAT + newer}),
        (RUNS, {"cluster_id": "c", "audit_version": number, "settings": settings}),
    ]


@pytest.mark.parametrize("index", range(4))
def test_each_format_that_is_newer_is_refused(warehouse: Warehouse, index: int) -> None:
    """Of silver, of the state of a run that may not have ended, of gold; the newest run alone counts."""
    for number, newer in ((1, 1), (2, 0), (3, -1)):
        table, row = of_run(number, newer)[index]
        warehouse.write(table, rows(table, row), app_id="a", version=number)
    require_not_newer(warehouse)
    table, row = of_run(4, 1)[index]
    warehouse.write(table, rows(table, row), app_id="a", version=4)
    with pytest.raises(WarehouseError, match=rf"made by a newer version of the project \({table.full_name}: format"):
        require_not_newer(warehouse)


@pytest.mark.parametrize("job", ["nightly", "capture", "replay", "audit", "maintain"])
def test_every_job_that_writes_leaves_it_as_it_is(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], job: str
) -> None:
    """One line, exit code 1, and no byte is another."""

    def open_session(_: str, settings: Settings, **__: Any) -> tuple[Any, Warehouse, Steps]:
        made = in_process()
        return made, Warehouse(settings.warehouse), Steps(made)

    monkeypatch.setattr(session, "open_session", open_session)
    warehouse.write(RUNS, rows(RUNS, of_run(1, 1)[0][1]), app_id="a", version=1)
    before = {path: path.read_bytes() for path in Path(warehouse.root).rglob("*") if path.is_file()}
    sources = ["--segments", str(LOGS), "--cluster-id", "another"] if job in ("nightly", "capture") else []
    assert main([job, *sources, "--warehouse", warehouse.root]) == FAILED
    said = capsys.readouterr().err
    assert said.startswith("error: ") and said.count("\n") == 1 and "newer version" in said
    assert {path: path.read_bytes() for path in Path(warehouse.root).rglob("*") if path.is_file()} == before
