"""Contradictions in a log: one code for each rule of the coordinator, and the exception that Kafka throws there.

Kafka's loader stops at such a record, and the whole partition fails to load. A ledger has to go on, so replay reports
an `Anomaly`, applies its best effort (each replay function says which), and leaves the judgement to the reader.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

GROUP_TYPE_MISMATCH: Final = "GROUP_TYPE_MISMATCH"
"""A record of one group type has the id of a group of another type."""
GROUP_TOMBSTONE_TOO_EARLY: Final = "GROUP_TOMBSTONE_TOO_EARLY"
"""A group is deleted while it still has members, target assignments or an assignment epoch."""
MEMBER_TOMBSTONE_TOO_EARLY: Final = "MEMBER_TOMBSTONE_TOO_EARLY"
"""A member is deleted while it still has a current assignment or a target assignment."""
TARGET_TOMBSTONE_TOO_EARLY: Final = "TARGET_TOMBSTONE_TOO_EARLY"
"""The assignment epoch is deleted while members still have target assignments."""
DOUBLE_OWNER: Final = "DOUBLE_OWNER"
"""A partition is assigned to a member of a consumer group while another member still owns it."""
CLASSIC_MEMBER_REPEATED: Final = "CLASSIC_MEMBER_REPEATED"
"""One generation of a classic group has two members with the same member id or the same group instance id."""


@dataclass(frozen=True, slots=True)
class Anomaly:
    """The log contradicts the state. `kafka_exception`: the exception that Kafka's loader throws here."""

    code: str
    message: str
    kafka_exception: str = "IllegalStateException"


Report = Callable[[Anomaly], None]
"""Receives each anomaly as replay meets it. Replay keeps none of them: the caller knows offset and timestamp."""
