"""How far the states of keys, and new records, know each log partition."""

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  (as Spark's own documentation has it)

from coordinator_core.text import counted
from groupledger.key_state import KEY_STATE_FORMAT, KEY_STATES, LogPlace
from groupledger.records import RecordsError

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
