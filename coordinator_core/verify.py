"""Is what a broker says of itself one of the states which the ledger has of the same time?

A broker's answer is a set of facts; so is each state of the ledger between two positions of the log, the one noted
before the broker was asked and the one noted after. The answer was given at some position in between, and coordinators
show whole operations only. So where the ledger is right the answer is one of its states; where none fits, the nearest
one tells in which facts. A fact in which all states agree with each other and not with the broker is DIFFERENT; one
that changed meanwhile has MOVED_ON: the answer cannot be pinned to a state, and asking again is all that helps.

What no log holds is explained by the rules below, each by its name; what the ledger cannot know, because a part of the
log was never read, is CANNOT_TELL. A fact which is not there and one that is None are the same.
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
"""True of a group, and of a share partition, that is there. What is not there has no facts."""
TOPOLOGY_DESCRIPTION: Final[Path] = ("topology description",)
"""STORED where the broker's plugin has the description of the topology of a streams group (KIP-1331), or NOT_STORED."""
STORED: Final = "STORED"
NOT_STORED: Final = "NOT_STORED"
MEMBER_EXISTS: Final = "exists"
"""True of a member that is there: ("member", member id, "exists")."""


class Verdict(IntEnum):
    """How a comparison went; of several the greatest counts."""

    EQUAL = 0
    NOT_IN_LOG = 1
    """They differ by what no log holds."""
    MOVED_ON = 2
    """The log went on while the broker was asked, and no state of the ledger is the one that it answered."""
    CANNOT_TELL = 3
    """The broker refused to answer, or the ledger lacks a part of the log."""
    DIFFERENT = 4


class Reason(StrEnum):
    """Why a difference is none."""

    CLASSIC_REBALANCING = "CLASSIC_REBALANCING"
    """While a classic group rebalances the broker shows the members that are joining; they, and the states between two
    generations, are in no record: the log has the last synchronised generation."""
    TOPIC_DELETED = "TOPIC_DELETED"
    """A description leaves out partitions of topics which are not in the cluster's metadata any more."""
    SHARE_INITIALIZING = "SHARE_INITIALIZING"
    """The share coordinator has a share partition's first state, and the group has not noted yet that it is
    initialised: until then the broker does not list it."""
    DESCRIPTION_NOT_KEPT = "DESCRIPTION_NOT_KEPT"
    """The log says that the description of a topology was stored. The broker's plugin may have lost it since, and a
    broker that has no plugin any more tells none."""
    NOT_DROPPED_YET = "NOT_DROPPED_YET"
    """A transaction left a group without offsets. The coordinator of before Kafka 4.0 writes nothing of that, and drops
    the group when it next looks for expired offsets (offsets.retention.check.interval.ms)."""
    STREAMS_NOT_READY = "STREAMS_NOT_READY"
    """Whether all topics of a streams group are there is in the cluster's metadata: a coordinator which loaded the
    group looks there at the next heartbeat."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A fact in which an answer is unlike the nearest state of the ledger. A side without the fact has None."""

    path: Path
    described: Any
    """What the broker says."""
    known: Any
    """What the ledger says."""
    has_moved: bool
    """The ledger has more than one value of it in the time of the question."""


def differences(described: Facts, base: Facts, changes: Iterable[Mapping[Path, Any]] = ()) -> tuple[Difference, ...]:
    """In what an answer is unlike the nearest state of the ledger; nothing where it is one of them.

    States are given as the first one, and what each step changes: a path's new value, or None where the fact is gone.
    So the time goes by the number of changes, and not by that of states times facts.
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
    """What each state but the first changes in the one before it."""
    return [
        {path: after.get(path) for path in {**before, **after} if before.get(path) != after.get(path)}
        for before, after in pairwise(states)
    ]


# --- what no log holds

REBALANCING_STATES: Final = frozenset({"PreparingRebalance", "CompletingRebalance"})
OF_A_GENERATION: Final = frozenset({"state", "member count", "member", "assigned", "protocol_name"})
"""Facts of a classic group which a rebalance changes before any record does."""
STREAMS_NOT_READY_STATE: Final = "NotReady"


def explain_group(difference: Difference, described_state: str | None, topic_ids: frozenset[str]) -> Reason | None:
    """The reason that explains a difference in the description of a group; None where there is none.

    `described_state` is the group's state by the broker, `topic_ids` are those of the cluster's topics.
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
