"""What an audit makes of the rows of one key in a worker, without Spark: the rows of nightly's gold."""

import pickle
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from coordinator_core.inference.facts.log_facts import UNKNOWN_LEADERS, WHOLE, LogFacts
from coordinator_core.inference.facts.settings import InferenceSettings
from groupledger.audit import OF_GROUPS, OF_SHARE_GROUPS
from groupledger.facts import FACT_COLUMNS, Columns, Facts
from groupledger.judges import (
    GROUP_COLUMNS,
    SHARE_COLUMNS,
    SHARE_LIFE_COLUMNS,
    TABLE,
    Judge,
    JudgeGroup,
    JudgeShareGroup,
)
from schemas.consumer_offsets import TOPIC as OFFSETS_TOPIC
from schemas.share_group_state import TOPIC as SHARE_TOPIC
from schemas.tables import TABLES
from schemas.tables.declare import Table
from schemas.tables.gold import (
    ARCHIVED_RECORDS,
    COMMIT_ANOMALIES,
    GROUP_SUMMARY,
    LOG_ANOMALIES,
    PARTITION_OWNERS,
    REBALANCES,
    REDELIVERIES,
    SHARE_GROUP_SUMMARY,
    SHARE_OFFSET_CHANGES,
)
from tests.cases.harness import Ledger
from tests.groupledger.conftest import Recorded
from tests.groupledger.raw import RECORDINGS
from tests.lengths import takes_minutes

QUICK = ("full-a",)
OF_GROUP = (PARTITION_OWNERS, REBALANCES, COMMIT_ANOMALIES, GROUP_SUMMARY, LOG_ANOMALIES)
OF_SHARES = (REDELIVERIES, ARCHIVED_RECORDS, SHARE_OFFSET_CHANGES, SHARE_GROUP_SUMMARY, LOG_ANOMALIES)


def under_one_another(ledger: Ledger, columns: Columns) -> pa.Table:
    """Rows of several tables, as Spark hands them to a function."""
    parts = []
    for table, names in columns.items():
        rows = ledger.table(table.full_name).select(list(dict.fromkeys(("cluster_id", *names))))
        parts.append(rows.append_column(TABLE, pa.repeat(pa.scalar(table.full_name), rows.num_rows)))
    return pa.concat_tables(parts, promote_options="default")


def by_key(rows: pa.Table, keys: Sequence[str]) -> Iterator[pa.Table]:
    """The rows of each key."""
    numbered = rows.append_column("row", pa.array(range(rows.num_rows)))
    for row in numbered.select([*keys, "row"]).group_by(list(keys)).aggregate([("row", "list")]).to_pylist():
        yield rows.take(pa.array(row["row_list"]))


def facts_of(ledger: Ledger, topic: str) -> Facts:
    """What no single group tells, from the tables of nightly."""
    tables = {
        name: ledger.table(name).select(["cluster_id", *FACT_COLUMNS[TABLES[name]]])
        for name in ("silver.topics", "silver.configs", "silver.partition_counts")
    }
    first_missing: dict[tuple[str | None, int], int] = {}
    places: set[tuple[str | None, int]] = set()
    for row in ledger.rows("bronze.coverage"):
        if row["topic"] == topic:
            place = row["cluster_id"], row["partition"]
            places.add(place)
            if row["kind"] != "CAPTURED":
                first_missing[place] = min(row["from_offset"], first_missing.get(place, WHOLE))
    changes: dict[tuple[str | None, int], list[int]] = {}
    for row in ledger.rows("state.offset_ranges"):
        if row["topic"] == topic and not row["is_checkpoint"]:
            changes.setdefault((row["cluster_id"], row["partition"]), []).append(row["from_offset"])
    logs = {
        place: LogFacts(
            whole_to=first_missing.get(place, WHOLE),
            leader_changes=tuple(sorted(changes.get(place, ()))),
            leaderless=((0, min(changes[place]) - 1),) if place in changes else UNKNOWN_LEADERS,
        )
        for place in {*places, *changes}
    }
    facts = Facts(topic, tables, {}, {}, logs)
    facts.of("case")
    made: Facts = pickle.loads(pickle.dumps(facts))  # as on its way to a worker
    return made


def rows_of(judge: Judge, keyed: Iterable[pa.Table], names: Sequence[str]) -> list[str]:
    """What a judge makes of keys, as texts that can be compared."""
    judge = pickle.loads(pickle.dumps(judge))
    made = [part.select(names).to_pylist() for rows in keyed for _, part in judge(rows)]
    return sorted(repr(row) for some in made for row in some)


def expected(ledger: Ledger, table: Table, topic: str) -> tuple[list[str], list[str]]:
    """Columns that are compared, and nightly's rows."""
    rows = ledger.table(table.full_name)
    if table is LOG_ANOMALIES:
        rows = rows.filter(pc.equal(rows["log_topic"], topic))
    names = [name for name in table.column_names if name not in ("cluster_id", "is_settled")]
    return names, sorted(map(repr, rows.select(names).to_pylist()))


@pytest.mark.parametrize(
    "recording", [name if name in QUICK else pytest.param(name, marks=takes_minutes) for name in RECORDINGS]
)
def test_rows_of_groups_are_those_of_nightly(recorded: Recorded, recording: str) -> None:
    """Silver of one group at a time gives nightly's owners, rebalances, commit anomalies, days and broken rules."""
    ledger, _ = recorded(recording)
    keyed = list(by_key(under_one_another(ledger, GROUP_COLUMNS), OF_GROUPS))
    facts = facts_of(ledger, OFFSETS_TOPIC)
    for table in OF_GROUP:
        names, rows = expected(ledger, table, OFFSETS_TOPIC)
        assert rows_of(JudgeGroup((table,), facts, InferenceSettings()), keyed, names) == rows, table.full_name


@pytest.mark.parametrize(
    "recording", [name if name in QUICK else pytest.param(name, marks=takes_minutes) for name in RECORDINGS]
)
def test_rows_of_share_groups_are_those_of_nightly(recorded: Recorded, recording: str) -> None:
    """Silver of one share group at a time gives what nightly says of its share partitions and days."""
    ledger, _ = recorded(recording)
    keyed = list(by_key(under_one_another(ledger, {**SHARE_COLUMNS, **SHARE_LIFE_COLUMNS}), OF_SHARE_GROUPS))
    facts = facts_of(ledger, SHARE_TOPIC)
    for table in OF_SHARES:
        names, rows = expected(ledger, table, SHARE_TOPIC)
        assert rows_of(JudgeShareGroup((table,), facts, InferenceSettings()), keyed, names) == rows, table.full_name
