"""Replay of DataFrames by key in Spark: the tables of nightly."""

import re
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import groupledger
from coordinator_core.bytes import codec
from groupledger.replay import GroupReplay, ShareReplay
from jobs.sources.kafka_log import KafkaLogDataSource
from schemas.consumer_offsets import TOPIC as OFFSETS_TOPIC
from schemas.consumer_offsets import RecordType
from schemas.registry import REGISTRY
from tests.cases.harness import Ledger
from tests.groupledger.compare import assert_same, stored
from tests.groupledger.conftest import Recorded
from tests.groupledger.raw import RECORDINGS, as_spark_gives
from tests.groupledger.raw import recording as logs_of
from tests.groupledger.whole_logs import whole_logs
from tests.lengths import takes_minutes

QUICK = "codec-gzip"
"""A small recording that has groups of all types; `make test-live` takes all recordings."""
REPLAYS = (groupledger.replay_groups, groupledger.replay_share_partitions)


def epochs(*numbers: int) -> list[tuple[bytes, bytes]]:
    """Keys and values of records that give a consumer group an epoch each."""
    kind = RecordType.CONSUMER_GROUP_METADATA
    of_key, of_value = REGISTRY[OFFSETS_TOPIC][kind]
    key = codec.encode_key(OFFSETS_TOPIC, kind, codec.make(of_key, group_id="g"))
    values = (codec.encode_value(OFFSETS_TOPIC, kind, 0, codec.make(of_value, epoch=number)) for number in numbers)
    return [(key, value) for value in values]


def replayed(spark: SparkSession, ledger: Ledger, records: pa.Table) -> tuple[GroupReplay, ShareReplay]:
    """Both replays of raw records, under the names that nightly knows."""
    frame, topics = spark.createDataFrame(records), stored(spark, ledger, "silver.topics")
    state, cluster_id = whole_logs(frame, ledger.cluster_id), ledger.cluster_id
    groups = groupledger.replay_groups(frame, cluster_id=cluster_id, topics=topics, state=state)
    return groups, groupledger.replay_share_partitions(frame, cluster_id=cluster_id, topics=topics, state=state)


@pytest.mark.parametrize(
    "recording", [QUICK, *(pytest.param(name, marks=takes_minutes) for name in RECORDINGS if name != QUICK)]
)
def test_raw_records_give_the_tables_of_nightly(spark: SparkSession, recorded: Recorded, recording: str) -> None:
    """Raw records with markers, in random order, give every table of silver as nightly wrote it."""
    ledger, records = recorded(recording)
    order = list(range(len(records)))
    Random(recording).shuffle(order)
    groups, shares = replayed(spark, ledger, records.take(order))
    for name, made in {**groups.tables, **shares.tables}.items():
        assert_same(made, ledger, name)


@pytest.mark.parametrize(
    "recording", [QUICK, *(pytest.param(name, marks=takes_minutes) for name in RECORDINGS if name != QUICK)]
)
def test_record_batches_give_the_tables_of_nightly(spark: SparkSession, recorded: Recorded, recording: str) -> None:
    """Record batches, as bronze has them and kafka_log gives them, tell what raw records with markers do."""
    ledger, _ = recorded(recording)
    batches = stored(spark, ledger, "bronze.record_batches")
    topics, state = stored(spark, ledger, "silver.topics"), whole_logs(batches)
    groups = groupledger.replay_groups(batches, topics=topics, state=state)
    shares = groupledger.replay_share_partitions(batches, topics=topics, state=state)
    for name in ("silver.offset_commits", "silver.group_events"):
        assert_same(groups.tables[name], ledger, name)
    assert_same(shares.transitions, ledger, "silver.share_batch_transitions")


@pytest.mark.parametrize(
    "recording", [QUICK, *(pytest.param(name, marks=takes_minutes) for name in RECORDINGS if name != QUICK)]
)
def test_bare_records_are_a_dump(spark: SparkSession, recorded: Recorded, recording: str, tmp_path: Path) -> None:
    """Records as Spark's Kafka source gives them, without markers and batches, are what nightly makes of a dump."""
    _, records = recorded(recording)
    bare = as_spark_gives(records)
    pq.write_table(bare, tmp_path / "dump.parquet")
    ledger = Ledger(tmp_path / "warehouse")
    ledger.night(dumps=(str(tmp_path / "dump.parquet"),), dump_format="parquet")
    groups, shares = replayed(spark, ledger, bare)
    for name, made in {**groups.tables, **shares.tables}.items():
        if recording != QUICK or name in ("silver.offset_commits", "silver.group_generations"):
            assert_same(made, ledger, name)


