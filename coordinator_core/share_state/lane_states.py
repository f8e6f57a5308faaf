"""States of share-state lanes, joined and divided: a log partition may be replayed by more tasks, or by fewer, than the
last time (see `key_buckets`)."""

from collections.abc import Sequence

import numpy as np

from coordinator_core.key_buckets import KeyBucket
from coordinator_core.lookup import SharePartitionKey
from coordinator_core.share_state import fast
from coordinator_core.share_state.lane import LaneState, ranges


def lane_state_of(states: Sequence[LaneState], bucket: KeyBucket | None = None) -> LaneState:
    """What a lane goes on from that replays the share partitions of a bucket, or all, given the states that the lanes
    of all share partitions left."""
    if bucket is not None:
        states = [_in_bucket(state, bucket) for state in states]
    return states[0] if len(states) == 1 else _joined(states)


def _in_bucket(state: LaneState, bucket: KeyBucket) -> LaneState:
    named = zip(state.group_ids, state.topic_ids, state.partitions.tolist(), strict=True)
    is_own = bucket.has_share_partitions([SharePartitionKey(*key) for key in named])
    own = np.flatnonzero(is_own)
    numbers = np.cumsum(is_own) - 1
    is_row = is_own[state.open_states[fast.S_KEY]]
    rows = np.cumsum(is_row) - 1
    open_states = state.open_states[:, is_row]
    changed = ranges(open_states[fast.S_CHANGED], open_states[fast.S_CHANGED_COUNT])
    open_states[fast.S_KEY] = numbers[open_states[fast.S_KEY]]
    counts = open_states[fast.S_CHANGED_COUNT]
    open_states[fast.S_CHANGED] = np.cumsum(counts) - counts
    key_columns = state.key_columns[own]
    has_row = key_columns[:, fast.K_ROW] >= 0
    key_columns[has_row, fast.K_ROW] = rows[key_columns[has_row, fast.K_ROW]]
    return LaneState(
        group_ids=tuple(state.group_ids[key] for key in own.tolist()),
        topic_ids=tuple(state.topic_ids[key] for key in own.tolist()),
        partitions=state.partitions[own],
        key_columns=key_columns,
        batches=state.batches[np.repeat(is_own, state.key_columns[:, fast.K_LENGTH])],
        open_states=open_states,
        open_changed=state.open_changed[:, changed],
    )


def _joined(states: Sequence[LaneState]) -> LaneState:
    """One behind the other: no two states have share partitions in common."""
    key_columns, open_states = [], []
    key_count = row_count = changed_count = 0
    for state in states:
        keys, rows = state.key_columns.copy(), state.open_states.copy()
        keys[keys[:, fast.K_ROW] >= 0, fast.K_ROW] += row_count
        rows[fast.S_KEY] += key_count
        rows[fast.S_CHANGED] += changed_count
        key_columns.append(keys)
        open_states.append(rows)
        key_count += len(keys)
        row_count += rows.shape[1]
        changed_count += state.open_changed.shape[1]
    return LaneState(
        group_ids=tuple(group_id for state in states for group_id in state.group_ids),
        topic_ids=tuple(topic_id for state in states for topic_id in state.topic_ids),
        partitions=np.concatenate([state.partitions for state in states]),
        key_columns=np.concatenate(key_columns),
        batches=np.concatenate([state.batches for state in states]),
        open_states=np.concatenate(open_states, axis=1),
        open_changed=np.concatenate([state.open_changed for state in states], axis=1),
    )
