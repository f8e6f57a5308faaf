"""Erasure: not a byte of the id is left in the warehouse, all else is as it was, and replay goes on."""

import re
import shutil
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coordinator_core.bytes.log.batch import verify_crc
from coordinator_core.bytes.log.compression import decompress
from coordinator_core.bytes.log.redact import HEADER_BYTES, pseudonym
from jobs.delta.cluster_tables import ClusterTables
from jobs.delta.replay_runs import Start
from jobs.delta.warehouse import Warehouse
from jobs.errors import SettingsError, WarehouseError
from jobs.laboratory.simulate import read_scenario
from jobs.operations.erase import erase, erased_ids, redact_rows
from jobs.operations.nightly import run_audit, run_replay
from jobs.report.run import make_report
from jobs.report.sql_text import Scope
from jobs.spark.executors import Executor
from schemas.tables import TABLES
from schemas.tables.bronze import QUARANTINE, RECORD_BATCHES
from schemas.tables.silver import GROUP_MEMBERS
from schemas.tables.state import RUN_STARTS
from tests.cases.harness import CLUSTER_ID, Ledger
from tests.cases.simulated import simulate_into
from tests.conftest import PROJECT_ROOT
from tests.jobs.in_process import in_process
from tests.jobs.silver.test_incremental_replay import FULL_A, Nights
from tests.jobs.silver.test_replay import CLUSTER, STARTED_AT
from tests.jobs.slices import slices_of
from tests.jobs.table_rows import rows

pytestmark = pytest.mark.nights

CLIENT: Final = "connector-consumer-snk-1"
HOST: Final = "127.0.0.1"
MEMBER: Final = "t02-classic-streams-i1-StreamThread-1-consumer-89a08bf2-f837-4d88-95d7-1272c062b244"
ASKED: Final = (f"client-id={CLIENT}", f"host={HOST}", f"member={MEMBER}")
NEEDLES: Final = tuple(text.encode() for text in (CLIENT, f"/{HOST}", MEMBER, HOST))
KEY: Final = b"key!" * 8
AT: Final = datetime(2026, 2, 1, tzinfo=UTC)

EVERYTHING: Final = PROJECT_ROOT / "tests" / "live" / "scenarios" / "everything.toml"
"""A scenario with groups of all kinds."""

LONG: Final = 30
"""An id of fewer bytes has, in base64, the beginning of names that stay, as of its group."""

Erased = tuple[Nights, list[Path], dict[str, list[str]]]
"""The jobs, what there was to capture by night, and the rows of all tables before the erasure."""


@pytest.fixture(scope="module")
def erased_once(no_spark: Executor, tmp_path_factory: pytest.TempPathFactory) -> Erased:
    """Two nights of three, then the erasure; and what the tables contained before."""
    folder = tmp_path_factory.mktemp("erased")
    parts = slices_of(FULL_A, folder / "parts", lambda name: [0.5, 0.8])
    jobs = Nights(no_spark, folder / "warehouse", parts[0])
    for night in range(2):
        jobs.run(parts[night], f"night-{night}")
    before = {name: jobs.rows(name) for name, table in TABLES.items() if jobs.warehouse.exists(table)}
    assert all(any(needle.decode() in row for row in before["silver.group_members"]) for needle in NEEDLES)
    counts = erase(jobs.executor, jobs.warehouse, ids=erased_ids(ASKED), new_key=KEY, at=AT)
    assert counts["silver.group_members"] > 0 and counts["bronze.record_batches"] > 0
    return jobs, parts, before


@pytest.fixture
def erased(erased_once: Erased, no_spark: Executor, tmp_path: Path) -> Erased:
    """The same, in a warehouse of the test's own."""
    jobs, parts, before = erased_once
    shutil.copytree(jobs.warehouse.root, tmp_path / "erased")
    return Nights(no_spark, tmp_path / "erased", parts[1]), parts, before


def all_bytes(root: Path) -> Iterator[tuple[Path, bytes]]:
    """What is in a folder's files: as they are, and the pages of Parquet and the records of batches unpacked."""
    for path in sorted(root.rglob("*")):
        if not path.is_file():
            continue
        yield path, path.read_bytes()
        if path.suffix == ".parquet":
            table = pq.read_table(path)
            for column in table.columns:
                for chunk in column.chunks:
                    for buffer in chunk.buffers():
                        if buffer is not None:
                            yield path, buffer.to_pybytes()
            for batch in table["batch"].to_pylist() if "batch" in table.column_names else ():
                yield path, decompress(batch[22] & 7, batch[HEADER_BYTES:])


def test_nothing_is_left(erased: Erased) -> None:
    """In 0 bytes of the warehouse: data, statistics, Delta's log and its checkpoints; and the search can find."""
    jobs, parts, _ = erased
    root = Path(jobs.warehouse.root)
    found = [(path, needle) for path, data in all_bytes(root) for needle in NEEDLES if needle in data]
    assert found == []
    assert any(needle in data for _, data in all_bytes(parts[0]) for needle in NEEDLES)
    pseudonyms = [pseudonym(needle, KEY) for needle in NEEDLES]
    assert all(any(made in data for _, data in all_bytes(root)) for made in pseudonyms)


