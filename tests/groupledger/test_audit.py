"""Gold of DataFrames of silver, in Spark: the tables of nightly."""

from collections.abc import Iterable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import groupledger
from coordinator_core.bytes.codec import encode_key
from groupledger.facts import FACT_COLUMNS
from groupledger.judges import GROUP_COLUMNS, SHARE_COLUMNS
from groupledger.records import RecordsError
from jobs.delta.spark_schemas import spark_schema
from schemas.consumer_offsets import TOPIC, RecordType
from schemas.tables.bronze import COVERAGE
from schemas.tables.declare import Table
from tests.cases.harness import CASES, Ledger
from tests.cases.small_logs import NOON_MS, SmallLog
from tests.coordinator_core.group_records import record
from tests.groupledger.compare import assert_same, stored
from tests.groupledger.conftest import Recorded
from tests.groupledger.raw import RECORDINGS, raw_records
from tests.groupledger.test_replay import plan_of, replayed
from tests.lengths import takes_minutes

QUICK = "codec-gzip"
"""A small recording that has groups of all types; `make test-live` takes a large one, too."""
OFFSETS, SHARES = "__consumer_offsets", "__share_group_state"


def of_warehouse(spark: SparkSession, ledger: Ledger, *tables: Iterable[Table]) -> dict[str, DataFrame]:
    """DataFrames of a warehouse by the tables' names."""
    names = [table.full_name for some in tables for table in some]
    return {name: stored(spark, ledger, name) for name in names if Path(ledger.folder(name)).exists()}


def assert_gold(ledger: Ledger, groups: groupledger.GroupAudit, shares: groupledger.ShareAudit) -> None:
    """All tables of gold as nightly wrote them; what is settled only a whole log partition tells."""
    for name, made in groups.tables.items():
        assert_same(made, ledger, name, log_topic=OFFSETS if name == "gold.log_anomalies" else None)
    for name, made in shares.tables.items():
        log_topic = SHARES if name == "gold.log_anomalies" else None
        assert_same(made, ledger, name, log_topic=log_topic, left_out=("is_settled",))


def test_silver_gives_gold_whatever_the_case_of_its_columns(spark: SparkSession, recorded: Recorded) -> None:
    """DataFrames of silver give tables of gold as nightly wrote them, grouped by key. Silver, and what else is given,
    may spell its columns in any case, even where Spark tells cases apart."""
    ledger, records = recorded(QUICK)
    session = spark.newSession()
    session.conf.set("spark.sql.caseSensitive", True)
    silver = of_warehouse(session, ledger, GROUP_COLUMNS, SHARE_COLUMNS, FACT_COLUMNS)
    shouted = {name: frame.toDF(*map(str.upper, frame.columns)) for name, frame in silver.items()}
    rebalances = groupledger.audit_groups(shouted).rebalances
    assert "Sort [cluster_id" in plan_of(rebalances)
    assert_same(rebalances, ledger, "gold.rebalances")
    days = groupledger.audit_share_partitions(shouted).share_group_summary
    assert_same(days, ledger, "gold.share_group_summary")
    frame = session.createDataFrame(records)
    replay = groupledger.replay_groups(frame, cluster_id=ledger.cluster_id, topics=shouted["silver.topics"])
    assert_same(replay.assignments, ledger, "silver.member_assignments")


@takes_minutes
@pytest.mark.parametrize("recording", RECORDINGS)
def test_all_of_silver_gives_all_of_gold(spark: SparkSession, recorded: Recorded, recording: str) -> None:
    """Silver of a warehouse, with what else it knows, gives every table of gold as nightly wrote it."""
    ledger, _ = recorded(recording)
    silver = of_warehouse(spark, ledger, GROUP_COLUMNS, SHARE_COLUMNS, FACT_COLUMNS)
    assert_gold(ledger, groupledger.audit_groups(silver), groupledger.audit_share_partitions(silver))


