"""A ledger in a lake, day after day: silver and gold of one replay of all records."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import groupledger
from schemas.consumer_offsets import TOPIC as GROUPS
from schemas.tables import TABLES
from tests.cases.small_logs import NOON_MS, SmallLog
from tests.conftest import PROJECT_ROOT
from tests.documents import examples
from tests.groupledger.conftest import Recorded
from tests.groupledger.days import rows_of, texts
from tests.groupledger.raw import RECORDINGS
from tests.groupledger.test_state import three_days
from tests.lengths import takes_minutes

QUICK = "codec-gzip"
SCHEMA = "ledger_of_a_test"

pytestmark = pytest.mark.filterwarnings("ignore:.*had earlier records")


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Iterator[SparkSession]:
    """A session with an empty schema."""
    spark.sql(f"create schema {SCHEMA} location '{tmp_path}/lake'")
    yield spark
    spark.sql(f"drop schema {SCHEMA} cascade")


def expected(records: DataFrame) -> dict[str, list[DataFrame]]:
    """By table of silver and gold, the rows of one replay."""
    names = groupledger.replay_groups(records).topics
    groups = groupledger.replay_groups(records, topics=names)
    shares = groupledger.replay_share_partitions(records, topics=names)
    of_groups = groupledger.audit_groups(groups, topics=names)
    of_shares = groupledger.audit_share_partitions(shares, groups=groups, topics=names)
    found: dict[str, list[DataFrame]] = {}
    for made in (groups, shares, of_groups, of_shares):
        for name, frame in made.tables.items():
            found.setdefault(name, []).append(frame)
    return found


def assert_whole(ledger: groupledger.Ledger, records: DataFrame) -> None:
    """Has the ledger the rows of one replay?"""
    for name, frames in expected(records).items():
        rows = [row for frame in frames for row in rows_of(frame)]
        made = ledger.read(name)
        assert tuple(made.columns) == TABLES[name].column_names
        assert texts(rows_of(made), name) == texts(rows, name), name


@takes_minutes
@pytest.mark.parametrize("recording", RECORDINGS)
def test_days_are_one_replay(lake: SparkSession, recorded: Recorded, recording: str) -> None:
    """Three days, the second one twice: every table of silver and gold is that of one replay."""
    _, records = recorded(recording)
    first, second, third = three_days(records, Random(recording))
    ledger = groupledger.Ledger(lake, SCHEMA)
    for day in (first, second, second, third):
        ledger.add(lake.createDataFrame(day))
    assert_whole(ledger, lake.createDataFrame(records))


@takes_minutes
def test_a_stream_and_a_batch_that_failed(
    lake: SparkSession, recorded: Recorded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pipeline of the documentation, file by file of a stream; a batch that fails before its end comes again."""
    _, records = recorded(QUICK)
    records = records.filter(pc.equal(records["partition"], 1))
    for number, day in enumerate(three_days(records, Random(1))):
        (tmp_path / "raw").mkdir(exist_ok=True)
        pq.write_table(day, tmp_path / "raw" / f"{number}.parquet")
    judge = groupledger.Ledger._judge
    failing = iter([False, True])

    def fails(*given: Any) -> None:
        if next(failing, False):
            raise ValueError("planted")
        judge(*given)

    monkeypatch.setattr(groupledger.Ledger, "_judge", fails)
    (pipeline,) = [it for it in examples((PROJECT_ROOT / "docs" / "spark.md").read_text()) if "foreachBatch" in it.code]
    files = f'option("maxFilesPerTrigger", 1).parquet("{tmp_path}/raw")'
    code = pipeline.code.replace('"lake"', f'"{SCHEMA}"').replace('table("raw")', files)
    code = code.replace('"progress"', f'"{tmp_path}/progress"')
    lake.conf.set("spark.sql.streaming.schemaInference", "true")
    with pytest.raises(StreamingQueryException, match="planted"):
        exec(compile(code, "a document", "exec"), {"spark": lake, "groupledger": groupledger})
    exec(compile(code, "a document", "exec"), {"spark": lake, "groupledger": groupledger})
    assert_whole(groupledger.Ledger(lake, SCHEMA), lake.createDataFrame(records))


@takes_minutes
def test_records_behind_later_ones_and_the_end_of_a_log(lake: SparkSession) -> None:
    """A transaction of a group without new records hangs by the end of the log; a late record has a row, and one that
    comes again has none; and the tables are read as they were."""
    log = SmallLog()
    log.commit("g", 0, 10, NOON_MS, producer_id=7)
    log.commit("h", 0, 1, NOON_MS + 60_000)
    log.commit("h", 0, 2, NOON_MS + 16 * 60_000)
    rows = [(GROUPS, 0, offset, bytearray(batch)) for offset, batch in enumerate(log.batches)]
    ledger = groupledger.Ledger(lake, SCHEMA)
    times = [datetime.now(UTC)]
    for day in (rows[:1], rows[2:], rows):
        ledger.add(lake.createDataFrame(day, "topic string, partition int, base_offset bigint, batch binary"))
        times.append(datetime.now(UTC))

    def hanging(at: datetime | None = None) -> list[str]:
        return [row.group_id for row in ledger.read("gold.hanging_transactions", at=at).collect()]

    assert [hanging(at) for at in (*times, None)] == [[], [], ["g"], ["g"], ["g"]]
    errors = ledger.read("bronze.quarantine").select("code", "group_id", "offset").collect()
    assert sorted((row.code, row.group_id, row.offset) for row in errors) == [("GAP", None, 1), ("LATE", "h", 1)]
    commits = ledger.read("silver.offset_commits").orderBy("log_offset").collect()
    assert [(row.log_offset, row.group_id) for row in commits] == [(0, "g"), (2, "h")]


def test_a_ledger_is_asked(lake: SparkSession) -> None:
    """A table that is none, and a time that is none, are one error each; before the first records a table is empty."""
    ledger = groupledger.Ledger(lake, SCHEMA)
    assert ledger.read("silver.group_events").count() == 0
    with pytest.raises(groupledger.RecordsError, match=r"no table 'silver\.nothing' of silver or gold"):
        ledger.read("silver.nothing")
    day: Any = "2026-11-21"
    with pytest.raises(groupledger.RecordsError, match="at is a str"):
        ledger.read("silver.group_events", at=day)


@takes_minutes
def test_a_batch_that_failed_is_added_once(
    lake: SparkSession, recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch fails after its rows of silver are written, and comes again: each row is there once."""
    _, records = recorded(QUICK)
    records = records.filter(pc.and_(pc.equal(records["partition"], 1), pc.equal(records["topic"], GROUPS)))
    half = records["offset"][len(records) // 2].as_py()
    ledger = groupledger.Ledger(lake, SCHEMA)
    monkeypatch.setattr(groupledger.Ledger, "_judge", lambda *_: None)
    ledger.add(lake.createDataFrame(records.filter(pc.less(records["offset"], half))))
    rest = lake.createDataFrame(records.filter(pc.greater(records["offset"], half - 20)))
    with monkeypatch.context() as patch:
        patch.delattr(groupledger.Ledger, "_judge")
        with pytest.raises(AttributeError, match="_judge"):
            ledger.add(rest)
    ledger.add(rest)
    whole = lake.createDataFrame(records)
    topics = groupledger.replay_groups(whole).topics
    for name, frame in groupledger.replay_groups(whole, topics=topics).tables.items():
        assert texts(rows_of(ledger.read(name)), name) == texts(rows_of(frame), name), name