def forms_of(text: str) -> set[bytes]:
    """How a file may have an id: as it is, in UTF-16, in base64 at each of its three places."""
    data = text.encode()
    encoded = (b64encode(bytes(before) + data)[cut:] for before, cut in ((0, 0), (1, 2), (2, 3)))
    inner = {it[: (len(data) * 8 - 10) // 6] for it in encoded}
    return {data, text.encode("utf-16-le"), *(inner if len(data) > LONG else ())}


def test_nothing_is_left_of_anybody(tmp_path: Path) -> None:
    """All clients, hosts and members of all kinds of groups at once: no file of the warehouse, nor the report that is
    made then, has an id in any of its forms, before and after all is made again from bronze."""
    simulate_into(tmp_path / "logs", read_scenario(str(EVERYTHING)))
    ledger = Ledger(tmp_path / "warehouse")
    ledger.night(tmp_path / "logs")
    members = ledger.rows("silver.group_members")
    kinds = {"client-id": "client_id", "host": "client_host", "member": "member_id"}
    asked = {f"{kind}={row[column]}" for row in members for kind, column in kinds.items()}
    asked |= {f"member={row['instance_id']}" for row in members if row["instance_id"]}
    texts = [it.partition("=")[2] for it in asked]
    needles = sorted(set[bytes]().union(*map(forms_of, texts)), key=len, reverse=True)
    pattern = re.compile(b"|".join(map(re.escape, needles)))
    root = Path(ledger.root)
    assert len(texts) > 60 and any(pattern.search(data) for _, data in all_bytes(root))
    erase(in_process(), ledger.warehouse, ids=erased_ids(asked), new_key=KEY, at=AT)
    for is_made_again in (False, True):
        if is_made_again:
            ledger.run(partial(run_replay, rebuild=True), number=2)
            ledger.run(partial(run_audit, rebuild=True), number=3)
        page, _ = make_report(ledger.warehouse, Scope(CLUSTER_ID), made_at=AT)
        assert pattern.search(page.encode()) is None
        assert [path for path, data in all_bytes(root) if pattern.search(data)] == []


def test_all_else_is_as_it_was(erased: Erased) -> None:
    """Every row is there, with the pseudonym in place of the id: in silver, gold and bronze's rows about the log."""
    jobs, _, before = erased
    for name, lines in before.items():
        if name.startswith(("silver.", "gold.")):
            expected = []
            for line in lines:
                for needle in NEEDLES:
                    line = line.replace(needle.decode(), pseudonym(needle, KEY).decode())  # noqa: PLW2901
                expected.append(line)
            assert jobs.rows(name) == sorted(expected), name
    batches = jobs.warehouse.read(RECORD_BATCHES, ["batch", "redacted_at"]).to_pylist()
    for row in batches:
        verify_crc(row["batch"])
    redacted = [row for row in batches if row["redacted_at"] is not None]
    assert 0 < len(redacted) < len(batches)
    assert {row["redacted_at"] for row in redacted} == {AT}


def test_replay_goes_on_and_from_the_beginning(erased: Erased) -> None:
    """From the state that was redacted, and again from the batches: the same silver."""
    jobs, parts, _ = erased
    assert jobs.replay("nothing new", rebuild=False) in {0, 3}
    before = jobs.silver()
    jobs.replay("rebuilt", rebuild=True)
    assert jobs.silver() == before
    jobs.run(parts[2], "night-2")
    on = jobs.silver()
    jobs.replay("rebuilt again", rebuild=True)
    assert jobs.silver() == on


def test_wrong_words_are_refused() -> None:
    """A kind that is none, no id, one too short: before anything is touched."""
    for words in ("clientid=abcdef", "client-id", "client-id=", "member=abc", "=abcdef"):
        with pytest.raises(SettingsError):
            erased_ids([words])
    assert erased_ids(["host=10.0.0.1", "host=/10.0.0.2", "member=m-1-2"]) == [
        "/10.0.0.1",
        "10.0.0.1",
        "/10.0.0.2",
        "10.0.0.2",
        "m-1-2",
    ]


def test_not_after_a_replay_that_broke_off(warehouse: Warehouse, no_spark: Executor) -> None:
    """What it is repeated with must stay as it is until it is."""
    start = Start(1, "r", STARTED_AT, 0, -1, -1, False)
    ClusterTables(warehouse, CLUSTER).write(RUN_STARTS, [asdict(start)], app_id="a", version=1)
    with pytest.raises(WarehouseError, match="was interrupted"):
        erase(no_spark, warehouse, ids=[CLIENT], new_key=KEY, at=AT)


def test_values_of_every_type(warehouse: Warehouse) -> None:
    """Bytes, texts, lists and maps; rows without the id are not counted."""
    from coordinator_core.bytes.log.redact import Redaction  # noqa: PLC0415

    redaction = Redaction.of([CLIENT], KEY)
    for table, values in (
        (QUARANTINE, {"bytes": b"\x00" + CLIENT.encode(), "message": f"of {CLIENT}"}),
        (GROUP_MEMBERS, {"client_id": CLIENT, "subscribed_topics": ["t", CLIENT]}),
        (TABLES["silver.group_events"], {"details": [("client", CLIENT), ("other", None)]}),
    ):
        given = rows(table, values, {"cluster_id": "c"})
        stored = given.drop_columns(list(table.partition_by))
        made, count = redact_rows(stored.replace_schema_metadata(None), table, redaction, AT)
        assert count == 1
        assert CLIENT not in repr(made.to_pylist()) and CLIENT.encode() not in repr(made.to_pylist()).encode()
        assert isinstance(made, pa.Table)
