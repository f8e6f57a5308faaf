"""Joins and divides states of offset-commit columnar replays: a log partition may be replayed by more or fewer tasks
than the last time (see `key_buckets`)."""

from collections.abc import Sequence

import numpy as np

from coordinator_core.bytes.interning import Interned, Interner
from coordinator_core.bytes.log.chunk import I32, U8, BoolArray
from coordinator_core.bytes.log.kernels import read_only
from coordinator_core.replay.columnar import offsets_kernels as kernels
from coordinator_core.replay.columnar.offsets_columnar import NO_WRITER, ColumnarState, alone
from coordinator_core.replay.columnar.offsets_kernels import KeyArrays, RowArrays
from coordinator_core.replay.key_buckets import KeyBucket


def columnar_state_of(states: Sequence[ColumnarState], bucket: KeyBucket | None = None) -> ColumnarState:
    """The state from which a columnar replay of a bucket's groups, or of all, continues, given the states of all
    groups."""
    if bucket is None and len(states) == 1:
        return states[0]
    joining = _Joining()
    for state in states:
        joining.add(state, bucket)
    return joining.joined()


class _Joining:
    def __init__(self) -> None:
        self._keys = Interner()
        self._groups = Interner()
        self._topics = Interner()
        self._topic_ids = Interner()
        self._key_arrays: list[KeyArrays] = []
        self._group_touched: list[BoolArray] = []
        self._carried: list[RowArrays] = []
        self._metadata: list[U8] = []
        self._metadata_bytes = 0
        self._writer = NO_WRITER

    def add(self, state: ColumnarState, bucket: KeyBucket | None) -> None:
        """Add the groups of a state that are in the bucket; no two states have groups in common."""
        self._writer = state.writer  # the tasks of a log partition read the same batches
        is_own = np.ones(len(state.group_touched), np.bool_) if bucket is None else bucket.has_interned(state.groups)
        groups = _added(self._groups, state.groups, is_own)
        self._group_touched.append(state.group_touched[is_own])
        topics, topic_ids = self._topics.add(state.topics), self._topic_ids.add(state.topic_ids)

        of_key = state.key_arrays.group
        # a key that only the codec can read belongs to a repaired text, which has a key of its own
        is_kept = (of_key >= 0) & is_own[np.maximum(of_key, 0)] if len(is_own) else np.zeros(len(of_key), np.bool_)
        keys = _added(self._keys, state.keys, is_kept)
        kept = KeyArrays._make(column[is_kept] for column in state.key_arrays)
        self._key_arrays.append(kept._replace(group=groups[kept.group], topic=topics[kept.topic]))

        own = np.flatnonzero(is_own[state.carried.group])
        carried = RowArrays._make(column[own] for column in state.carried)
        has_id = carried.topic_id != kernels.NOTHING
        carried.topic_id[has_id] = topic_ids[carried.topic_id[has_id]]
        self._carried.append(
            carried._replace(
                key=keys[carried.key],
                group=groups[carried.group],
                topic=topics[carried.topic],
                # counted from the end: ~position
                metadata_position=carried.metadata_position - self._metadata_bytes,
            )
        )
        self._metadata.append(state.carried_metadata)
        self._metadata_bytes += len(state.carried_metadata)

    def joined(self) -> ColumnarState:
        """The state of everything added."""
        carried = RowArrays._make(np.concatenate(column) for column in zip(*self._carried, strict=True))
        order = np.argsort(carried.log_offset, kind="stable")
        carried, metadata = alone(
            RowArrays._make(column[order] for column in carried), read_only(np.concatenate(self._metadata))
        )
        return ColumnarState(
            keys=self._keys.export(),
            groups=self._groups.export(),
            topics=self._topics.export(),
            topic_ids=self._topic_ids.export(),
            key_arrays=KeyArrays._make(np.concatenate(column) for column in zip(*self._key_arrays, strict=True)),
            group_touched=np.concatenate(self._group_touched),
            carried=carried,
            carried_metadata=metadata,
            writer=self._writer,
        )


def _added(interner: Interner, interned: Interned, is_wanted: BoolArray) -> I32:
    """The new ids of some keys, by their old ids; -1: not wanted."""
    ids = np.full(len(is_wanted), -1, np.int32)
    ids[is_wanted] = interner.add(interned.taken(np.flatnonzero(is_wanted)))
    return ids
