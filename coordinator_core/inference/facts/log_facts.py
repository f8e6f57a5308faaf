"""What is known of a log partition itself: what of it is missing, which leaders wrote it, where its time went back.

Whether something is certain often depends on that, and on nothing else in this package: absence proves nothing behind a
missing part, and times of two clocks make no duration.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

NONE_MS = -1
"""A missing time, in columns."""
WHOLE: Final = 2**63 - 1
"""Greater than all offsets."""
UNKNOWN_LEADERS: Final = ((0, WHOLE),)
"""`LogFacts.leaderless` of a log partition of which no leader is known."""


@dataclass(frozen=True, slots=True)
class LogFacts:
    """Facts about one log partition; `of` gives them as they concern one group. Offsets are ascending."""

    whole_to: int = WHOLE
    """The first offset that is missing, compacted or not captured: after it, absence proves nothing. -1: it is not
    known what is missing."""
    clock_steps: tuple[int, ...] = ()
    """Where the time went back."""
    leader_changes: tuple[int, ...] = ()
    """From where on another leader, or another term of the same one, wrote it. Each leader has its own clock, and loads
    groups with new timeouts."""
    leaderless: tuple[tuple[int, int], ...] = ()
    """Ranges, both ends inclusive, in which nothing shows which leader wrote a record: message formats before 2 and
    rows of dumps have no leader epoch."""
    gaps: tuple[int, ...] = ()
    """Where unread parts begin (never captured, or unreadable), and where an erasure changed ids."""
    are_gaps_known: bool = True
    """False: of `holes` it is not known which ones were made by compaction, so that any may be a gap."""
    holes: tuple[int, ...] = ()
    """Where missing parts begin, for any reason, compaction included."""
    hole_ends: tuple[int, ...] = ()
    """For each of `holes`, the time (ms) of a record behind it; NONE_MS if none has one."""
    unread: Mapping[str, int] = field(default_factory=dict)
    """By group, its first record that cannot be read, such as those of early access releases."""
    unread_from: int = WHOLE
    """That of the one group: from there on it may have members that no other record shows."""

    def of(self, group_id: str) -> "LogFacts":
        """The same, as far as it concerns a group."""
        unread_from = self.unread.get(group_id, WHOLE)
        if unread_from == WHOLE:
            return self
        return replace(self, unread_from=unread_from, whole_to=min(self.whole_to, unread_from))

    @property
    def is_whole(self) -> bool:
        """Whether nothing is missing, for any reason: no place is behind a gap or a hole."""
        return not (self.gaps or self.holes) and self.whole_to >= 0 and self.unread_from == WHOLE

    def has_leader_change(self, from_log_offset: int, to_log_offset: int) -> bool:
        """Whether different leaders wrote the two places. Then their times may be of different clocks."""
        return is_any_between(self.leader_changes, from_log_offset, to_log_offset)

    def is_of_one_leader(self, from_log_offset: int, to_log_offset: int) -> bool:
        """Whether it is known that one leader, in one term, wrote everything between two places."""
        if self.has_leader_change(from_log_offset, to_log_offset):
            return False
        return all(last < from_log_offset or first > to_log_offset for first, last in self.leaderless)

    def has_gap(self, from_log_offset: int, to_log_offset: int) -> bool:
        """Whether between two places a part of the log is missing, or the group's records become unreadable. Then
        anything may have happened there."""
        is_missing = is_any_between(self.gaps, from_log_offset, to_log_offset)
        return is_missing or from_log_offset < self.unread_from <= to_log_offset

    def may_have_gap(self, from_log_offset: int, to_log_offset: int) -> bool:
        """The same, also if it is only not known that compaction made a hole. Then nothing is certain; but what the
        group's rows say is shown, as most holes are compaction's."""
        is_doubtful = not self.are_gaps_known and self.has_hole(from_log_offset, to_log_offset)
        return is_doubtful or self.has_gap(from_log_offset, to_log_offset)

    def has_hole(self, from_log_offset: int, to_log_offset: int) -> bool:
        """Whether records of the group may be missing between two places, for any reason.

        Compaction leaves the newest record of each key. But a record that an earlier capture read may have had
        successors that compaction removed before the next capture.
        """
        is_missing = is_any_between(self.holes, from_log_offset, to_log_offset)
        return is_missing or self.whole_to < 0 or self.unread_from <= to_log_offset

    def has_hole_since(self, from_log_offset: int, to_log_offset: int, since_ms: int) -> bool:
        """Whether records of the group since a time may be missing between two places."""
        if not self.has_hole(from_log_offset, to_log_offset):
            return False
        if self.whole_to < 0 or self.unread_from <= to_log_offset:
            return True
        between = slice(bisect_right(self.holes, from_log_offset), bisect_right(self.holes, to_log_offset))
        return any(end_ms == NONE_MS or end_ms > since_ms for end_ms in self.hole_ends[between])

    def has_clock_step(self, from_log_offset: int, to_log_offset: int) -> bool:
        """Whether the time went back after the first place and up to the second. Then their difference is not a
        duration.
        """
        return is_any_between(self.clock_steps, from_log_offset, to_log_offset)


WHOLE_LOG: Final = LogFacts()
"""Nothing is missing, and one leader wrote it."""
LEADERLESS_LOG: Final = LogFacts(leaderless=UNKNOWN_LEADERS)
"""Nothing is missing, and nothing shows who wrote it."""


def is_any_between(places: Sequence[int], from_log_offset: int, to_log_offset: int) -> bool:
    """Whether any of some log offsets, ascending, is after the first place and up to the second."""
    return bool(places) and bisect_right(places, from_log_offset) < bisect_right(places, to_log_offset)
