"""Configs over time, from the metadata log and the admin snapshots."""

import dataclasses
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any, Final

from coordinator_core.history.simple_log import ConfigChanged
from jobs.bronze.admin_snapshots import ObservedConfig
from jobs.delta.replay_runs import WholeRun
from jobs.silver.checkpoints import ReplayMode
from jobs.silver.plan import Plan
from jobs.silver.tasks import ReplayDone
from jobs.silver.topic_names import at_ms, is_shown
from schemas.cluster_metadata import TOPIC as METADATA_TOPIC
from schemas.cluster_metadata import ConfigResourceType
from schemas.tables.state import CHECKPOINTS, Checkpoint

TOPIC: Final = ConfigResourceType.TOPIC.name


def logged_changes(done: Iterable[ReplayDone], whole: WholeRun, plan: Plan) -> list[ConfigChanged]:
    """All changes of configs in the metadata log so far."""
    changes = list(chain.from_iterable(task.configs for task in done))
    if plan.is_afresh or METADATA_TOPIC in plan.made(ReplayMode.AFRESH):
        return changes
    names = [field.name for field in dataclasses.fields(ConfigChanged)]
    run = next((checkpoint.run for (topic, _), checkpoint in plan.earlier.items() if topic == METADATA_TOPIC), whole)
    former = run.read(CHECKPOINTS, names, kind=Checkpoint.CONFIG_CHANGE).to_pylist()
    return [*(ConfigChanged(**row | {"at": at_ms(row["at"])}) for row in former), *changes]


def config_rows(
    logged: Iterable[ConfigChanged], observed: Iterable[ObservedConfig], deleted: Iterable[tuple[str, int]] = ()
) -> list[dict[str, Any]]:
    """One row for each interval in which a config had a value.

    The metadata log has every change. An Admin snapshot adds a change where it differs from the log at that time: the
    log was not captured, or brokers have the value from their property files. `deleted`: topics that the metadata log
    shows deleted, and when (epoch ms). Deleting a topic deletes its configs
    (ConfigurationControlManager.deleteTopicConfigs) without a ConfigRecord.
    """
    by_place: dict[tuple[str, str, str], tuple[list[ConfigChanged], list[ObservedConfig]]] = {}
    for change in sorted(logged, key=lambda change: change.log_offset):
        place = change.resource_type, change.resource_name, change.name
        by_place.setdefault(place, ([], []))[0].append(change)
    for it in observed:
        by_place.setdefault((it.resource_type, it.resource_name, it.name), ([], []))[1].append(it)
    deletions: dict[str, list[int]] = {}
    for topic, deleted_at in deleted:
        deletions.setdefault(topic, []).append(deleted_at)
    for (kind, resource_name, name), (_, snapshots) in by_place.items():
        if kind == TOPIC and resource_name in deletions:
            ends = deletions[resource_name]
            snapshots.extend(ObservedConfig(kind, resource_name, name, None, at) for at in ends)
            snapshots.sort(key=attrgetter("at"))
    return list(chain.from_iterable(_config_intervals(*changes) for _, changes in sorted(by_place.items())))


def _config_intervals(logged: Sequence[ConfigChanged], observed: Sequence[ObservedConfig]) -> Iterator[dict[str, Any]]:
    """The intervals of one config. At equal times a logged change precedes a snapshot."""
    in_force: dict[str, Any] | None = None
    waiting = deque(observed)
    for change in (*logged, None):
        while waiting and (change is None or waiting[0].at < change.at):
            it = waiting.popleft()
            if it.value == (None if in_force is None else in_force["value"]):
                continue
            if in_force is not None and it.at < in_force["valid_from"]:
                continue  # timestamps of the log went back
            if in_force is not None:
                yield in_force | {"valid_to": it.at}
            in_force = _interval(it, it.value, None) if it.value is not None else None
        if change is not None:
            if in_force is not None:
                ended_at = max(change.at, in_force["valid_from"]) if is_shown(change.at) else change.at
                yield in_force | {"to_log_offset": change.log_offset, "valid_to": ended_at}
            in_force = _interval(change, change.value, change.log_offset) if change.value is not None else None
    if in_force is not None:
        yield in_force


def _interval(change: ConfigChanged | ObservedConfig, value: str, log_offset: int | None) -> dict[str, Any]:
    return {
        "resource_type": change.resource_type,
        "resource_name": change.resource_name,
        "name": change.name,
        "value": value,
        "from_log_offset": log_offset,
        "to_log_offset": None,
        "valid_from": change.at,
        "valid_to": None,
    }
