"""gold.redeliveries: offset ranges of share partitions that were returned or delivered again.

`cause` is what the log shows:

* HANDED_BACK: a range without a batch became AVAILABLE: it had been acquired and was returned (rule A);
* RETRIED: the delivery count rose, or a terminal state came with a count above 1 and no batch before (rules B, C, D);
* COUNT_LOST: a range that was a hole when another leader loaded the share partition became ACKNOWLEDGED at a count
  that restarted (rule L). A hole may also be a gap in the log, so this is LIKELY. An archived one gives no row:
  a gap that is fetched again is archived too;
* RETURNED: a range was delivered and handed back once more, and the broker took the delivery off its count, as brokers
  4.1 do where a share session closes (KAFKA-17541): an update names it with the state and count that it has.

`likely_cause` is how its delivery ended, where there is evidence. `confidence` is that of the row's weakest claim. The
first rule that holds gives the `method`:

| method | shows | claims |
| --- | --- | --- |
| ACKNOWLEDGED_TOGETHER | the same update acknowledges or rejects, so a member's request made it | RELEASED, CERTAIN |
| LOCK_DURATION | returned, or archived at the limit, one lock duration after the last event | LOCK_TIMEOUT, LIKELY |
| GROUP_EMPTY | no lock can have ended, and the last member had just left | SESSION_CLOSED, LIKELY |
| NOBODY_LEFT | no lock can have ended, and no member left while its session could expire | RELEASED, LIKELY |
| NOBODY_LEFT_FOR_CONFIGURED_SESSION | the same, by the session timeout of the metadata log | RELEASED, LIKELY |
| DELIVERY_COUNT | the state and count alone | nothing but the cause, CERTAIN |
| FIRST_SNAPSHOT | the first snapshot, also behind missing records; `at` is the latest possible time | as above |
| LEADER_RELOAD | rule L | COUNT_LOST, LIKELY |
| SAME_COUNT | RETURNED; no request made it. A write that is sent twice looks the same | SESSION_CLOSED, LIKELY |
| SAME_COUNT_TOGETHER | RETURNED in a member's request | RETURNED, LIKELY |

LOCK_DURATION says nothing of a group whose members were seen to return ranges alone, sooner than a lock ends: polls in
a rhythm may do so just when a lock would end.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from coordinator_core.bytes.log.chunk import I8, I32, I64, BoolArray, Columns
from coordinator_core.confidence import CONFIDENCES
from coordinator_core.inference.facts.columns import code_of, first_that_holds
from coordinator_core.inference.shares.evidence import PASSED, RESET, Evidence, given_up
from coordinator_core.inference.shares.share_log import ACKNOWLEDGED, AVAILABLE, NONE, ShareLog, ShareTransitions
from coordinator_core.replay.columnar.share_state_rows import TRANSITION_KINDS

CAUSES: Final = ("HANDED_BACK", "RETRIED", "COUNT_LOST", "RETURNED")
LIKELY_CAUSES: Final = ("RELEASED", "LOCK_TIMEOUT", "SESSION_CLOSED")
METHODS: Final = (
    "ACKNOWLEDGED_TOGETHER",
    "LOCK_DURATION",
    "GROUP_EMPTY",
    "NOBODY_LEFT",
    "NOBODY_LEFT_FOR_CONFIGURED_SESSION",
    "DELIVERY_COUNT",
    "FIRST_SNAPSHOT",
    "LEADER_RELOAD",
    "SAME_COUNT",
    "SAME_COUNT_TOGETHER",
)
RETURNED: Final = TRANSITION_KINDS.index("RETURNED")
CERTAIN, LIKELY, GUESS = range(len(CONFIDENCES))

Reason = tuple[str | None, str | None, int | I64]
"""Method, likely cause and confidence."""
Rule = tuple[BoolArray, *Reason]
"""Where it holds, and the reason it gives."""


@dataclass(frozen=True, slots=True)
class RedeliveryColumns(Columns):
    """Rows of gold.redeliveries, ordered by share partition, log offset and first offset. Codes index the tables
    above."""

    key: I64
    """Index into `ShareKeys`."""
    log_offset: I64
    at_ms: I64
    first_offset: I64
    last_offset: I64
    from_delivery_count: I32
    """-1: null."""
    to_delivery_count: I32
    cause: I8
    likely_cause: I8
    """-1: null."""
    method: I8
    confidence: I8
    leader_changed: BoolArray

    def is_first(self) -> BoolArray:
        """Whether the records of each range are redelivered for the first time: before, the range had no state."""
        return self.from_delivery_count < 0

    def extra_deliveries(self) -> I64:
        """How many deliveries each row adds to the first delivery of its records, at least."""
        counted = self.to_delivery_count.astype(np.int64) - np.maximum(self.from_delivery_count, 1)
        is_uncounted = np.isin(self.cause, (CAUSES.index("COUNT_LOST"), CAUSES.index("RETURNED")))
        return np.where(is_uncounted, 1, np.maximum(counted, 0))


def redeliveries(log: ShareLog, evidence: Evidence) -> RedeliveryColumns:
    changes = log.transitions
    had_none, is_available = changes.from_state == NONE, changes.to_state == AVAILABLE
    from_count = np.where(had_none, np.int32(0), changes.from_delivery_count)
    tells = (changes.to_state != NONE) & (changes.kind != PASSED) & (changes.kind != RESET)
    is_handed_back = tells & had_none & is_available
    # a first delivery counts 1: a range that ends there was delivered once, though it may have been returned uncounted
    floor = np.where(is_available, from_count, np.maximum(from_count, np.int32(1)))
    is_retried = tells & ~is_handed_back & (changes.to_delivery_count > floor)
    is_lost = tells & ~is_handed_back & ~is_retried & (changes.to_state == ACKNOWLEDGED)
    is_lost &= (evidence.lost_to >= changes.first_offset) & ~evidence.is_first_shown
    holds = is_handed_back, is_retried, is_lost, changes.kind == RETURNED
    cause = code_of((*range(len(CAUSES)), NONE), first_that_holds(holds))
    method, likely_cause, confidence = _how(changes, evidence, is_lost)
    chosen = np.flatnonzero(cause >= 0)
    last_offset = np.where(is_lost, evidence.lost_to, changes.last_offset)
    state = log.state_of_transition[chosen]
    return RedeliveryColumns(
        key=log.states.key[state],
        log_offset=changes.log_offset[chosen],
        at_ms=log.states.at_ms[state],
        first_offset=changes.first_offset[chosen],
        last_offset=last_offset[chosen],
        from_delivery_count=changes.from_delivery_count[chosen],
        to_delivery_count=changes.to_delivery_count[chosen],
        cause=cause[chosen],
        likely_cause=likely_cause[chosen],
        method=method[chosen],
        confidence=confidence[chosen],
        leader_changed=evidence.leader_changed[chosen],
    )


def _how(changes: ShareTransitions, evidence: Evidence, is_lost: BoolArray) -> tuple[I8, I8, I8]:
    """Method, likely cause and confidence, by the table in this module's docstring."""
    records = evidence.records
    is_first_shown = evidence.is_first_shown
    is_returned = (changes.to_state == AVAILABLE) & ~is_first_shown
    has_timed_out = given_up(changes) & ~is_first_shown & (changes.to_delivery_count >= evidence.limit.values)
    has_timed_out &= ~records.has_acknowledged & ~records.may_have_rejected
    has_timed_out |= evidence.is_alone
    is_early = evidence.is_alone & evidence.is_too_soon_for_lock
    are_alone = changes.log_offset > evidence.alone_since
    is_in_session = is_early & evidence.is_settled
    rules = (
        (is_lost, "LEADER_RELOAD", None, LIKELY),
        ((changes.kind == RETURNED) & records.is_request, "SAME_COUNT_TOGETHER", None, LIKELY),
        (changes.kind == RETURNED, "SAME_COUNT", "SESSION_CLOSED", LIKELY),
        (is_first_shown, "FIRST_SNAPSHOT", None, CERTAIN),
        (is_returned & records.is_request & records.is_update, "ACKNOWLEDGED_TOGETHER", "RELEASED", CERTAIN),
        (is_returned & records.is_request, "ACKNOWLEDGED_TOGETHER", "RELEASED", LIKELY),
        (has_timed_out & evidence.is_lock_timeout & ~are_alone, "LOCK_DURATION", "LOCK_TIMEOUT", LIKELY),
        (is_early & evidence.is_group_empty, "GROUP_EMPTY", "SESSION_CLOSED", LIKELY),
        (is_in_session & evidence.is_session_known, "NOBODY_LEFT_FOR_CONFIGURED_SESSION", "RELEASED", LIKELY),
        (is_in_session, "NOBODY_LEFT", "RELEASED", LIKELY),
    )
    return by_first_rule(rules, ("DELIVERY_COUNT", None, CERTAIN), METHODS, LIKELY_CAUSES)


def by_first_rule(
    rules: Sequence[Rule], otherwise: Reason, methods: Sequence[str], likely_causes: Sequence[str]
) -> tuple[I8, I8, I8]:
    """For each row, the reason of the first rule that holds: indexes of method and likely cause, -1 for none, and the
    confidence."""
    holds = [it[0] for it in rules]
    rule = first_that_holds(holds)
    reasons = [*(it[1:] for it in rules), otherwise]
    return (
        code_of([NONE if it[0] is None else methods.index(it[0]) for it in reasons], rule),
        code_of([NONE if it[1] is None else likely_causes.index(it[1]) for it in reasons], rule),
        np.select(holds, [it[3] for it in rules], otherwise[2]).astype(np.int8),
    )