PLANS = [(7, True), (1, False), (1, True), (2, False), (2, True), (7, False), (200, False), (200, True)]


@pytest.mark.parametrize(
    ("partitions", "is_adaptive"), [PLANS[0], *(pytest.param(*plan, marks=takes_minutes) for plan in PLANS[1:])]
)
def test_no_plan_changes_the_rows(spark: SparkSession, recorded: Recorded, partitions: int, is_adaptive: bool) -> None:
    """However many shuffle partitions there are, and whether Spark plans adaptively, the rows are the same."""
    ledger, records = recorded(QUICK)
    session = spark.newSession()
    session.conf.set("spark.sql.shuffle.partitions", partitions)
    session.conf.set("spark.sql.adaptive.enabled", is_adaptive)
    session.conf.set("spark.sql.session.timeZone", "Asia/Kolkata")
    session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", 13)
    groups, shares = replayed(session, ledger, records)
    for replay, name in ((groups, "silver.member_assignments"), (shares, "silver.share_partition_states")):
        assert_same(replay.tables[name], ledger, name)
    assert_same(groups.commits, ledger, "silver.offset_commits")


def test_pandas_gives_the_same(spark: SparkSession, recorded: Recorded) -> None:
    """Who asks for applyInPandas gets the rows of applyInArrow."""
    ledger, records = recorded(QUICK)
    topics = stored(spark, ledger, "silver.topics")
    groups = groupledger.replay_groups(
        spark.createDataFrame(records), cluster_id=ledger.cluster_id, topics=topics, as_pandas=True
    )
    assert "FlatMapGroupsInPandas" in plan_of(groups.commits)
    assert_same(groups.commits, ledger, "silver.offset_commits")
    assert_same(groups.events, ledger, "silver.group_events")


def test_pandas_has_exact_numbers(spark: SparkSession) -> None:
    """Producers and operations from 2**53 on are not mixed up in pandas, though some records have none."""
    key = bytes.fromhex("000100016700017400000000")
    value = bytes.fromhex("00030000000000000005ffffffff00000000018bcfe56800")
    numbers = (2**53, 2**53 + 1, None)
    rows = [(key, value, 0, 10 * place, 1_000, number, False) for place, number in enumerate(numbers)]
    schema = (
        "key binary, value binary, partition int, offset bigint, timestamp bigint, producer_id bigint, "
        "is_transactional boolean"
    )
    made = groupledger.replay_groups(spark.createDataFrame(rows, schema), as_pandas=True).commits.orderBy("log_offset")
    assert tuple(row.producer_id for row in made.collect()) == numbers
    operations = [
        (*written, 0, place, 1_000, number)
        for place, (written, number) in enumerate(zip(epochs(1, 2, 3), numbers, strict=True))
    ]
    schema = "key binary, value binary, partition int, offset bigint, timestamp bigint, base_offset bigint"
    replay = groupledger.replay_groups(spark.createDataFrame(operations, schema), as_pandas=True)
    found = replay.generations.orderBy("from_log_offset").collect()
    assert [(row.generation, row.from_log_offset) for row in found] == [(1, 0), (2, 1), (3, 2)]


def plan_of(frame: DataFrame) -> str:
    """The physical plan as text."""
    return str(frame._jdf.queryExecution().executedPlan().toString())


def test_records_are_sorted_once(spark: SparkSession, recorded: Recorded) -> None:
    """The plan streams the rows of a key, over one exchange and one sort."""
    _, records = recorded(QUICK)
    bare = spark.createDataFrame(as_spark_gives(records))
    for replay, keys in (
        (groupledger.replay_groups(bare).commits, ("log_partition", "group_id")),
        (groupledger.replay_share_partitions(bare).transitions, ("log_partition", "group_id", "topic_id", "partition")),
    ):
        plan = plan_of(replay)
        assert "MapInArrow" in plan
        order = "".join(rf"{key}#\d+L? ASC NULLS FIRST, " for key in keys)
        assert re.search(rf"Sort \[{order}log_offset#\d+L ASC NULLS FIRST\]", plan)
        assert (plan.count("Sort ["), plan.count("Exchange ")) == (1, 1)


def test_columns_carry_their_comments(spark: SparkSession, recorded: Recorded) -> None:
    """A table saved from a replay describes itself."""
    _, records = recorded(QUICK)
    commits = groupledger.replay_groups(spark.createDataFrame(records)).commits
    assert commits.schema["outcome"].metadata["comment"].startswith("APPLIED; ABORTED;")


