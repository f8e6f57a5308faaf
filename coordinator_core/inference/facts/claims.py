"""What the log says about the reason of something.

A rule speaks as if the log were whole and had one clock. What it lacks lowers the claim in one place: `Claim.weighed`.
"""

from typing import NamedTuple

from coordinator_core.confidence import CONFIDENCES, LIKELY


class Claim(NamedTuple):
    """A cause, the rule that found it, and how sure that is."""

    cause: str
    """Empty: the log does not show it. Then `method` and `confidence` are those of the fact itself."""
    method: str
    confidence: str

    def weighed(self, is_doubtful: bool, *, at_most: str = LIKELY) -> "Claim":
        """The claim, not surer than `at_most` if something that it rests on may be otherwise: records that may be
        missing, times of two clocks, a commit that may have been aborted."""
        is_lower = is_doubtful and CONFIDENCES.index(self.confidence) < CONFIDENCES.index(at_most)
        return self._replace(confidence=at_most) if is_lower else self
