"""Replay day after day in Spark: from the state of the day before, as a user's lake has it."""

import warnings
from random import Random

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import groupledger
from groupledger.key_state import KEY_STATES
from jobs.delta.spark_schemas import spark_schema
from schemas.consumer_offsets import TOPIC as GROUPS
from tests.groupledger.conftest import Recorded
from tests.groupledger.days import Days, Replay, kept, rows_of, texts
from tests.groupledger.raw import RECORDINGS
from tests.lengths import takes_minutes

QUICK = "codec-gzip"
REPLAYS: tuple[Replay, ...] = (groupledger.replay_groups, groupledger.replay_share_partitions)


def three_days(records: pa.Table, random: Random) -> list[pa.Table]:
    """Records in three days, each log partition cut elsewhere: one may have none on a day."""
    places = records.select(["topic", "partition", "offset"]).to_pylist()
    ends: dict[tuple[str, int], list[int]] = {}
    for row in places:
        ends.setdefault((row["topic"], row["partition"]), []).append(row["offset"])
    cuts = {log: sorted(random.choices([*offsets, 0], k=2)) for log, offsets in ends.items()}
    day = [sum(row["offset"] >= cut for cut in cuts[row["topic"], row["partition"]]) for row in places]
    return [records.filter(pa.array([it == number for it in day])) for number in range(3)]


@pytest.mark.parametrize(
    "recording", [QUICK, *(pytest.param(name, marks=takes_minutes) for name in RECORDINGS if name != QUICK)]
)
@pytest.mark.filterwarnings("ignore:.*had earlier records")
def test_three_days_are_one_replay(spark: SparkSession, recorded: Recorded, recording: str) -> None:
    """A recording in three days, the second one twice, gives all rows of one replay, and the same state."""
    random = Random(recording)
    _, records = recorded(recording)
    first, second, third = three_days(records, random)
    for replay in REPLAYS:
        days = Days(replay)
        for day in (first, second, second, third):
            days.add(spark.createDataFrame(day))
        whole = replay(spark.createDataFrame(records))
        for name, frame in whole.tables.items():
            assert texts(days.tables[name], name) == texts(rows_of(frame), name), name
        assert days.state is not None
        columns = ["group_id", "last_offset", "settled_offset", "log_ranges"]
        left = sorted(map(repr, days.state.select(*columns).collect()))
        assert left == sorted(map(repr, whole.state.select(*columns).collect()))


def test_a_day_alone_says_that_it_has_a_past(spark: SparkSession, recorded: Recorded) -> None:
    """Without state nothing that comes first on a later day is said to be the first, and one warning names the log."""
    _, records = recorded("codec-gzip")
    _, *later = three_days(records, Random(3))
    frame = spark.createDataFrame(pa.concat_tables(later)).where("offset > 20")
    replay = groupledger.replay_groups(frame)
    with pytest.warns(UserWarning, match="__consumer_offsets-.* had earlier records") as warned:
        commits = replay.commits.where("outcome = 'APPLIED'")
    assert replay.generations.where("incarnation = 0 and is_contiguous and previous_generation is null").count() == 0
    assert len(warned) == 1
    first = commits.where("previous_offset is null and committed_offset is not null")
    unknown = first.where("change is null")
    assert unknown.count() > 0
    assert unknown.where("is_settled").count() == 0
    of_place = ["log_partition", "group_id", "topic", "partition"]
    seen = commits.groupBy(*of_place).agg(F.min("applied_log_offset").alias("applied_log_offset"))
    assert commits.join(seen, [*of_place, "applied_log_offset"]).where("change = 'FIRST'").count() == 0
    created = replay.events.where("event_type = 'GROUP_CREATED' and details['first_seen'] is null")
    again = replay.generations.where("incarnation > 0")
    assert created.count() <= again.count()


def test_a_state_that_does_not_fit_is_refused(spark: SparkSession, recorded: Recorded) -> None:
    """Another format, another cluster, a key twice, a column missing: one error each, with the remedy."""
    _, records = recorded(QUICK)
    frame = spark.createDataFrame(records)
    for replay in REPLAYS:
        state = kept(replay(frame).state)
        for wrong, message in (
            (state.withColumn("state_format", F.lit("0.9")), "has format 0.9, .* replay all records once"),
            (state.withColumn("cluster_id", F.lit("other")), "state is of cluster 'other', and the records of 'kafka'"),
            (state.union(state.limit(1)), "2 times: give one row for each"),
        ):
            with pytest.raises(groupledger.RecordsError, match=message):
                _ = replay(frame, state=wrong).tables
        with pytest.raises(groupledger.RecordsError, match=r"api\.key_states has no column 'last_offset'"):
            replay(frame, state=state.drop("last_offset"))