def test_commits_of_transactions_without_markers_are_undecided(spark: SparkSession, recorded: Recorded) -> None:
    """Where the records hold no markers, nothing is said of what became of a transaction; all else is as it was."""
    ledger, records = recorded(QUICK)
    data = records.filter(pa.compute.invert(records["is_control"])).drop_columns(["is_control", "control_type"])
    made = groupledger.replay_groups(spark.createDataFrame(data), cluster_id=ledger.cluster_id).commits
    outcomes = {row.log_partition * 10**9 + row.log_offset: row.outcome for row in made.collect()}
    producers = 0
    for row in ledger.rows("silver.offset_commits"):
        is_of_producer = row["producer_id"] >= 0
        producers += is_of_producer
        expected = "UNDECIDED" if is_of_producer else row["outcome"]
        assert outcomes[row["log_partition"] * 10**9 + row["log_offset"]] == expected
    assert producers


def test_names_that_records_tell(spark: SparkSession, recorded: Recorded) -> None:
    """Names of topic ids that records of groups tell are those of nightly's, and name share partitions."""
    ledger, records = recorded(QUICK)
    frame = spark.createDataFrame(records)
    groups = groupledger.replay_groups(frame, cluster_id=ledger.cluster_id)
    names = {row.topic_id: row.topic for row in groups.topics.collect()}
    known = {row["topic_id"]: row["topic"] for row in ledger.rows("silver.topics")}
    assert names
    assert names.items() <= known.items()
    assert len(names) == groups.topics.count()


@pytest.mark.filterwarnings("ignore:.*had earlier records")
def test_what_cannot_be_read_is_a_row(spark: SparkSession) -> None:
    """Null keys, bytes that do not decode, rows without a place, other topics, copies with other content: a row each,
    and the records around them are replayed."""
    groups_topic = "__consumer_offsets"
    good = bytes.fromhex("000100016700017400000000"), bytes.fromhex("00030000000000000005ffffffff00000000018bcfe56800")
    rows = [
        (*good, groups_topic, 0, 1, 1000),
        (None, good[1], groups_topic, 0, 2, 1000),
        (b"\x00", b"", groups_topic, 0, 3, 1000),
        (b"\x00\x01\x7f\xff", b"", groups_topic, 0, 4, 1000),
        (good[0], b"\x00\x63", groups_topic, 0, 5, 1000),
        (*good, groups_topic, None, 6, 1000),
        (*good, groups_topic, 0, None, 1000),
        (*good, groups_topic, 0, -1, 1000),
        (*good, groups_topic, -1, 11, 1000),
        (*good, "orders", 0, 7, 1000),
        (*good, groups_topic, 0, 8, 1000),
        (*good, groups_topic, 0, 8, 1000),
        (*good, groups_topic, 0, 9, 1000),
        (good[0], None, groups_topic, 0, 9, 1000),
        (*good, groups_topic, 0, 10, None),
        (*good, groups_topic, 1 << 32, 12, 1000),
        (*good, groups_topic, 0, 13, 1_700_000_000_000_000_000),
        (*good, groups_topic, 0, 14, -2),
        (*good, groups_topic, 0, 15, -1),
    ]
    schema = "key binary, value binary, topic string, partition bigint, offset bigint, timestamp bigint"
    replay = groupledger.replay_groups(spark.createDataFrame(rows, schema))
    errors = sorted(((row.code, row.partition, row.offset) for row in replay.errors.collect()), key=repr)
    assert errors == [
        ("BAD_ROW", -1, 11),
        ("BAD_ROW", 0, -1),
        ("BAD_ROW", 0, 13),
        ("BAD_ROW", 0, 14),
        ("BAD_ROW", 0, None),
        ("BAD_ROW", None, 12),
        ("BAD_ROW", None, 6),
        ("BUFFER_UNDERFLOW", 0, 2),
        ("BUFFER_UNDERFLOW", 0, 3),
        ("CONFLICTING_COPIES", 0, 9),
        ("LENGTH_OUT_OF_BOUNDS", 0, 4),
        ("OTHER_TOPIC", 0, 7),
        ("UNKNOWN_VALUE_VERSION", 0, 5),
    ]
    [conflict] = replay.errors.where("code = 'CONFLICTING_COPIES'").collect()
    assert "of each key's, the one with the least bytes was replayed" in str(conflict.message)
    commits = sorted((row.log_offset, row.committed_offset) for row in replay.commits.collect())
    assert commits == [(1, 5), (8, 5), (9, None), (10, 5), (13, 5), (14, 5), (15, 5)]
    assert groupledger.replay_share_partitions(spark.createDataFrame(rows, schema)).errors.count() == 1


