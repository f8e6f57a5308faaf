"""States of share-state columnar replays, joined and divided: a log partition may be replayed by more tasks, or by
fewer, than the last time (see `key_buckets`)."""

from collections.abc import Sequence

import numpy as np

from coordinator_core.key_buckets import KeyBucket
from coordinator_core.lookup import SharePartitionKey
from coordinator_core.share_state import kernels
from coordinator_core.share_state.columnar import ColumnarState, ranges


def columnar_state_of(states: Sequence[ColumnarState], bucket: KeyBucket | None = None) -> ColumnarState:
    """What a columnar replay goes on from that replays the share partitions of a bucket, or all, given the states that
    the columnar replays of all share partitions left."""
    if bucket is not None:
        states = [_in_bucket(state, bucket) for state in states]
    return states[0] if len(states) == 1 else _joined(states)


def _in_bucket(state: ColumnarState, bucket: KeyBucket) -> ColumnarState:
    named = zip(state.group_ids, state.topic_ids, state.partitions.tolist(), strict=True)
    is_own = bucket.has_share_partitions([SharePartitionKey(*key) for key in named])
    own = np.flatnonzero(is_own)
    numbers = np.cumsum(is_own) - 1
    is_row = is_own[state.open_states[kernels.S_KEY]]
    rows = np.cumsum(is_row) - 1
    open_states = state.open_states[:, is_row]
    changed = ranges(open_states[kernels.S_CHANGED], open_states[kernels.S_CHANGED_COUNT])
    open_states[kernels.S_KEY] = numbers[open_states[kernels.S_KEY]]
    counts = open_states[kernels.S_CHANGED_COUNT]
    open_states[kernels.S_CHANGED] = np.cumsum(counts) - counts
    key_columns = state.key_columns[own]
    has_row = key_columns[:, kernels.K_ROW] >= 0
    key_columns[has_row, kernels.K_ROW] = rows[key_columns[has_row, kernels.K_ROW]]
    return ColumnarState(
        group_ids=tuple(state.group_ids[key] for key in own.tolist()),
        topic_ids=tuple(state.topic_ids[key] for key in own.tolist()),
        partitions=state.partitions[own],
        key_columns=key_columns,
        batches=state.batches[np.repeat(is_own, state.key_columns[:, kernels.K_LENGTH])],
        open_states=open_states,
        open_changed=state.open_changed[:, changed],
    )


def _joined(states: Sequence[ColumnarState]) -> ColumnarState:
    """One behind the other: no two states have share partitions in common."""
    key_columns, open_states = [], []
    key_count = row_count = changed_count = 0
    for state in states:
        keys, rows = state.key_columns.copy(), state.open_states.copy()
        keys[keys[:, kernels.K_ROW] >= 0, kernels.K_ROW] += row_count
        rows[kernels.S_KEY] += key_count
        rows[kernels.S_CHANGED] += changed_count
        key_columns.append(keys)
        open_states.append(rows)
        key_count += len(keys)
        row_count += rows.shape[1]
        changed_count += state.open_changed.shape[1]
    return ColumnarState(
        group_ids=tuple(group_id for state in states for group_id in state.group_ids),
        topic_ids=tuple(topic_id for state in states for topic_id in state.topic_ids),
        partitions=np.concatenate([state.partitions for state in states]),
        key_columns=np.concatenate(key_columns),
        batches=np.concatenate([state.batches for state in states]),
        open_states=np.concatenate(open_states, axis=1),
        open_changed=np.concatenate([state.open_changed for state in states], axis=1),
    )
