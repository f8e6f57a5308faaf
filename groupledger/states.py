"""How far the states of keys, and new records, know each log partition, and which records of it were read."""

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812  (as Spark's own documentation has it)

from coordinator_core.text import counted
from groupledger.key_state import KEY_STATE_FORMAT, KEY_STATES, RANGE, LogPlace
from groupledger.records import RecordsError
from jobs.delta.spark_schemas import spark_schema

OF_LOG: Final = ("cluster_id", "log_partition", "log_first_offset", "log_last_offset")
_KEYS: Final = tuple(column.name for column in KEY_STATES.columns if column.is_key)


@dataclass(frozen=True, slots=True)
class Logs:
    """First and last offset of log partitions, by cluster and partition."""

    read: Mapping[LogPlace, tuple[int, int]]
    """Of the records."""
    before: Mapping[LogPlace, tuple[int, int]]
    """Of all earlier ones, as the states tell."""

    @classmethod
    def of(cls, records: DataFrame, last_offset: Column, states: DataFrame | None, topic: str) -> "Logs":
        """`records`: with cluster, log partition and offset. Raises RecordsError for states that do not fit."""
        found = records.groupBy("cluster_id", "log_partition").agg(
            F.min("log_offset").alias("first"),
            F.max(last_offset).alias("last"),
            F.lit(0).cast("bigint").alias("copies"),
            F.lit(None).cast("string").alias("other_format"),
        )
        if states is not None:
            is_other = F.col("state_format") != F.lit(KEY_STATE_FORMAT)
            by_key = states.where(F.col("log_topic") == F.lit(topic)).groupBy(*_KEYS)
            of_keys = by_key.agg(
                F.min("log_first_offset").alias("first"),
                F.max("log_last_offset").alias("last"),
                F.count(F.lit(1)).alias("copies"),
                F.max(F.when(is_other, F.col("state_format"))).alias("other_format"),
            )
            of_logs = of_keys.groupBy("cluster_id", "log_partition").agg(
                F.min("first").alias("first"),
                F.max("last").alias("last"),
                F.max("copies").alias("copies"),
                F.max("other_format").alias("other_format"),
            )
            found = found.unionByName(of_logs)
        read: dict[LogPlace, tuple[int, int]] = {}
        before: dict[LogPlace, tuple[int, int]] = {}
        for row in found.collect():
            place = (row["cluster_id"], row["log_partition"])
            where = f"{topic}-{place[1]} of cluster {place[0]!r}"
            if row["copies"] > 1:
                raise RecordsError(
                    f"state has a group or share partition of {where} {row['copies']} times: give one row for each, "
                    "what .state of the last replay gave, without rows of earlier ones"
                )
            if row["other_format"] is not None:
                raise RecordsError(
                    f"state of {where} has format {row['other_format']}, and this version reads {KEY_STATE_FORMAT}: "
                    "replay all records once without state, and keep the state that this gives"
                )
            (before if row["copies"] else read)[place] = row["first"], row["last"]
        return cls(read, before)

    def check_clusters(self) -> None:
        """Raise RecordsError where states are of other clusters than the records."""
        records, states = ({cluster_id for cluster_id, _ in it} for it in (self.read, self.before))
        if records and states and not records & states:
            raise RecordsError(
                f"state is of cluster {sorted(states, key=str)[0]!r}, and the records of "
                f"{sorted(records, key=str)[0]!r}: give the state of that cluster, or its name as cluster_id="
            )

    def warn(self, topic: str) -> None:
        """Warn of log partitions that do not begin with record 0, and of which there is no state."""
        new = sorted((place[1], first) for place, (first, _) in self.read.items() if first and place not in self.before)
        if new:
            partition, first = new[0]
            others = f", and {len(new) - 1} more" if new[1:] else ""
            warnings.warn(
                f"{counted(len(new), 'log partition')} ({topic}-{partition} at offset {first}{others}) had earlier "
                "records, and there is no state of them: of what comes first, nobody knows what was before. Give "
                "state=, what .state of the replay before gave, or all records",
                stacklevel=2,
            )

    def known(self) -> list[tuple[str | None, int, int, int]]:
        """Rows of `OF_LOG`: of all that was ever read."""
        ends: dict[LogPlace, list[int]] = {}
        for place, offsets in (*self.before.items(), *self.read.items()):
            ends.setdefault(place, []).extend(offsets)
        return [(*place, min(offsets), max(offsets)) for place, offsets in ends.items()]

    def later(self) -> frozenset[LogPlace]:
        """Log partitions that are not known from record 0 on."""
        return frozenset((cluster_id, partition) for cluster_id, partition, first, _ in self.known() if first > 0)

    @property
    def overlap(self) -> bool:
        """Are there records before the last one of the states' log partition?"""
        return any(place in self.before and first <= self.before[place][1] for place, (first, _) in self.read.items())

    def gaps(self) -> Iterator[tuple[LogPlace, int, int]]:
        """The first and last of the offsets between states and records, by log partition."""
        for place, (first, _) in self.read.items():
            if place in self.before and first > self.before[place][1] + 1:
                yield place, self.before[place][1] + 1, first - 1


def ranges_of(records: DataFrame) -> DataFrame:
    """Records, each as a range: columns of `RANGE` behind cluster and log partition."""
    time = F.coalesce(F.col("timestamp_ms"), F.lit(-1))
    values = (F.col("log_offset"), time, F.col("log_offset"), time)
    return records.select(
        "cluster_id", "log_partition", *(it.alias(name) for it, name in zip(values, RANGE, strict=True))
    )


def ranges_in(states: DataFrame, topic: str) -> DataFrame:
    """The ranges of a topic that states have."""
    of_topic = states.where(F.col("log_topic") == F.lit(topic))
    return of_topic.select("cluster_id", "log_partition", F.inline("log_ranges"))


def not_read(rows: DataFrame, ranges: DataFrame) -> DataFrame:
    """Records that are in no range."""
    read = ranges.select(
        "cluster_id", "log_partition", F.col("from_offset").alias("log_offset"), F.col("log_offset").alias("read_to")
    )
    both = rows.unionByName(read, allowMissingColumns=True)
    in_order = Window.partitionBy("cluster_id", "log_partition").orderBy("log_offset", F.col("read_to").isNull())
    both = both.withColumn("known_to", F.max("read_to").over(in_order))
    is_new = F.col("log_offset") > F.coalesce(F.col("known_to"), F.lit(-1))
    return both.where(F.col("read_to").isNull() & is_new).drop("read_to", "known_to")


def joined(ranges: DataFrame) -> DataFrame:
    """By log partition its ranges, in `log_ranges`: each record once, and what follows without a gap in one."""
    in_order = Window.partitionBy("cluster_id", "log_partition").orderBy("from_offset", F.col("log_offset").desc())
    known_to = F.max("log_offset").over(in_order.rowsBetween(Window.unboundedPreceding, -1))
    new = ranges.withColumn("known_to", F.coalesce(known_to, F.lit(-1))).where("log_offset > known_to")
    offset_before, time_before = (F.lag(name).over(in_order) for name in ("log_offset", "timestamp_ms"))
    time = F.col("from_ms")
    goes_on = (F.col("from_offset") - offset_before <= 1) & (time >= time_before) & ((time < 0) == (time_before < 0))
    begins = F.when(F.coalesce(goes_on, F.lit(False)), F.lit(0)).otherwise(F.lit(1))
    numbered = new.withColumn("begins", begins).withColumn("number", F.sum("begins").over(in_order))
    first, last = F.min(F.struct("from_offset", "from_ms")), F.max(F.struct("log_offset", "timestamp_ms"))
    found = numbered.groupBy("cluster_id", "log_partition", "number").agg(first.alias("first"), last.alias("last"))
    range_ = F.struct("first.from_offset", "first.from_ms", "last.log_offset", "last.timestamp_ms")
    (declared,) = spark_schema(column for column in KEY_STATES.columns if column.name == "log_ranges")
    in_one = F.sort_array(F.collect_list(range_)).cast(declared.dataType)
    return found.groupBy("cluster_id", "log_partition").agg(in_one.alias(declared.name))
