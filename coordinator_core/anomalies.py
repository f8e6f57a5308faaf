"""What replay says when a log contradicts its own past: one code a rule, and what Kafka throws there.

Kafka's loader stops at such a record and the whole partition fails to load. A ledger has to go on, so replay
reports an `Anomaly`, applies its best effort (each replay function says which), and leaves the judgement to
the reader.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

GROUP_TYPE_MISMATCH: Final = "GROUP_TYPE_MISMATCH"
"""A record of one group type for an id that a group of another type has."""
GROUP_TOMBSTONE_TOO_EARLY: Final = "GROUP_TOMBSTONE_TOO_EARLY"
"""A group is deleted while members, target assignments or an assignment epoch are left."""
MEMBER_TOMBSTONE_TOO_EARLY: Final = "MEMBER_TOMBSTONE_TOO_EARLY"
"""A member is deleted while its current or its target assignment is left."""
TARGET_TOMBSTONE_TOO_EARLY: Final = "TARGET_TOMBSTONE_TOO_EARLY"
"""The assignment epoch is deleted while target assignments of members are left."""
DOUBLE_OWNER: Final = "DOUBLE_OWNER"
"""A partition is given to a member of a consumer group while another member still holds it."""
CLASSIC_MEMBER_REPEATED: Final = "CLASSIC_MEMBER_REPEATED"
"""One generation of a classic group names two members of one member id or one group instance id."""


@dataclass(frozen=True, slots=True)
class Anomaly:
    """The log contradicts the state. `kafka_exception`: the exception Kafka's loader throws here."""

    code: str
    message: str
    kafka_exception: str = "IllegalStateException"


Report = Callable[[Anomaly], None]
"""Takes the anomalies as they are met. Replay itself keeps none: the caller knows offset and timestamp."""