@pytest.mark.filterwarnings("ignore:.*had earlier records")
def test_clusters_never_mix(spark: SparkSession) -> None:
    """Records of two clusters at one place are two logs; one that names no cluster is of the argument's; a marker acts
    on its own cluster alone."""
    key = bytes.fromhex("000100016700017400000000")
    value = bytes.fromhex("00030000000000000005ffffffff00000000018bcfe56800")
    rows = [(cluster_id, key, value, 0, 1, 1000, 7, False) for cluster_id in (None, "b")] + [
        (None, bytes.fromhex("00000001"), b"", 0, 2, 2000, 7, True)
    ]
    schema = (
        "cluster_id string, key binary, value binary, partition int, offset bigint, timestamp bigint, "
        "producer_id bigint, is_control boolean"
    )
    replay = groupledger.replay_groups(spark.createDataFrame(rows, schema), cluster_id="a")
    found = sorted((row.cluster_id, row.outcome, row.applied_log_offset) for row in replay.commits.collect())
    assert found == [("a", "APPLIED", 2), ("b", "PENDING", None)]
    assert replay.errors.count() == 0


@pytest.mark.filterwarnings("ignore:.*had earlier records")
def test_an_unreadable_batch_is_a_row(spark: SparkSession, recorded: Recorded) -> None:
    """Of record batches, what cannot be read is an error with its place."""
    ledger, _ = recorded(QUICK)
    batches = stored(spark, ledger, "bronze.record_batches").where("topic = '__share_group_state'")
    first = batches.orderBy("partition", "base_offset").limit(1).drop("batch")
    broken = first.selectExpr("*", "unhex('0000') as batch")
    (error,) = groupledger.replay_share_partitions(broken).errors.collect()
    assert (error.code, error.topic, error.cluster_id) == ("TRUNCATED_BATCH", "__share_group_state", ledger.cluster_id)


@pytest.mark.filterwarnings("ignore:.*had earlier records")
def test_batches_without_a_place_are_rows(spark: SparkSession, recorded: Recorded) -> None:
    """Records of a batch of no partition, or of one that no topic has, are rows of errors."""
    ledger, _ = recorded(QUICK)
    batches = stored(spark, ledger, "bronze.record_batches").where("topic = '__consumer_offsets'")
    batches = batches.select("topic", "partition", "base_offset", "batch").orderBy("partition", "base_offset").limit(1)
    for partition in ("cast(null as int)", "1L << 32"):
        lost = batches.withColumn("partition", F.expr(partition))
        replay = groupledger.replay_groups(lost)
        assert {(row.code, row.partition) for row in replay.errors.collect()} == {("BAD_ROW", None)}
        assert replay.commits.count() == 0
        assert groupledger.decode(lost).where("log_partition is null and error is null").count() > 0
    assert groupledger.replay_groups(batches.toDF("TOPIC", "PARTITION", "BASE_OFFSET", "BATCH")).errors.count() == 0


@pytest.mark.filterwarnings("ignore:.*had earlier records")
def test_a_marker_that_decides_nothing_is_a_row(spark: SparkSession) -> None:
    """A marker of no producer, or one that says neither COMMIT nor ABORT, is an error and no ABORT."""
    key = bytes.fromhex("000100016700017400000000")
    value = bytes.fromhex("00030000000000000005ffffffff00000000018bcfe56800")
    rows: list[tuple[bytes | None, bytes, int, int | None, bool, str | None]] = [
        (key, value, 1, 7, False, None),
        (None, b"", 2, 7, True, "NO SUCH"),
        (bytes.fromhex("00000002"), b"", 3, 7, True, None),
        (bytes.fromhex("00000001"), b"", 4, None, True, None),
        (bytes.fromhex("00000001"), b"", 5, -1, True, "COMMIT"),
        (bytes.fromhex("00000001"), b"", 6, 7, True, None),
    ]
    schema = "key binary, value binary, offset bigint, producer_id bigint, is_control boolean, control_type string"
    records = spark.createDataFrame(rows, schema).selectExpr("*", "0 as partition", "1000L as timestamp")
    replay = groupledger.replay_groups(records)
    assert sorted((row.code, row.offset) for row in replay.errors.collect()) == [("BAD_ROW", at) for at in (2, 3, 4, 5)]
    assert [(row.outcome, row.applied_log_offset) for row in replay.commits.collect()] == [("APPLIED", 6)]


@takes_minutes
def test_kafka_log_is_a_source(spark: SparkSession, recorded: Recorded) -> None:
    """What the project's data source reads of segment files is replayed as it is, transactions decided."""
    ledger, _ = recorded(QUICK)
    spark.dataSource.register(KafkaLogDataSource)
    batches = spark.read.format("kafka_log").option("segments", str(logs_of(QUICK))).load()
    made = groupledger.replay_groups(batches, cluster_id=ledger.cluster_id).commits
    assert_same(made, ledger, "silver.offset_commits")