@takes_minutes
@pytest.mark.parametrize("recording", RECORDINGS)
def test_a_replay_gives_gold(spark: SparkSession, recorded: Recorded, recording: str) -> None:
    """What the replay of raw records gave tells all of gold, with what silver has of the metadata log, and batches of
    leaders."""
    ledger, records = recorded(recording)
    groups, shares = replayed(spark, ledger, records)
    configs = stored(spark, ledger, "silver.configs")
    topics = stored(spark, ledger, "silver.topics")
    counts = stored(spark, ledger, "silver.partition_counts")
    batches = stored(spark, ledger, "bronze.record_batches")
    of_groups = groupledger.audit_groups(
        groups, topics=topics, configs=configs, partition_counts=counts, batches=batches
    )
    of_shares = groupledger.audit_share_partitions(shares, groups=groups, topics=topics, configs=configs)
    assert_gold(ledger, of_groups, of_shares)


PLANS = [(1, False), (2, True), (7, False), (200, True)]


@takes_minutes
@pytest.mark.parametrize(("partitions", "is_adaptive"), PLANS)
def test_no_plan_changes_gold(spark: SparkSession, recorded: Recorded, partitions: int, is_adaptive: bool) -> None:
    """However many shuffle partitions there are, whether Spark plans adaptively, and in whatever order rows of silver
    come, the rows are the same."""
    ledger, _ = recorded(QUICK)
    session = spark.newSession()
    session.conf.set("spark.sql.shuffle.partitions", partitions)
    session.conf.set("spark.sql.adaptive.enabled", is_adaptive)
    session.conf.set("spark.sql.session.timeZone", "Asia/Kolkata")
    session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", 13)
    silver = of_warehouse(session, ledger, GROUP_COLUMNS, SHARE_COLUMNS, FACT_COLUMNS)
    silver = {name: frame.orderBy(F.xxhash64("cluster_id", *sorted_columns(frame))) for name, frame in silver.items()}
    groups, shares = groupledger.audit_groups(silver), groupledger.audit_share_partitions(silver)
    assert_same(groups.partition_owners, ledger, "gold.partition_owners")
    assert_same(groups.commit_anomalies, ledger, "gold.commit_anomalies")
    assert_same(shares.redeliveries, ledger, "gold.redeliveries", left_out=("is_settled",))


def sorted_columns(frame: DataFrame) -> list[str]:
    """Names of columns that Spark can hash."""
    return sorted(item.name for item in frame.schema if item.dataType.typeName() != "map")


def test_what_silver_lacks_is_said(spark: SparkSession) -> None:
    """A table that is not there, a column that is missing or of another type: one error before any job runs."""
    silver = {
        table.full_name: spark.createDataFrame([], spark_schema(table.columns))
        for table in (*GROUP_COLUMNS, *SHARE_COLUMNS)
    }
    members = silver["silver.group_members"]
    for changed, message in (
        ({"silver.group_members": None}, "silver has no silver.group_members: give what a replay gave, or DataFrames"),
        ({"silver.group_members": members.drop("client_host")}, "group_members has no column 'client_ho"),
        (
            {"silver.group_members": members.withColumn("valid_from", F.lit("now"))},
            "column 'valid_from' of silver.group_members is STRING and not TIMESTAMP: give the table",
        ),
        ({"bronze.coverage": members}, "bronze.coverage has no column 'topic'"),
        (
            {"silver.group_members": members.selectExpr("*", "true as IS_SETTLED")},
            "silver.group_members has column 'is_settled' 2 times: drop all but one",
        ),
    ):
        given = {name: frame for name, frame in (silver | changed).items() if frame is not None}
        with pytest.raises(RecordsError) as raised:
            groupledger.audit_groups(given)
        assert message in str(raised.value)
    with pytest.raises(RecordsError, match=r"silver has no silver\.share_partition_states"):
        groupledger.audit_share_partitions({"silver.group_members": members})
    shares = {name: frame for name, frame in silver.items() if "share" in name}
    with pytest.raises(RecordsError, match=r"silver\.group_members has no column 'client_host'"):
        groupledger.audit_share_partitions(shares | {"silver.group_members": members.drop("client_host")})
    no_producers = silver | {"silver.offset_commits": silver["silver.offset_commits"].drop("producer_id")}
    no_rows = spark.createDataFrame([], spark_schema(COVERAGE.columns))
    with pytest.raises(RecordsError, match=r"silver\.offset_commits has no column 'producer_id'"):
        _ = groupledger.audit_groups(no_producers, coverage=no_rows).tables
    audit = groupledger.audit_groups(silver)
    with pytest.raises(RecordsError, match="where the log ends is known from its records alone: give coverage="):
        _ = audit.hanging_transactions
    assert "gold.hanging_transactions" not in audit.tables


