"""A ledger in a lake, day after day: silver and gold of one replay of all records."""

from collections.abc import Iterator
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
from tests.conftest import PROJECT_ROOT
from tests.documents import examples
from tests.groupledger.conftest import Recorded
from tests.groupledger.raw import RECORDINGS
from tests.groupledger.test_key_state import texts
from tests.groupledger.test_state import rows_of, three_days
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
    """The pipeline of the documentation, over files of a stream; a batch that fails before its end comes again."""
    _, records = recorded(QUICK)
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
    code = pipeline.code.replace('"lake"', f'"{SCHEMA}"').replace('table("raw")', f'parquet("{tmp_path}/raw")')
    code = code.replace('"progress"', f'"{tmp_path}/progress"')
    lake.conf.set("spark.sql.streaming.schemaInference", "true")
    with pytest.raises(StreamingQueryException, match="planted"):
        exec(compile(code, "a document", "exec"), {"spark": lake, "groupledger": groupledger})
    exec(compile(code, "a document", "exec"), {"spark": lake, "groupledger": groupledger})
    assert_whole(groupledger.Ledger(lake, SCHEMA), lake.createDataFrame(records))


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
    for name, frame in groupledger.replay_groups(lake.createDataFrame(records)).tables.items():
        assert texts(rows_of(ledger.read(name)), name) == texts(rows_of(frame), name), name
