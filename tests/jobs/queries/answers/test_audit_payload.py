"""`audit --payload`: one row an offset that was given up, with what the source and dead-letter topics hold of it."""

import io
import json
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from coordinator_core.bytes.log.batch import Record, build_batch
from jobs.bronze.identity import CLUSTER, Identity, keep_identities
from jobs.delta.arrow_schemas import arrow_schema
from jobs.delta.cluster_tables import ClusterTables
from jobs.delta.warehouse import Warehouse
from jobs.errors import SourceError
from jobs.queries.answers.audit_payload import run_payload
from jobs.queries.answers.audit_report import Span
from jobs.settings import BrokerAddress
from jobs.sources.broker import Broker
from schemas.tables.declare import Table
from schemas.tables.gold import ARCHIVED_RECORDS
from schemas.tables.silver import CONFIGS
from tests.jobs.fake_kafka import FakeKafka

AT = datetime(2026, 1, 2, tzinfo=UTC)
AT_MS = round(AT.timestamp() * 1000)
HOSTILE = '=cmd|"${env:HOME}"\x1b[2J'


def write(warehouse: Warehouse, table: Table, rows: list[dict[str, object]]) -> None:
    """One commit to a table; columns which are not given are null."""
    schema = arrow_schema(table)
    whole = [{name: row.get(name) for name in table.column_names} for row in rows]
    warehouse.ensure(table)
    warehouse.write(table, pa.Table.from_pylist(whole, schema=schema), app_id="test", version=1)


def archived(group_id: str, topic: str | None, first_offset: int, last_offset: int) -> dict[str, object]:
    """A row of gold.archived_records."""
    return {
        "cluster_id": "kafka",
        "group_id": group_id,
        "topic": topic,
        "partition": 0,
        "first_offset": first_offset,
        "last_offset": last_offset,
        "at": AT,
        "cause": "LIMIT_OR_REJECT",
    }


@pytest.fixture
def source(tmp_path: Path) -> str:
    """orders-0 with offsets 5 and 6, and dlq.orders-0 with the copy of 6."""
    origin = {"topic": "orders", "partition": "0", "offset": "6", "group": "workers"}
    headers = tuple((f"__dlq.errors.{name}", value.encode()) for name, value in origin.items())
    records = {
        "orders": [Record(5, AT_MS, HOSTILE.encode(), b"\xff", ()), Record(6, 2**62, None, None, ())],
        "dlq.orders": [Record(0, AT_MS, None, None, headers)],
    }
    for topic, of_topic in records.items():
        place = tmp_path / "logs" / f"{topic}-0"
        place.mkdir(parents=True)
        (place / f"{of_topic[0].offset:020}.log").write_bytes(build_batch(of_topic))
    return str(tmp_path / "logs")


def listed(warehouse: Warehouse, source: str, *, with_values: bool = False) -> list[dict[str, object]]:
    """The rows after the statement of completeness."""
    out = io.StringIO()
    run_payload(
        ClusterTables(warehouse, "kafka"),
        span=Span(),
        group_ids=None,
        sources=[source],
        with_values=with_values,
        output_format="json",
        out=out,
    )
    statement, *rows = map(json.loads, out.getvalue().splitlines())
    assert statement["is_complete"] is False
    return rows


DEAD_LETTER_CONFIG: dict[str, object] = {
    "cluster_id": "kafka",
    "resource_type": "GROUP",
    "resource_name": "workers",
    "name": "errors.deadletterqueue.topic.name",
    "value": "dlq.orders",
}


def test_each_offset_has_its_record_and_its_copy(warehouse: Warehouse, source: str) -> None:
    """What is there is shown, times that no calendar has are not, and a topic without a name has no log."""
    write(warehouse, ARCHIVED_RECORDS, [archived("workers", "orders", 5, 6), archived("workers", None, 9, 9)])
    write(warehouse, CONFIGS, [DEAD_LETTER_CONFIG])
    names = ("topic", "offset", "presence", "timestamp", "key", "value_size", "dead_letter", "dead_letter_place")
    assert [tuple(row[name] for name in names) for row in listed(warehouse, source)] == [
        (None, 9, "NO_LOG", None, None, None, "NOT_YET", None),
        ("orders", 5, "RECORD", "2026-01-02T00:00:00.000Z", HOSTILE, 1, "NOT_YET", None),
        ("orders", 6, "RECORD", None, None, None, "FOUND", "dlq.orders-0:0"),
    ]


def test_values_come_on_demand_and_bytes_stay_readable(warehouse: Warehouse, source: str) -> None:
    """What is no text is escaped; nothing is said of copies where there is no dead-letter topic."""
    write(warehouse, ARCHIVED_RECORDS, [archived("workers", "orders", 5, 5)])
    (row,) = listed(warehouse, source, with_values=True)
    assert (row["value"], row["dead_letter"]) == ("\\xff", None)
    (row,) = listed(warehouse, source)
    assert "value" not in row


def test_records_of_another_cluster_are_not_shown(warehouse: Warehouse, source: str) -> None:
    """Its topics may have the same names: a folder and a live cluster with another id are refused."""
    write(warehouse, ARCHIVED_RECORDS, [archived("workers", "orders", 5, 6)])
    keep_identities(ClusterTables(warehouse, "kafka"), [Identity(CLUSTER, "", "mine", "kafka")], AT)
    properties = Path(source) / "meta.properties"
    properties.write_text("version=1\ncluster.id=mine\n")
    assert listed(warehouse, source)
    properties.write_text("version=1\ncluster.id=standby\n")
    with pytest.raises(SourceError, match=f"{source} is of another Kafka cluster"):
        listed(warehouse, source)
    with FakeKafka() as kafka, pytest.raises(SourceError, match="its cluster id is fake"):
        run_payload(
            ClusterTables(warehouse, "kafka"),
            span=Span(),
            group_ids=None,
            sources=[],
            cluster=BrokerAddress(kafka.address),
            output_format="json",
        )


def test_a_live_cluster_is_connected_once(warehouse: Warehouse, source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its id, the records and their copies are asked for over the same connection."""
    write(warehouse, ARCHIVED_RECORDS, [archived("workers", "orders", 5, 6)])
    write(warehouse, CONFIGS, [DEAD_LETTER_CONFIG])
    connect, addresses = Broker.connect, []

    def counted(address: BrokerAddress, *, timeout_ms: int) -> Broker:
        addresses.append(address)
        return connect(address, timeout_ms=timeout_ms)

    monkeypatch.setattr(Broker, "connect", counted)
    with FakeKafka() as kafka:
        run_payload(
            ClusterTables(warehouse, "kafka"),
            span=Span(),
            group_ids=None,
            sources=[source],
            cluster=BrokerAddress(kafka.address),
            output_format="json",
            out=io.StringIO(),
        )
        assert addresses == [BrokerAddress(kafka.address)]
