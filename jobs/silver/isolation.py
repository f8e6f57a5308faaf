"""One group or share partition that cannot be replayed keeps no other from silver.

A replay runs for all keys of a log partition at once, in compiled loops. Only where that fails are the keys looked for
that make it fail: those that the fault names, then halves of all slots of keys, then the keys of a slot one by one. The
others are replayed without the records of these. Where no key can be blamed, the log partition itself is left out. The
next run tries again (`jobs.silver.plan`).
"""

import traceback
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from coordinator_core.errors import ReplayFault
from coordinator_core.key_buckets import (
    Key,
    KeyBucket,
    bucket_of_no_key,
    bucket_of_slots,
)
from coordinator_core.lookup import SharePartitionKey

NAMED_MAX: Final = 32
"""Keys that faults name one after another; where more fail, all keys are tried by halves."""
ATTEMPTS_MAX: Final = 512
"""Where so many do not find the keys, it is the log partition that cannot be replayed: each reads all of it."""
TEXT_MAX: Final = 500
"""Characters that are kept of the text of an exception."""


class Fault(NamedTuple):
    """Why a replay failed, and where."""

    text: str
    group_id: str | None
    """Whose, where the fault names it."""
    log_offset: int | None
    """The record at which it failed, or the first one that was read together with it."""

    @classmethod
    def of(cls, error: Exception, log_offset: int | None) -> "Fault":
        """From an exception. `log_offset`: where it names no record."""
        if not isinstance(error, ReplayFault):
            return cls(fault_text(error), None, log_offset)
        cause = error.__cause__
        text = fault_text(cause) if isinstance(cause, Exception) else error.message
        return cls(text, error.group_id, log_offset if error.log_offset is None else error.log_offset)


@dataclass(frozen=True, slots=True)
class ReplayFailure:
    """What a run could not replay: a group or share partition, or all of a log partition."""

    log_topic: str
    log_partition: int
    key: Key | None
    """None: all of the log partition."""
    fault: Fault
    from_offset: int
    """Where the replay began that lacks it: silver has nothing of it from there on."""

    @property
    def group_id(self) -> str | None:
        """The group, where it is one, or the share partition's."""
        return self.key.group_id if isinstance(self.key, SharePartitionKey) else self.key


@dataclass(frozen=True, slots=True)
class LeftOut:
    """What of a log partition is not replayed, and why."""

    failures: tuple[ReplayFailure, ...] = ()

    @property
    def is_all(self) -> bool:
        """The log partition itself."""
        return any(failure.key is None for failure in self.failures)

    @property
    def keys(self) -> frozenset[Key]:
        """Groups or share partitions."""
        return frozenset(failure.key for failure in self.failures if failure.key is not None)


NOTHING_LEFT_OUT: Final = LeftOut()

Attempt = Callable[[KeyBucket | None, Set[Key]], Fault | None]
"""Replays a log partition without writing anything: the keys of a bucket, or all that are to be replayed, but for some.
Answers how it failed."""


@dataclass(slots=True)
class Search:
    """Looks for the keys that make the replay of a log partition fail."""

    attempt: Attempt
    keys_of: Callable[[KeyBucket], Set[Key]]
    """The keys of a bucket with records that are to be replayed."""
    is_share: bool
    slots: Callable[[], Sequence[int]]
    """Of the keys with records that are to be replayed."""
    known: Set[Key] = frozenset()
    """Keys that are left out anyway."""
    _attempt_count: int = field(default=0, init=False)

    def find(self) -> dict[Key, Fault] | Fault | None:
        """The keys, with the fault of each; a fault alone where no key can be blamed; None: nothing fails."""
        try:
            fault = self._try(None, frozenset())
            if fault is None:
                return None
            return self._found() or fault
        except _TooMany as many:
            return many.fault

    def _found(self) -> dict[Key, Fault] | Fault | None:
        found: dict[Key, Fault] = {}
        fault: Fault | None = None
        while not self.is_share and len(found) < NAMED_MAX:
            fault = self._try(None, found.keys())
            if fault is None:
                return found
            if fault.group_id is None or fault.group_id in found:
                break
            found[fault.group_id] = fault
        fault = self._try(bucket_of_no_key(is_share=self.is_share), frozenset())
        if fault is not None:
            return fault
        for slot in self._failing_slots(self.slots()):
            bucket = bucket_of_slots((slot,), is_share=self.is_share)
            keys = self.keys_of(bucket) - self.known
            for key in sorted(keys - found.keys()):
                fault = self._try(bucket, keys - {key})
                if fault is not None:
                    found[key] = fault
        return self._try(None, found.keys()) or found

    def _failing_slots(self, slots: Sequence[int]) -> Iterator[int]:
        if not slots or self._try(bucket_of_slots(slots, is_share=self.is_share), frozenset()) is None:
            return
        if len(slots) == 1:
            yield slots[0]
            return
        middle = len(slots) // 2
        yield from self._failing_slots(slots[:middle])
        yield from self._failing_slots(slots[middle:])

    def _try(self, bucket: KeyBucket | None, left_out: Set[Key]) -> Fault | None:
        fault = self.attempt(bucket, self.known | left_out)
        self._attempt_count += 1
        if fault is not None and self._attempt_count > ATTEMPTS_MAX:
            raise _TooMany(fault)
        return fault


class _TooMany(Exception):
    def __init__(self, fault: Fault) -> None:
        super().__init__(fault)
        self.fault = fault


def fault_text(error: Exception) -> str:
    """An exception in one line: its kind, its text, and where in the code it came up."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    text = str(error)
    if len(text) > TEXT_MAX:
        # whole words alone: an erasure does not find an id of which a part is left
        kept = text[:TEXT_MAX]
        text = kept if text[TEXT_MAX].isspace() else kept[: kept.rfind(" ") + 1]
    return f"{type(error).__name__}: {text}{place}"