def test_a_replay_tells_what_its_log_lacks(spark: SparkSession) -> None:
    """Records show where their log ends, which offsets it lacks and where its time goes back: a transaction that nobody
    ended hangs, likely where nothing is missing behind it, else it is a guess."""
    key = bytes.fromhex("000100016700017400000000")
    value = bytes.fromhex("00030000000000000005ffffffff00000000018bcfe56800")
    rows = [
        (key, value, 0, 0, 1_000, 7, False),
        (key, value, 0, 1, 1_001_000, -1, False),
        (key, value, 1, 0, 1_000, 7, False),
        (key, value, 1, 2, 1_001_000, -1, False),
        (key, value, 1, 3, 900_000, -1, False),
    ]
    schema = (
        "key binary, value binary, partition int, offset bigint, timestamp bigint, producer_id bigint, "
        "is_control boolean"
    )
    audit = groupledger.audit_groups(groupledger.replay_groups(spark.createDataFrame(rows, schema), cluster_id="a"))
    found = {row.log_partition: row for row in audit.hanging_transactions.collect()}
    assert {at: (row.confidence, row.open_ms, row.uncleanable_count) for at, row in found.items()} == {
        0: ("LIKELY", 1_000_000, 2),
        1: ("GUESS", 1_000_000, 4),
    }
    steps = audit.log_anomalies.where("rule = 'TIME_WENT_BACK'").collect()
    assert [(row.cluster_id, row.log_topic, row.log_partition, row.log_offset) for row in steps] == [
        ("a", "__consumer_offsets", 1, 3)
    ]
    assert steps[0].details.startswith("from 1001000 to 900000 (epoch ms): 101000 ms back, after log offset 2")


@takes_minutes
@pytest.mark.parametrize("case", ["S-skew", "C-expiry"])
def test_a_replay_of_odd_logs_gives_gold(spark: SparkSession, tmp_path: Path, case: str) -> None:
    """Leaders whose clocks differ, offsets that expired: gold is nightly's, given topics and configs."""
    ledger = Ledger(tmp_path)
    ledger.night(CASES / case / "logs")
    groups, shares = replayed(spark, ledger, raw_records(ledger.warehouse))
    configs, topics = stored(spark, ledger, "silver.configs"), stored(spark, ledger, "silver.topics")
    batches = stored(spark, ledger, "bronze.record_batches")
    of_groups = groupledger.audit_groups(groups, topics=topics, configs=configs, batches=batches)
    assert_gold(ledger, of_groups, groupledger.audit_share_partitions(shares, groups=groups, configs=configs))


