"""Small share logs, written as the records of one share partition."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from coordinator_core.inference.facts.configs import ConfigRow, Configs
from coordinator_core.inference.facts.settings import InferenceSettings
from coordinator_core.inference.shares.share_days import ShareCounts, SharePlace
from coordinator_core.inference.shares.share_log import (
    NONE,
    GroupStays,
    ShareKeys,
    ShareLog,
    ShareMembers,
    ShareStates,
    ShareTransitions,
    sorted_share_log,
)
from coordinator_core.inference.shares.shares import ShareAudit, audit_share_log
from coordinator_core.replay.columnar.share_state_columnar import DELIVERY_STATES
from coordinator_core.replay.columnar.share_state_rows import RECORD_KINDS, TRANSITION_KINDS

GROUP: Final = "workers"
TOPIC: Final = "orders"
START_MS: Final = 1_700_000_000_000

State = tuple[str, int] | None
"""Delivery state and count; None: no batch."""
AV1, AV2, AV3, AV4 = (("AVAILABLE", count) for count in (1, 2, 3, 4))
ACK1, ACK2, ACK3 = (("ACKNOWLEDGED", count) for count in (1, 2, 3))
AR1, AR2, AR3, AR5 = (("ARCHIVED", count) for count in (1, 2, 3, 5))


@dataclass(frozen=True, slots=True)
class Change:
    """One transition; its kind is made from the states unless given."""

    first_offset: int
    last_offset: int
    before: State
    after: State
    kind: str = ""

    @property
    def kind_name(self) -> str:
        """As the columnar replay of share states names it."""
        if self.kind:
            return self.kind
        if self.after is None:
            return "PASSED"
        if self.after[0] == "AVAILABLE":
            return "REDELIVERABLE" if self.before is None else "RETURNED" if self.before == self.after else "RETRIED"
        return self.after[0]


@dataclass(frozen=True, slots=True)
class Record:
    """One record of a share partition; times are ms since START_MS."""

    at_ms: int
    changes: Sequence[Change] = ()
    kind: str = "UPDATE"
    start_offset: int = 0
    delivery_complete_count: int = 0
    terminal_count: int = 0
    leader_epoch: int = 0
    is_complete: bool = True
    partition: int = 0
    effective_start_offset: int | None = None
    """None: the same as `start_offset`."""

    @property
    def effective(self) -> int:
        """The start offset, moved over what was finished."""
        return self.start_offset if self.effective_start_offset is None else self.effective_start_offset


def share_log(records: Sequence[Record], order: Iterable[int] | None = None) -> ShareLog:
    """The log of the records, at log offsets 0, 1, 2 ...; with `order`, rows in another order."""
    states = [(number, record) for number, record in enumerate(records)]
    changes = [(number, change) for number, record in states for change in record.changes]
    if order is not None:
        picks = list(order)
        states = [states[pick % len(states)] for pick in picks if pick < len(states)]
        changes = [changes[pick] for pick in picks if pick < len(changes)]
    count = max(record.partition for record in records) + 1
    keys = ShareKeys([GROUP], np.zeros(count, np.int64), ["t" * 22] * count, [TOPIC] * count, np.arange(count))
    return sorted_share_log(keys, _states(states), _transitions(changes))


def _states(states: Sequence[tuple[int, Record]]) -> ShareStates:
    def column(name: str) -> np.ndarray:
        return np.array([getattr(record, name) for _, record in states], np.int64)

    return ShareStates(
        key=column("partition"),
        log_offset=np.array([number for number, _ in states], np.int64),
        at_ms=column("at_ms") + START_MS,
        record_kind=np.array([RECORD_KINDS.index(record.kind) for _, record in states], np.int8),
        leader_epoch=column("leader_epoch"),
        start_offset=column("start_offset"),
        effective_start_offset=np.array([record.effective for _, record in states], np.int64),
        delivery_complete_count=column("delivery_complete_count"),
        terminal_count=column("terminal_count"),
        is_complete=column("is_complete").astype(np.bool_),
        last_persisted=np.full(len(states), -1, np.int64),
    )


def _transitions(changes: Sequence[tuple[int, Change]]) -> ShareTransitions:
    def states(ends: Iterable[State]) -> np.ndarray:
        return np.array([NONE if end is None else DELIVERY_STATES.index(end[0]) for end in ends], np.int8)

    def counts(ends: Iterable[State]) -> np.ndarray:
        return np.array([NONE if end is None else end[1] for end in ends], np.int32)

    only = [change for _, change in changes]
    return ShareTransitions(
        log_offset=np.array([number for number, _ in changes], np.int64),
        first_offset=np.array([change.first_offset for change in only], np.int64),
        last_offset=np.array([change.last_offset for change in only], np.int64),
        from_state=states(change.before for change in only),
        from_delivery_count=counts(change.before for change in only),
        to_state=states(change.after for change in only),
        to_delivery_count=counts(change.after for change in only),
        kind=np.array([TRANSITION_KINDS.index(change.kind_name) for change in only], np.int8),
        released=np.full(len(only), -1, np.int8),
    )


def group_configs(**values: str) -> Configs:
    """Configs of the group since long ago, by name with `_` for `.`."""
    return Configs(
        ConfigRow("GROUP", GROUP, name.replace("_", "."), value, number, 0, None)
        for number, (name, value) in enumerate(values.items())
    )


LOCK_4_S: Final = group_configs(share_record_lock_duration_ms="4000", share_delivery_count_limit="5")


def members(*stays: tuple[int, int | None]) -> ShareMembers:
    """Members of the group by when they joined and left, ms since START_MS."""
    joined = np.array([START_MS + joined_ms for joined_ms, _ in stays], np.int64)
    left = np.array([2**62 if left_ms is None else START_MS + left_ms for _, left_ms in stays], np.int64)
    return {GROUP: GroupStays(joined, left)}


def audit(records: Sequence[Record], configs: Configs = LOCK_4_S, stays: ShareMembers | None = None) -> ShareAudit:
    """The audit of one share log under default settings."""
    return audit_share_log(share_log(records), configs, stays or {}, InferenceSettings())


def counts_of(counts: ShareCounts) -> list[tuple[SharePlace, int, list[int]]]:
    """Row by row: share partition, day, and the sums in the order of `COUNTED`."""
    places = (counts.places[number] for number in counts.place.tolist())
    return list(zip(places, counts.day.tolist(), counts.numbers.T.tolist(), strict=True))
