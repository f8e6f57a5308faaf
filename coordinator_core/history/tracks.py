"""What is open of a group while its log is replayed: where each interval began."""

from collections import Counter
from dataclasses import dataclass, field

from coordinator_core.history.rows import Assigned


@dataclass(slots=True)
class Open:
    """Where an interval began."""

    log_offset: int
    timestamp_ms: int
    incarnation: int
    generation: int


@dataclass(slots=True)
class Held:
    """What a member was given of one kind in one step, and has had since: most of what it has came at once."""

    opened: Open
    assigned: Assigned
    """Never changed, as it may be what a view remembers, and never empty."""


@dataclass(slots=True)
class OpenGeneration:
    """The open generation of a group."""

    group_type: str
    incarnation: int
    generation: int
    log_offset: int
    timestamp_ms: int
    previous_generation: int | None
    is_contiguous: bool
    current_state_at: int | None


@dataclass(slots=True)
class Track:
    """What is open for one group."""

    incarnation: int = -1
    generation: OpenGeneration | None = None
    members: dict[str, Open] = field(default_factory=dict)
    attributes: dict[str, Open] = field(default_factory=dict)
    """Since when members have the attributes that they have, where these changed since they came."""
    assignments: dict[str, dict[str, list[Held]]] = field(default_factory=dict)
    """Member id -> kind -> what it has, without repetition; kinds of nothing are left out."""
    assignors: Counter[str] = field(default_factory=Counter)
    newest: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Group type -> newest (incarnation, generation)."""
    notes: list[str] = field(default_factory=list)
    """Digests of what was said of the bytes that its clients write: of protocol, kind of client, and words."""
