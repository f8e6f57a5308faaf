"""Answers as rows of one type: for the table, for JSON and CSV, and for the report."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from coordinator_core.confidence import GUESS, LIKELY
from coordinator_core.errors import WhatIfError
from coordinator_core.inference.facts.configs import NO_CONFIGS, SHARE_SESSION_TIMEOUT, Configs
from coordinator_core.inference.facts.life import GroupLife
from coordinator_core.inference.groups.leave_reasons import UNKNOWN
from coordinator_core.text import counted
from schemas.group_types import GroupType
from simulator.whatif.compare import compare
from simulator.whatif.settings import Question
from simulator.whatif.share_groups import SHARE_MEMBER_ASSUMPTIONS, answer_share_members
from simulator.whatif.shares import SHARE_ASSUMPTIONS, InForce, Transition, answer_shares
from simulator.whatif.timeline import timeline_of
from simulator.whatif.verdicts import (
    ASSUMPTIONS,
    REBALANCE,
    TOTAL,
    Bounds,
    Measures,
    Range,
    RebalanceAnswer,
    Totals,
    Verdict,
    WhatIfRow,
)

ALL_ASSUMPTIONS: Final[Mapping[str, str]] = {**ASSUMPTIONS, **SHARE_ASSUMPTIONS, **SHARE_MEMBER_ASSUMPTIONS}
"""Name of an assumption -> its text."""

MEASURED: Final = Measures._fields
"""The measures, as their columns begin."""

WOULD_BE: Final[Mapping[Verdict, str]] = {
    Verdict.KEPT: "the same",
    Verdict.MOVED: "at another time",
    Verdict.AVOIDED: "none",
    Verdict.MERGED: "one with others",
    Verdict.SPLIT: "several",
    Verdict.ADDED: "one more",
    Verdict.MAY_BE_ADDED: "one more, unless the member was not silent",
    Verdict.NOT_REPRODUCED: "unknown: the log does not show its cause",
    Verdict.NOT_PLAYED: "the same: its members joined before",
}


def answer_group(
    life: GroupLife,
    question: Question,
    configs: Configs = NO_CONFIGS,
    *,
    from_ms: int | None = None,
    to_ms: int | None = None,
) -> list[WhatIfRow]:
    """Each rebalance of a classic or consumer group, in order of time, and the total.

    Raises WhatIfError if the log or the question leaves nothing to answer.
    """
    if question.changed.is_of_shares:
        raise WhatIfError(f"group {life.group_id} is no share group: delivery limit and lock duration are for those")
    timeline = timeline_of(life, question.recorded, configs, from_ms=from_ms, to_ms=to_ms)
    answers, totals = compare(timeline, question.changed)
    frame = (timeline.group_id, timeline.group_type)
    asked = " ".join(question.texts)
    cause_of = {(one.generation, one.at_ms): one.cause for one in timeline.rebalances}
    release = timeline.release
    version, source = str(release.version), str(release.source)
    rows = [
        _rebalance_row(frame, asked, one, cause_of.get((one.generation or 0, one.at_ms), UNKNOWN)) for one in answers
    ]
    reproduced = f"{totals.reproduced_count} of {counted(totals.recorded_count, 'rebalance')} reproduced"
    recorded = f"{reproduced}, {counted(totals.hypotheses, 'reading')}"
    rows.append(_total_row(frame, asked, recorded, answers, totals))
    return [row._replace(kafka_version=version, kafka_version_source=source) for row in rows]


NO_CAUSE: Final = "no cause in the log"


def _rebalance_row(frame: tuple[str, str], asked: str, answer: RebalanceAnswer, cause: str) -> WhatIfRow:
    """`cause`: of a recorded rebalance, by gold."""
    would_be = answer.would_be or WOULD_BE.get(answer.verdict) or "one of: " + ", ".join(answer.possible)
    if answer.verdict is Verdict.NOT_REPRODUCED and cause != UNKNOWN:
        would_be = "unknown: it does not happen when this group is simulated with the recorded settings"
    if answer.verdict in {Verdict.KEPT, Verdict.MOVED} and answer.after.rebalances != answer.before.rebalances:
        # A cooperative member revokes partitions first, and joins again so that another member can get them.
        would_be += ", with other follow-ups"
    return WhatIfRow(
        *frame,
        REBALANCE,
        asked,
        answer.at_ms,
        answer.generation,
        recorded=", ".join(answer.causes) or (NO_CAUSE if cause == UNKNOWN else cause),
        would_be=would_be,
        verdict=answer.verdict.value,
        confidence=answer.confidence,
        assumptions=answer.assumptions,
        **_range("shift_ms", answer.shift_ms) | _measures(answer),
    )


def _range(name: str, found: Range | Bounds | None) -> dict[str, Any]:
    """The two columns of a range."""
    return {f"{name}_min": None if found is None else found.least, f"{name}_max": None if found is None else found.most}


def _measures(of: RebalanceAnswer | Totals) -> dict[str, Any]:
    """The columns of the measures, before (under the recorded settings) and after."""
    ranges = {
        f"{name}_{when}": getattr(measures, name)
        for name in MEASURED
        for when, measures in (("before", of.before), ("after", of.after))
    }
    return {column: value for name, found in ranges.items() for column, value in _range(name, found).items()}


def _total_row(
    frame: tuple[str, str], asked: str, recorded: str, answers: Sequence[RebalanceAnswer], totals: Totals
) -> WhatIfRow:
    return WhatIfRow(
        *frame,
        TOTAL,
        asked,
        recorded=recorded,
        would_be=_counted(answer.verdict.value for answer in answers),
        confidence=LIKELY if totals.is_whole else GUESS,
        assumptions=totals.assumptions,
        **_measures(totals),
    )


def answer_share_group(
    group_id: str, transitions: Iterable[Transition], question: Question, configs: Configs = NO_CONFIGS
) -> list[WhatIfRow]:
    """Each range of records of a share group with another outcome, or possibly another one, and the total.

    Raises WhatIfError if the question does not apply to share groups.
    """
    if question.changed.is_of_members:
        raise WhatIfError(
            f"group {group_id} is a share group, and the log does not tell when its members polled: "
            "ask for its delivery limit, lock duration, record locks, session time-out or heartbeat interval"
        )
    if question.changed.is_of_share_members:
        raise WhatIfError("records and members of a share group are asked for one at a time")
    asked = " ".join(question.texts)
    answers = answer_shares(transitions, question.changed, InForce(group_id, question.recorded, configs))
    rows = [answer._replace(group_id=group_id, asked=asked) for answer in answers]
    ranges = [(row, (row.last_offset or 0) - (row.first_offset or 0) + 1) for row in rows]
    total = WhatIfRow(
        *(group_id, GroupType.SHARE, TOTAL, asked),
        recorded=f"{counted(sum(size for _, size in ranges), 'record')} in {counted(len(rows), 'range')}",
        would_be=_counted(str(row.verdict) for row in rows),
        deliveries_min=sum(size * (row.deliveries_min or 0) for row, size in ranges),
        deliveries_max=sum(size * (row.deliveries_max or 0) for row, size in ranges),
        assumptions=tuple(sorted({name for row in rows for name in row.assumptions})),
    )
    return [*rows, total]


def answer_share_members_of(
    life: GroupLife,
    question: Question,
    configs: Configs = NO_CONFIGS,
    *,
    from_ms: int | None = None,
    to_ms: int | None = None,
) -> list[WhatIfRow]:
    """Each epoch of a share group under another session timeout or heartbeat interval, and the total.

    Raises WhatIfError if the question does not apply to share groups, or changes nothing.
    """
    changes, recorded = question.changed, question.recorded
    if changes.is_of_members or changes.is_of_share_records:
        raise WhatIfError("records and members of a share group are asked for one at a time, and by their own settings")
    in_force = [
        _in_force(configs, name, life, default)
        for name, default in (
            (SHARE_SESSION_TIMEOUT, recorded.share_session_timeout_ms),
            ("share.heartbeat.interval.ms", recorded.share_heartbeat_interval_ms),
        )
    ]
    answers, totals = answer_share_members(life, question, *in_force, from_ms=from_ms, to_ms=to_ms)
    asked, frame = " ".join(question.texts), (life.group_id, GroupType.SHARE)
    rows = [_rebalance_row(frame, asked, answer, "partitions initialized") for answer in answers]
    return [*rows, _total_row(frame, asked, counted(totals.recorded_count, "epoch"), answers, totals)]


def _in_force(configs: Configs, name: str, life: GroupLife, default: int) -> int:
    """The value in force at the last epoch."""
    at_ms = np.array([life.generations[-1].valid_from if life.generations else 0], np.int64)
    found = configs.numbers(name, (life.group_id,), np.zeros(1, np.int64), at_ms, default)
    return int(found.values[0])


def _counted(verdicts: Iterable[str]) -> str:
    """`AVOIDED 4, KEPT 1`."""
    found = list(verdicts)
    return ", ".join(f"{name} {found.count(name)}" for name in sorted(set(found))) or "nothing to compare"
