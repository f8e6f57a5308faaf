"""A group or share partition that cannot be replayed does not keep others from silver.

A replay processes all keys of a log partition at once, in compiled loops. If that fails, the keys at fault are
searched: first those that the error names, then by bisection over key slots, then key by key within a slot. The other
keys are replayed without their records. If no key is at fault, the log partition is left out. The next run tries again
(`jobs.silver.plan`).
"""

import traceback
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from coordinator_core.errors import ReplayFault
from coordinator_core.replay.key_buckets import Key, KeyBucket, bucket_of_no_key, bucket_of_slots
from coordinator_core.replay.lookup import SharePartitionKey

NAMED_MAX: Final = 32
"""Number of keys taken from errors, one after another; where more fail, bisection over all keys follows."""
ATTEMPTS_MAX: Final = 512
"""After this many attempts, each of which reads the whole log partition, the search ends and the log partition is
left out."""
TEXT_MAX: Final = 500
"""Maximum length of an exception's text."""


class Fault(NamedTuple):
    """Why a replay failed, and where."""

    text: str
    group_id: str | None
    """The group, if the error names it."""
    log_offset: int | None
    """The record that failed, or the first record that was read together with it."""

    @classmethod
    def of(cls, error: Exception, log_offset: int | None) -> "Fault":
        """From an exception. `log_offset`: used if the exception names no record."""
        if not isinstance(error, ReplayFault):
            return cls(fault_text(error), None, log_offset)
        cause = error.__cause__
        text = fault_text(cause) if isinstance(cause, Exception) else error.message
        return cls(text, error.group_id, log_offset if error.log_offset is None else error.log_offset)


@dataclass(frozen=True, slots=True)
class ReplayFailure:
    """What a run failed to replay: a group, a share partition, or a log partition."""

    log_topic: str
    log_partition: int
    key: Key | None
    """None: the log partition."""
    fault: Fault
    from_offset: int
    """The offset from which that replay began: silver lacks the records from there on."""

    @property
    def group_id(self) -> str | None:
        """The group, or the group of the share partition."""
        return self.key.group_id if isinstance(self.key, SharePartitionKey) else self.key


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Which parts of a log partition are not replayed, and why."""

    failures: tuple[ReplayFailure, ...] = ()

    @property
    def is_all(self) -> bool:
        """Is the whole log partition left out?"""
        return any(failure.key is None for failure in self.failures)

    @property
    def keys(self) -> frozenset[Key]:
        """The groups or share partitions left out."""
        return frozenset(failure.key for failure in self.failures if failure.key is not None)


NOTHING_LEFT_OUT: Final = LeftOut()

Attempt = Callable[[KeyBucket | None, Set[Key]], Fault | None]
"""Replays a log partition without writing: the keys of a bucket (None: all), except some. Returns its fault, if any."""


@dataclass(slots=True)
class Search:
    """Searches for the keys that make the replay of a log partition fail."""

    attempt: Attempt
    keys_of: Callable[[KeyBucket], Set[Key]]
    """The keys of a bucket that have records to be replayed."""
    is_share: bool
    slots: Callable[[], Sequence[int]]
    """Slots of the keys that have records to be replayed."""
    known: Set[Key] = frozenset()
    """Keys that are left out already."""
    _attempt_count: int = field(default=0, init=False)

    def find(self) -> dict[Key, Fault] | Fault | None:
        """The keys at fault, with the fault of each; one fault where no key is to blame; None where nothing fails."""
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
    """An exception in one line: its type, its text, and its place in the code."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    text = str(error)
    if len(text) > TEXT_MAX:
        # cut between words: an erasure would not find part of an id
        kept = text[:TEXT_MAX]
        text = kept if text[TEXT_MAX].isspace() else kept[: kept.rfind(" ") + 1]
    return f"{type(error).__name__}: {text}{place}"
