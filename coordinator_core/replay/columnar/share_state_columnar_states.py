"""Joins and divides states of share-state columnar replays: a log partition may be replayed by more or fewer tasks than
the last time (see `key_buckets`)."""

from collections.abc import Sequence

import numpy as np

from coordinator_core.replay.columnar.share_state_columnar import ColumnarState
from coordinator_core.replay.columnar.share_state_rows import ranges
from coordinator_core.replay.key_buckets import KeyBucket
from coordinator_core.replay.lookup import SharePartitionKey


def columnar_state_of(states: Sequence[ColumnarState], bucket: KeyBucket | None = None) -> ColumnarState:
    """The state from which a columnar replay of a bucket's share partitions, or of all, continues, given the states of
    all share partitions."""
    if bucket is not None:
        states = [_in_bucket(state, bucket) for state in states]
    return states[0] if len(states) == 1 else _joined(states)


def _in_bucket(state: ColumnarState, bucket: KeyBucket) -> ColumnarState:
    named = zip(state.group_ids, state.topic_ids, state.partitions.tolist(), strict=True)
    is_own = bucket.has_share_partitions([SharePartitionKey(*key) for key in named])
    own = np.flatnonzero(is_own)
    numbers = np.cumsum(is_own) - 1
    is_row = is_own[state.open_states["key"]]
    rows = np.cumsum(is_row) - 1
    open_states = state.open_states[is_row]
    changed = ranges(open_states["changed"], open_states["changed_count"])
    open_states["key"] = numbers[open_states["key"]]
    open_states["changed"] = np.cumsum(open_states["changed_count"]) - open_states["changed_count"]
    keys = state.keys[own]
    has_row = keys["row"] >= 0
    keys["row"][has_row] = rows[keys["row"][has_row]]
    return ColumnarState(
        group_ids=tuple(state.group_ids[key] for key in own.tolist()),
        topic_ids=tuple(state.topic_ids[key] for key in own.tolist()),
        partitions=state.partitions[own],
        keys=keys,
        batches=state.batches[np.repeat(is_own, state.keys["length"])],
        open_states=open_states,
        open_changed=state.open_changed[changed],
    )


def _joined(states: Sequence[ColumnarState]) -> ColumnarState:
    """Concatenate the states: no two of them have share partitions in common."""
    all_keys, open_states = [], []
    key_count = row_count = changed_count = 0
    for state in states:
        keys, rows = state.keys.copy(), state.open_states.copy()
        keys["row"][keys["row"] >= 0] += row_count
        rows["key"] += key_count
        rows["changed"] += changed_count
        all_keys.append(keys)
        open_states.append(rows)
        key_count += len(keys)
        row_count += len(rows)
        changed_count += len(state.open_changed)
    return ColumnarState(
        group_ids=tuple(group_id for state in states for group_id in state.group_ids),
        topic_ids=tuple(topic_id for state in states for topic_id in state.topic_ids),
        partitions=np.concatenate([state.partitions for state in states]),
        keys=np.concatenate(all_keys),
        batches=np.concatenate([state.batches for state in states]),
        open_states=np.concatenate(open_states),
        open_changed=np.concatenate([state.open_changed for state in states]),
    )
