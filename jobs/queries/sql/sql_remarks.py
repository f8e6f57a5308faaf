"""What the tables of a query lack of the log, which its rows cannot say. It is read with little: queries are fast."""

from collections import Counter
from collections.abc import Iterator

from coordinator_core.text import counted
from jobs.bronze.coverage import HOLES, LOG_START
from jobs.bronze.log_ends import log_ends, numbers
from jobs.console.names import short
from jobs.delta.cluster_tables import ClusterTables
from jobs.delta.warehouse import Warehouse
from schemas.tables.bronze import COVERAGE


def sql_remarks(warehouse: Warehouse, cluster_id: str | None) -> Iterator[str]:
    """Sentences about ranges of offsets and log partitions that were not read. `cluster_id` None: of each cluster."""
    where = None if cluster_id is None else {"cluster_id": cluster_id}
    rows = warehouse.read(COVERAGE, ("cluster_id", "kind", "reason"), where).to_pylist()
    holes = Counter(row["cluster_id"] for row in rows if row["kind"] in HOLES and row["reason"] != LOG_START)
    for name in sorted({row["cluster_id"] for row in rows}):
        lacks = [f"{counted(holes[name], 'range')} of offsets"] if holes[name] else []
        lacks += (
            f"log partitions {numbers(ends.unseen)} of {topic}"
            for topic, ends in log_ends(ClusterTables(warehouse, name)).items()
            if ends.unseen
        )
        if lacks:
            yield (
                f"note: not read of cluster {short(name)}: {' and '.join(lacks)}. No table has what they hold: see "
                f"{COVERAGE.full_name}"
            )