def left_within_timeouts(case: str) -> SmallLog:
    """A classic member goes after 20 seconds, in groups `g` and `h`."""
    magic = 1 if case == "format 1" else 2
    log = SmallLog()
    for group_id in ("g", "h"):
        log.generation(group_id, 1, {"a": (0,), "b": (1,)}, NOON_MS, magic=magic)
        log.commit(group_id, 0, 9, NOON_MS + 1_000, magic=magic)
        log.commit(group_id, 0, 5, NOON_MS + 2_000, magic=magic)
        if case == "unreadable" and group_id == "g":
            _, key, _ = record(RecordType.GROUP_METADATA, {"group": group_id}, None)
            log.put(encode_key(TOPIC, RecordType.GROUP_METADATA, key), bytes.fromhex("7fff"), NOON_MS + 3_000)
        log.generation(group_id, 2, {"a": (0, 1)}, NOON_MS + 20_000, magic=magic)
        log.commit(group_id, 0, 2, NOON_MS + 21_000, magic=magic)
    return log


CONFIDENCES = ("GUESS", "LIKELY", "CERTAIN")


@pytest.mark.parametrize(
    "case", [*(pytest.param(case, marks=takes_minutes) for case in ("plain", "format 1", "unreadable")), "gap"]
)
def test_the_audit_is_never_surer_than_nightly(spark: SparkSession, tmp_path: Path, case: str) -> None:
    """Records show no leaders: who went within its time-outs may have been away for longer by one clock. What a group
    has of unreadable records counts, and a warehouse's tables say all that nightly says. Records do not show which of
    the missing offsets were never read, either."""
    ledger = Ledger(tmp_path / "warehouse")
    log = left_within_timeouts(case)
    ledger.night(log.write(tmp_path / "logs"))
    if case == "gap":
        log.batches = []
        log.skip(5)
        for group_id in ("g", "h"):
            log.commit(group_id, 0, 1, NOON_MS + 25_000)
            log.generation(group_id, 3, {"a": (0,), "b": (1,)}, NOON_MS + 30_000)
        (tmp_path / "behind" / f"{TOPIC}-0").mkdir(parents=True)
        ledger.night(log.write_behind(tmp_path / "behind"), number=2)
        assert "MISSING" in {row["kind"] for row in ledger.rows("bronze.coverage")}
    groups, _ = replayed(spark, ledger, raw_records(ledger.warehouse))
    whole = groupledger.audit_groups(of_warehouse(spark, ledger, GROUP_COLUMNS, FACT_COLUMNS))
    for name in ("gold.rebalances", "gold.commit_anomalies"):
        assert_same(whole.tables[name], ledger, name)
    by_records = groupledger.audit_groups(groups)
    place = {"rebalances": "to_generation", "commit_anomalies": "log_offset"}
    for name, column in place.items():
        nightly = {(row["group_id"], row[column]): row["confidence"] for row in ledger.rows(f"gold.{name}")}
        mine = {(row.group_id, row[column]): row.confidence for row in getattr(by_records, name).collect()}
        assert mine.keys() == nightly.keys()
        surer = {at for at in mine if CONFIDENCES.index(mine[at]) > CONFIDENCES.index(nightly[at])}
        assert not surer, (name, mine, nightly)
    last = {
        row.group_id: (row.cause, row.confidence) for row in by_records.rebalances.where("to_generation = 2").collect()
    }
    assert last["h"] == ("MEMBER_LEFT", "LIKELY")


def test_states_show_what_their_log_lacks(spark: SparkSession, tmp_path: Path) -> None:
    """Without coverage, too: what a start offset passed may have been acknowledged in what is missing."""
    ledger, log = Ledger(tmp_path / "warehouse"), SmallLog(0, SHARES)
    log.snapshot("s", NOON_MS, (), snapshot_epoch=0)
    log.skip(3)
    log.update("s", NOON_MS + 1_000, ((50, 50, 0, 1),))
    log.update("s", NOON_MS + 7_200_000, ((60, 60, 2, 1),), 50)
    ledger.night(log.write(tmp_path / "logs"))
    audit = groupledger.audit_share_partitions(of_warehouse(spark, ledger, SHARE_COLUMNS))
    assert not audit.archived_records.count()
    assert_same(audit.redeliveries, ledger, "gold.redeliveries", left_out=("is_settled",))