def test_states_of_two_clusters_in_one_table_are_kept_apart(spark: SparkSession, recorded: Recorded) -> None:
    """Records that name no cluster go on from the states of theirs alone, and the states of both are given on."""
    halves: dict[str, list[DataFrame]] = {}
    states: dict[str, DataFrame] = {}
    for cluster_id, recording in (("one", QUICK), ("two", "codec-lz4")):
        frame = spark.createDataFrame(recorded(recording)[1])
        halves[cluster_id] = [frame.where("offset < 60"), frame.where("offset >= 60")]
        states[cluster_id] = kept(groupledger.replay_groups(halves[cluster_id][0], cluster_id=cluster_id).state)
    both = states["one"].union(states["two"])
    for cluster_id, own in states.items():
        after, apart = (
            groupledger.replay_groups(halves[cluster_id][1], cluster_id=cluster_id, state=state)
            for state in (both, own)
        )
        for name in apart.tables:
            assert texts(rows_of(after.tables[name]), name) == texts(rows_of(apart.tables[name]), name), name
        assert after.state.groupBy("cluster_id").count().count() == 2


def test_offsets_between_state_and_records_are_a_row(spark: SparkSession, recorded: Recorded) -> None:
    """Records that follow the state with a gap are replayed, and the gap is among the errors; without one it is not."""
    _, records = recorded(QUICK)
    frame = spark.createDataFrame(records).where(F.col("topic") == F.lit(GROUPS))
    place = frame.groupBy("partition").agg(F.max("offset").alias("last")).orderBy(F.desc("last")).first()
    assert place is not None
    one = frame.where(F.col("partition") == place.partition)
    half = place.last // 2
    state = kept(groupledger.replay_groups(one.where(F.col("offset") <= half)).state)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        whole = groupledger.replay_groups(one.where(F.col("offset") > half), state=state)
        assert whole.errors.count() == 0
        holed = groupledger.replay_groups(one.where(F.col("offset") > half + 5), state=state)
        (gap,) = holed.errors.collect()
    assert (gap.code, gap.partition, gap.from_offset, gap.to_offset) == ("GAP", place.partition, half + 1, half + 5)


def test_a_record_that_comes_late_is_a_row_and_one_that_comes_again_is_none(
    spark: SparkSession, recorded: Recorded
) -> None:
    """Records behind later ones of their group are skipped, with a row LATE each, whether the state knows a gap or a
    later beginning of the log; those that were read are no error."""
    _, records = recorded(QUICK)
    frame = spark.createDataFrame(records).where(F.col("topic") == F.lit(GROUPS))
    groups = groupledger.replay_groups(frame).commits.groupBy("log_partition", "group_id")
    group = groups.agg(F.sort_array(F.collect_set("log_offset")).alias("at")).orderBy(F.desc(F.size("at"))).first()
    assert group is not None
    one, (first, second, *_, last) = frame.where(F.col("partition") == group.log_partition), group["at"]
    left_out = (F.col("offset") == first) | (F.col("offset") == second)
    state = kept(groupledger.replay_groups(one.where(~left_out)).state)
    after = groupledger.replay_groups(one.where(F.col("offset") <= last), state=state)
    errors = after.errors.select("code", "group_id", "offset").collect()
    assert sorted(errors) == [("LATE", group.group_id, first), ("LATE", group.group_id, second)]
    assert after.commits.count() == 0
    ranges = [row.log_ranges for row in state.where("group_id is null").collect()]
    assert ranges == [row.log_ranges for row in after.state.where("group_id is null").collect()]
    with pytest.raises(groupledger.RecordsError, match="LATE in __consumer_offsets-"):
        _ = groupledger.replay_groups(one, state=state, on_error="raise").commits


def test_states_have_the_declared_columns(spark: SparkSession, recorded: Recorded) -> None:
    """One row a key, whatever is replayed, over batches too, and in pandas."""
    ledger, records = recorded(QUICK)
    frame = spark.createDataFrame(records)
    batches = spark.read.format("delta").load(ledger.folder("bronze.record_batches"))
    found = []
    for given, as_pandas in ((frame, False), (frame, True), (batches, False)):
        state = groupledger.replay_groups(given, cluster_id=ledger.cluster_id, as_pandas=as_pandas).state
        assert state.schema == spark_schema(KEY_STATES.columns)
        names = [name for name in state.columns if name != "state"]
        found.append(sorted(map(repr, state.select(*names).collect())))
    assert found[0] == found[1] == found[2]
