"""Pinned versions for readers of all clusters, while a night, a replay or an audit is running or after one failed.

`jobs.delta.replay_runs` and `jobs.delta.audit_runs` do this for one cluster. In a table of several clusters, rows of a
cluster with an incomplete run are read at the version of its last whole run, all others at the newest version.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from itertools import chain
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from jobs.delta.audit_runs import WholeAudit
from jobs.delta.cluster_tables import ClusterTables
from jobs.delta.replay_runs import PinnedTables, WholeRun, number_of, visible
from jobs.delta.warehouse import Warehouse
from jobs.errors import WarehouseError
from schemas.tables.declare import Table
from schemas.tables.gold import GOLD_TABLES
from schemas.tables.silver import SILVER_TABLES
from schemas.tables.state import AUDITED_LOGS, CHECKPOINTS, RUN_STARTS, RUNS

OF_REPLAY: Final = (*SILVER_TABLES, CHECKPOINTS)
OF_AUDIT: Final = (*GOLD_TABLES, AUDITED_LOGS)
"""Tables that an audit writes one after another, so that an incomplete one has written some of them."""

ASKED_MAX: Final = 20
"""How often an answer is made again: a night has two starts and two ends."""

Asked = ParamSpec("Asked")
Answer = TypeVar("Answer")
Pinned = Mapping[str, int | None]
"""By cluster id, the Delta version at which its rows of a table are read; None: none exists yet. Other clusters are
read at the newest version."""


def pinned_versions(warehouse: Warehouse, of_cluster: str | None = None) -> Mapping[Table, Pinned]:
    """Pinned versions by table, of one cluster or of all; empty while no run is incomplete."""
    pinned: dict[Table, dict[str, int | None]] = {}
    for cluster_id in _not_whole(warehouse, "replay_version", of_cluster):
        run = WholeRun.newest(ClusterTables(warehouse, cluster_id))
        _hold(pinned, OF_REPLAY, cluster_id, run, is_known=run.is_known)
    for cluster_id in _not_whole(warehouse, "audit_version", of_cluster):
        audit = WholeAudit.newest(ClusterTables(warehouse, cluster_id))
        _hold(pinned, OF_AUDIT, cluster_id, audit, is_known=audit.is_known)
    return pinned


def runs_state(warehouse: Warehouse) -> tuple[int, ...]:
    """As long as it stays, pinned versions do."""
    return tuple(warehouse.version(table) for table in (RUN_STARTS, RUNS))


def of_one_run(
    ask: Callable[Concatenate[ClusterTables, Asked], Answer],
) -> Callable[Concatenate[ClusterTables, Asked], Answer]:
    """For an answer that is made of several reads: it is made again where a run began or ended meanwhile, since later
    reads may be of other versions than earlier ones. Raises WarehouseError where that never ends."""

    @wraps(ask)
    def asked(tables: ClusterTables, /, *args: Asked.args, **kwargs: Asked.kwargs) -> Answer:
        for _ in range(ASKED_MAX):
            before = runs_state(tables.warehouse)
            answer = ask(tables, *args, **kwargs)
            if runs_state(tables.warehouse) == before:
                return answer
        raise WarehouseError("runs began and ended all the time while this was asked: ask again")

    return asked


def _not_whole(warehouse: Warehouse, number: str, of_cluster: str | None) -> list[str]:
    """Clusters with a run that began and has not ended, or that readers may not see yet."""
    where = {} if of_cluster is None else {"cluster_id": of_cluster}
    begun = _maxima(warehouse.read(RUN_STARTS, ["cluster_id", number], where).to_pylist(), number)
    columns = ["cluster_id", "replay_version", "audit_version", "audited_version", "is_audited_next"]
    by_cluster = defaultdict(list)
    for row in warehouse.read(RUNS, columns, where).to_pylist():
        by_cluster[row["cluster_id"]].append(row)
    seen = (visible(rows) if number == "replay_version" else rows for rows in by_cluster.values())
    ended = _maxima(chain.from_iterable(seen), number)
    return sorted(cluster_id for cluster_id, version in begun.items() if version > ended.get(cluster_id, -1))


def _maxima(rows: Iterable[Mapping[str, Any]], number: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for row in rows:
        cluster_id, version = row["cluster_id"], number_of(row[number])
        found[cluster_id] = max(version, found.get(cluster_id, version))
    return found


def _hold(
    pinned: dict[Table, dict[str, int | None]],
    tables: tuple[Table, ...],
    cluster_id: str,
    whole: PinnedTables,
    *,
    is_known: bool,
) -> None:
    for table in tables:
        version = whole.version_of(table)
        if version is not None or not is_known:
            pinned.setdefault(table, {})[cluster_id] = version
