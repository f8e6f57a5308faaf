"""Compares a broker's description of a group with the states that the ledger has for the same time.

A broker's answer is a set of facts. So is each state of the ledger between two log positions: the one noted before the
broker was asked, and the one noted after. The answer was given at some position in between, and coordinators expose
only whole operations. So if the ledger is right, the answer equals one of its states; if none is equal, the nearest one
shows which facts differ. A fact in which all states agree with each other and not with the broker is DIFFERENT. A fact
that changed meanwhile is MOVED_ON: the answer cannot be assigned to a state, and the only remedy is to ask again.

The rules below, each with a name, explain differences in what no log contains. What the ledger cannot know, because a
part of the log was never read, is CANNOT_TELL. An absent fact and a fact that is None are equal.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from itertools import pairwise
from typing import Any, Final

Path = tuple[str | int, ...]
"""What a fact is about: ("state",), ("member", member id, "client_id"), ("offset", "orders-3")."""
Facts = Mapping[Path, Any]

EXISTS: Final[Path] = ("exists",)
"""True for a group or share partition that exists. One that does not exist has no facts."""
TOPOLOGY_DESCRIPTION: Final[Path] = ("topology description",)
"""STORED if the broker's plugin has the topology description of a streams group (KIP-1331), else NOT_STORED."""
STORED: Final = "STORED"
NOT_STORED: Final = "NOT_STORED"
MEMBER_EXISTS: Final = "exists"
"""True for a member that exists: ("member", member id, "exists")."""


class Verdict(IntEnum):
    """The result of a comparison. The greatest of several counts."""

    EQUAL = 0
    NOT_IN_LOG = 1
    """They differ only in what no log contains."""
    MOVED_ON = 2
    """The log went on while the broker was asked, and no state of the ledger equals the answer."""
    CANNOT_TELL = 3
    """The broker refused to answer, or the ledger lacks a part of the log."""
    DIFFERENT = 4


class Reason(StrEnum):
    """Why a difference is expected."""

    CLASSIC_REBALANCING = "CLASSIC_REBALANCING"
    """While a classic group rebalances, the broker shows the members that are joining. No record has them, nor the
    states between two generations: the log has the last synchronized generation."""
    TOPIC_DELETED = "TOPIC_DELETED"
    """A description leaves out partitions of topics that are no longer in the cluster's metadata."""
    SHARE_INITIALIZING = "SHARE_INITIALIZING"
    """The share coordinator has a share partition's first state, and the group has not yet recorded that the partition
    is initialized. Until then the broker does not list it."""
    DESCRIPTION_NOT_KEPT = "DESCRIPTION_NOT_KEPT"
    """The log says that the topology's description was stored. The broker's plugin may have lost it since, and a broker
    without the plugin returns none."""
    NOT_DROPPED_YET = "NOT_DROPPED_YET"
    """A transaction left a group without offsets. A coordinator before Kafka 4.0 writes no record of that, and drops
    the group at the next check for expired offsets (offsets.retention.check.interval.ms)."""
    STREAMS_NOT_READY = "STREAMS_NOT_READY"
    """Whether all topics of a streams group exist is in the cluster's metadata. A coordinator that loaded the group
    checks that at the next heartbeat."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A fact in which an answer differs from the nearest state of the ledger. A side without the fact has None."""

    path: Path
    described: Any
    """The broker's value."""
    known: Any
    """The ledger's value."""
    has_moved: bool
    """The ledger has more than one value of it within the time of the question."""


def differences(described: Facts, base: Facts, changes: Iterable[Mapping[Path, Any]] = ()) -> tuple[Difference, ...]:
    """The facts in which an answer differs from the nearest state of the ledger; empty if the answer equals a state.

    `base` is the first state; `changes` has what each later state changes: a path's new value, or None if the fact
    is removed. So the cost grows with the number of changes, not with states times facts.
    """
    steps = list(changes)
    state: dict[Path, Any] = dict(base)
    unlike = {path for path in {**described, **state} if described.get(path) != state.get(path)}
    fewest, nearest = len(unlike), 0
    for number, step in enumerate(steps, 1):
        state.update(step)
        for path in step:
            is_like = described.get(path) == state[path]
            unlike.discard(path) if is_like else unlike.add(path)
        if len(unlike) < fewest:
            fewest, nearest = len(unlike), number
    if not fewest:
        return ()
    known: dict[Path, Any] = dict(base)
    for step in steps[:nearest]:
        known.update(step)
    moved = {path for step in steps for path in step}
    return tuple(
        Difference(path, described.get(path), known.get(path), path in moved)
        for path in sorted({**described, **known}, key=str)
        if described.get(path) != known.get(path)
    )


def changes_between(states: Sequence[Facts]) -> list[dict[Path, Any]]:
    """For each state but the first: what it changes compared with the state before it."""
    return [
        {path: after.get(path) for path in {**before, **after} if before.get(path) != after.get(path)}
        for before, after in pairwise(states)
    ]


# --- what no log holds

REBALANCING_STATES: Final = frozenset({"PreparingRebalance", "CompletingRebalance"})
OF_A_GENERATION: Final = frozenset({"state", "member count", "member", "assigned", "protocol_name"})
"""Facts of a classic group that a rebalance changes before any record does."""
STREAMS_NOT_READY_STATE: Final = "NotReady"


def explain_group(difference: Difference, described_state: str | None, topic_ids: frozenset[str]) -> Reason | None:
    """The reason that explains a difference in the description of a group; None if it is unexplained.

    `described_state` is the group's state according to the broker, `topic_ids` are those of the cluster's topics.
    """
    kind = difference.path[0]
    if described_state in REBALANCING_STATES and kind in OF_A_GENERATION:
        return Reason.CLASSIC_REBALANCING
    if kind == "state" and difference.described == STREAMS_NOT_READY_STATE:
        return Reason.STREAMS_NOT_READY
    if difference.path == TOPOLOGY_DESCRIPTION and difference.described == NOT_STORED:
        return Reason.DESCRIPTION_NOT_KEPT
    is_unnamed = difference.described is None and isinstance(difference.known, str)
    if kind in ("assigned", "target") and is_unnamed and difference.known not in topic_ids:
        return Reason.TOPIC_DELETED
    return None
