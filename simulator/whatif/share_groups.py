"""Members of share groups under another session timeout or heartbeat interval, from the recorded epochs: bounds.

Members of share groups do not commit, so the log has no sign of life of them. A member that departed has left, or its
session expired: both look the same, and each epoch gets bounds that cover both. Joins stay the same, unless the member
had been paused and would not have expired.

Sources: GroupMetadataManager (share group heartbeat, session timers), ShareGroupConfigProvider.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from coordinator_core.confidence import GUESS, LIKELY
from coordinator_core.errors import WhatIfError
from coordinator_core.history.rows import GenerationRow, MemberRow
from coordinator_core.inference.facts.life import GroupLife
from schemas.group_types import GroupType
from simulator.whatif.first_generations import LATENCY_MS
from simulator.whatif.settings import Question
from simulator.whatif.verdicts import Bounds, Measures, Range, RebalanceAnswer, Totals, Verdict, sum_of

SHARE_MEMBER_ASSUMPTIONS: Final[Mapping[str, str]] = {
    "LEFT_OR_SESSION": "The log does not tell whether a member of a share group left or its session ran out.",
    "PAUSED_MEMBER": "A member that went and came back was paused, or was another process of the same name.",
    "SILENCE_NOT_IN_LOG": "A member that was silent for longer than the shorter session shows nowhere in the log.",
    "SESSION_RECORDED": "share.session.timeout.ms, where the log does not show it, was as given, or 45000.",
    "HEARTBEAT_RECORDED": "share.heartbeat.interval.ms was as given, or 5000.",
}
"""Name of an assumption -> its text."""


def answer_share_members(
    life: GroupLife,
    question: Question,
    session_ms: int,
    heartbeat_ms: int,
    *,
    from_ms: int | None = None,
    to_ms: int | None = None,
) -> tuple[list[RebalanceAnswer], Totals]:
    """The answer for every epoch in that time, in order, and the sums. `session_ms` and `heartbeat_ms` are the values
    in force.

    Raises WhatIfError if nothing would change.
    """
    changes = question.changed
    epochs = [
        row
        for row in life.generations
        if row.group_type == GroupType.SHARE
        and (from_ms is None or row.valid_from >= from_ms)
        and (to_ms is None or row.valid_from < to_ms)
    ]
    if not epochs:
        raise WhatIfError(f"group {life.group_id} has no epoch in the log then: choose another time or group")
    if changes.share_session_timeout_ms is not None and changes.share_heartbeat_interval_ms is not None:
        raise WhatIfError("session and heartbeat interval bear on one another: ask for one at a time")
    if changes.share_session_timeout_ms is not None:
        later_ms = changes.share_session_timeout_ms - session_ms
        if later_ms == 0:
            raise WhatIfError(f"the session time-out was {session_ms} ms already; if not, tell it with --recorded")
        judged = _Sessions(life.members, later_ms, 0)
        assumptions = {"SESSION_RECORDED", "LEFT_OR_SESSION"}
    else:
        new_ms = changes.share_heartbeat_interval_ms
        assert new_ms is not None
        if new_ms == heartbeat_ms:
            raise WhatIfError(f"the heartbeat interval was {heartbeat_ms} ms already; if not, tell it with --recorded")
        judged = _Sessions(life.members, 0, max(new_ms, heartbeat_ms))
        assumptions = {"HEARTBEAT_RECORDED", "LEFT_OR_SESSION"}
    answers = [judged.answer(row, tuple(sorted(assumptions))) for row in epochs]
    after = sum_of(answer.after.rebalances for answer in answers)
    names = {name for answer in answers for name in answer.assumptions}
    if judged.may_add:
        after = after._replace(most=None)
        names.add("SILENCE_NOT_IN_LOG")
    before, count = _epochs(len(epochs), len(epochs)), len(epochs)
    return answers, Totals(count, count, before, _epochs(*after), 0, is_whole=False, assumptions=tuple(sorted(names)))


def _epochs(least: int, most: int | None) -> Measures:
    """How many epochs; of the other measures nothing is known."""
    return Measures(Bounds(least, most), None, None, None)


class _Sessions:
    """Ends and joins of members under sessions that are longer by `later_ms`, with heartbeats up to `phase_ms`
    apart."""

    def __init__(self, members: Sequence[MemberRow], later_ms: int, phase_ms: int) -> None:
        self._members = [row for row in members if row.group_type == GroupType.SHARE]
        self._later_ms = later_ms
        self._phase_ms = phase_ms
        self.may_add = later_ms < 0 or phase_ms > 0
        """A member may have been silent for longer than the new session allows."""

    def answer(self, row: GenerationRow, assumptions: tuple[str, ...]) -> RebalanceAnswer:
        ended = [one for one in self._members if one.to_log_offset == row.from_log_offset]
        began = [one for one in self._members if one.from_log_offset == row.from_log_offset]
        causes = tuple(f"LEFT_OR_EXPIRED of {one.client_id}" for one in ended)
        causes += tuple(f"MEMBER_JOINED of {one.client_id}" for one in began)
        kept = RebalanceAnswer(
            Verdict.KEPT,
            row.valid_from,
            row.generation,
            causes,
            before=_epochs(1, 1),
            after=_epochs(1, 1),
            assumptions=assumptions,
        )
        may_be_paused = any(self._is_within(one, later) for one in ended for later in self._members)
        if may_be_paused or any(self._is_within(earlier, one) for one in began for earlier in self._members):
            return replace(
                kept,
                verdict=Verdict.CANNOT_TELL,
                possible=(Verdict.AVOIDED.value, Verdict.KEPT.value, Verdict.MOVED.value),
                after=_epochs(0, 1),
                assumptions=tuple(sorted({*assumptions, "PAUSED_MEMBER"})),
            )
        if ended:
            low_ms, high_ms = min(self._later_ms, 0) - self._phase_ms, max(self._later_ms, 0) + self._phase_ms
            return replace(
                kept,
                verdict=Verdict.CANNOT_TELL if self._later_ms else Verdict.KEPT,
                would_be="the same if it left; else when its session runs out",
                shift_ms=Range(low_ms - LATENCY_MS, high_ms + LATENCY_MS),
                confidence=None if self._later_ms else LIKELY,
            )
        # An epoch without a member that joined or departed begins at some member's next heartbeat, after partitions
        # were initialized.
        phase_ms = 0 if began else self._phase_ms
        width_ms = phase_ms + LATENCY_MS if phase_ms else 0
        return replace(kept, shift_ms=Range(-width_ms, width_ms), confidence=LIKELY if began else GUESS)

    def _is_within(self, ended: MemberRow, began: MemberRow) -> bool:
        """Whether a member, if it was paused, was back before its session would have expired under the changed
        settings.
        """
        if _name(ended) != _name(began) or ended.to_log_offset is None:
            return False
        if ended.valid_to is None or began.valid_from < ended.valid_to or self._later_ms + self._phase_ms <= 0:
            return False
        return began.valid_from - ended.valid_to <= max(self._later_ms, 0) + self._phase_ms + LATENCY_MS


def _name(member: MemberRow) -> tuple[str | None, str | None]:
    return member.client_id, member.client_host
