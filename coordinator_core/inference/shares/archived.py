"""gold.archived_records: offset ranges of share partitions that were given up.

A record is given up once. Where its group has a dead letter topic, it is ARCHIVING while the broker copies it, and the
row has that time (Kafka 4.4, KIP-1191); becoming ARCHIVED later adds no row.

`cause` is what the log shows, given the delivery limit L in force at that time:

* REJECT_OR_GAP: ARCHIVED at a count below L, where the limit cannot act (rule E);
* LIMIT_OR_REJECT: ARCHIVED at L or above (rule F), or at a count that may be L: no log has L, and no range with that
  count was ever returned;
* UNSEEN: the start offset passed a range that no record showed as terminal, by no more than the complete count of the
  previous record: it was archived only in the broker's memory (rule H), or cannot be distinguished from that. Ranges
  that a read_committed group passed without a state count as UNSEEN too: the complete count does not include an aborted
  transaction that was fetched after the previous record;
* START_OFFSET_MOVED: it moved further than the complete count, so the data log's own start moved (rules G, J).

`confidence` is that of the row's weakest claim. The first rule that holds gives the `method`:

| method | shows | claims |
| --- | --- | --- |
| ARCHIVING_STATE | below L by way of ARCHIVING, where a gap never is | REJECTED, CERTAIN if the log tells L |
| MARKER_AMONG_ABORTED | like the next, right behind complete offsets that are not stored | TRANSACTION_MARKER, LIKELY |
| ALONE_UNDER_READ_COMMITTED | a single offset at its first try, near complete ones not stored | the same, GUESS |
| ARCHIVED_WITHOUT_A_COPY | ARCHIVED at once, in a group that has a dead letter topic | GAP, LIKELY |
| ALONE_IN_TRANSACTIONAL_TOPIC | the same offset, where transactions write | TRANSACTION_MARKER, GUESS |
| BELOW_ANY_LIMIT | count 1, and no limit can be below 2 | REJECT_OR_GAP, CERTAIN |
| RELEASED_BEFORE | below L, and clients had seen the records and released them | REJECTED, LIKELY |
| LOCK_DURATION | at L, alone, one lock duration after the last event | DELIVERY_LIMIT, LIKELY |
| RETURNED_TOGETHER | at L, and the record's other ranges were handed back, none rejected | DELIVERY_LIMIT, LIKELY |
| LAST_TRY_ALONE | at L, a single offset at L - 1 before, which the broker gives out alone | DELIVERY_LIMIT, LIKELY |
| ASSUMED_LIMIT | no log has L, and no range with that count was ever returned | LIMIT_OR_REJECT, GUESS; L is null |
| DELIVERY_COUNT | count against L alone | CERTAIN if the log tells L, else LIKELY |
| COMPLETE_COUNT | at least as many unseen offsets were complete as were passed | UNSEEN, LIKELY |
| START_OFFSET_JUMP | the start offset moved further than the complete count | START_OFFSET_MOVED, LIKELY or GUESS |
| START_OFFSET_PASSED | neither is clear | GUESS; ABORTED_TRANSACTION where transactions write |

The marker that ends a transaction takes an offset of its topic. No client sees it: a share consumer acknowledges it as
a gap, and the coordinator stores it as archived at count 1, like a record that was rejected at once. Under
read_committed the records of an aborted transaction are counted complete and not stored, and its marker is right behind
them. Elsewhere, in a topic that transactions write to, clients may as well have rejected a record. Where no log has the
isolation level, offsets without a state that the start offset passed may be those of an aborted transaction, too:
START_OFFSET_JUMP is a GUESS.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from coordinator_core.bytes.log.chunk import I8, I32, I64, BoolArray, Columns
from coordinator_core.inference.facts.columns import code_of, first_that_holds, taken
from coordinator_core.inference.facts.configs import DEAD_LETTER_TOPIC, ISOLATION_LEVEL, READ_COMMITTED, Configs
from coordinator_core.inference.shares.evidence import (
    DELIVERY_COUNT_LIMIT_MIN,
    PASSED,
    Evidence,
    given_up,
    last_persisted,
    offset_counts,
)
from coordinator_core.inference.shares.redeliveries import CERTAIN, GUESS, LIKELY, Rule, by_first_rule
from coordinator_core.inference.shares.share_log import ARCHIVED, ARCHIVING, AVAILABLE, FIRST_SEEN, NONE, ShareLog

CAUSES: Final = ("REJECT_OR_GAP", "LIMIT_OR_REJECT", "UNSEEN", "START_OFFSET_MOVED")
LIKELY_CAUSES: Final = ("REJECTED", "GAP", "DELIVERY_LIMIT", "AGED_OUT", "ABORTED_TRANSACTION", "TRANSACTION_MARKER")
NOT_GIVEN_UP: Final = ("GAP", "ABORTED_TRANSACTION", "TRANSACTION_MARKER")
"""Likely causes of offsets without a record that anybody lost."""
METHODS: Final = (
    "ARCHIVING_STATE",
    "MARKER_AMONG_ABORTED",
    "ALONE_UNDER_READ_COMMITTED",
    "ARCHIVED_WITHOUT_A_COPY",
    "ALONE_IN_TRANSACTIONAL_TOPIC",
    "BELOW_ANY_LIMIT",
    "RELEASED_BEFORE",
    "LOCK_DURATION",
    "RETURNED_TOGETHER",
    "LAST_TRY_ALONE",
    "ASSUMED_LIMIT",
    "DELIVERY_COUNT",
    "COMPLETE_COUNT",
    "START_OFFSET_JUMP",
    "START_OFFSET_PASSED",
)

RECORD_LOCKS: Final = 2_000
"""share.partition.max.record.locks, Kafka's default: no more offsets are in flight."""
DEAD_LETTER_STATES: Final = ("TRIED", "REFUSED", "NOT_TRIED")
"""What the log says about the copy on a dead letter topic. TRIED: the broker tried to write one, and then archived the
record whether or not it succeeded. REFUSED: it tried, and the topic is not enabled for groups, or lacks the brokers'
prefix. NOT_TRIED: the group has a dead letter topic, and the record was given up without a copy."""


@dataclass(frozen=True, slots=True)
class ArchivedColumns(Columns):
    """Rows of gold.archived_records, ordered by share partition, log offset and first offset. Codes index the tables
    above.
    """

    key: I64
    """Index into `ShareKeys`."""
    log_offset: I64
    at_ms: I64
    first_offset: I64
    last_offset: I64
    delivery_count: I32
    """-1: null."""
    delivery_count_limit: I64
    cause: I8
    likely_cause: I8
    """-1: null."""
    method: I8
    confidence: I8
    dead_letter: I8
    """-1: null; the group has no dead letter topic, or the log does not say."""

    def is_record(self) -> BoolArray:
        """Whether each range counts as records given up."""
        found: BoolArray = ~np.isin(self.likely_cause, [LIKELY_CAUSES.index(name) for name in NOT_GIVEN_UP])
        return found


def archived_records(log: ShareLog, evidence: Evidence, configs: Configs) -> ArchivedColumns:
    """All ranges that were given up in one log partition."""
    chosen = np.flatnonzero(given_up(log.transitions) | (log.transitions.kind == PASSED))
    is_behind_unstored = _is_behind_unstored(log, chosen)
    log = log.of_transitions(chosen)
    evidence = taken(evidence, chosen)
    is_archived, is_passed = given_up(log.transitions), _is_passed(log)
    within = _is_within_complete_count(log, configs)
    is_assumed = is_archived & evidence.is_below_limit & ~evidence.is_limit_shown
    is_rejected = is_archived & evidence.is_below_limit & evidence.is_limit_shown
    causes = (is_rejected, is_archived, is_passed & within, is_passed)
    cause = code_of((*range(len(CAUSES)), NONE), first_that_holds(causes))
    rules = (
        *_rules_of_archived(log, evidence, configs, is_archived, is_behind_unstored),
        *_rules_of_passed(log, configs, is_passed, within),
    )
    method, likely_cause, confidence = by_first_rule(rules, (None, None, GUESS), METHODS, LIKELY_CAUSES)
    changes = log.transitions
    count = np.where(is_passed, changes.from_delivery_count, changes.to_delivery_count)
    found = np.flatnonzero(cause >= 0)
    row = log.state_of_transition[found]
    return ArchivedColumns(
        key=log.states.key[row],
        log_offset=changes.log_offset[found],
        at_ms=log.states.at_ms[row],
        first_offset=changes.first_offset[found],
        last_offset=changes.last_offset[found],
        delivery_count=count[found].astype(np.int32),
        delivery_count_limit=np.where(is_assumed, NONE, evidence.limit.values)[found],
        cause=cause[found],
        likely_cause=likely_cause[found],
        method=method[found],
        confidence=confidence[found],
        dead_letter=_dead_letter(log, evidence, configs)[found],
    )


def _dead_letter(log: ShareLog, evidence: Evidence, configs: Configs) -> I8:
    changes, row = log.transitions, log.state_of_transition
    groups, group, at_ms = log.keys.group_ids, log.keys.group[log.states.key[row]], log.states.at_ms[row]
    was_tried = changes.to_state == ARCHIVING
    # a copy may have been tried before the first snapshot, or where records are missing
    is_seen = (changes.kind != FIRST_SEEN) & evidence.records.is_update & ~evidence.is_behind_hole
    not_tried = ~was_tried & is_seen & configs.is_set(DEAD_LETTER_TOPIC, groups, group, at_ms)
    states = (was_tried & configs.is_refused(groups, group, at_ms), was_tried, not_tried)
    codes = (*(DEAD_LETTER_STATES.index(name) for name in ("REFUSED", "TRIED", "NOT_TRIED")), NONE)
    return code_of(codes, first_that_holds(states))


def _is_behind_unstored(log: ShareLog, chosen: I64) -> BoolArray:
    """Whether right before some of the transitions, each of a single offset, there are offsets that no record has
    stored, while the record of the transition counts at least as many of them as complete.
    """
    changes, states, row = log.transitions, log.states, log.state_of_transition[chosen]
    unstored = (states.delivery_complete_count - states.terminal_count)[row]
    found: BoolArray = (unstored > 0) & (changes.first_offset[chosen] == changes.last_offset[chosen])
    if not found.any():
        return found
    found &= (states.is_complete & ~log.unlisted())[row]  # otherwise a record that is missing may have stored them
    candidates = np.flatnonzero(found)
    chosen, row = chosen[candidates], row[candidates]
    # the range before, in the same record or in any earlier one
    is_same_record = (chosen > 0) & (log.state_of_transition[chosen - 1] == row)
    last_offset = np.where(is_same_record, changes.last_offset[chosen - 1], -1)
    last_offset = np.maximum(last_offset, np.maximum(last_persisted(log)[row], states.start_offset[row] - 1))
    count = changes.first_offset[chosen] - 1 - last_offset
    found[candidates] = (count > 0) & (count <= unstored[candidates])
    return found


def _rules_of_archived(
    log: ShareLog, evidence: Evidence, configs: Configs, is_archived: BoolArray, is_behind_unstored: BoolArray
) -> tuple[Rule, ...]:
    changes, records = log.transitions, evidence.records
    states, row = log.states, log.state_of_transition
    # it uses no later records, so that they do not change earlier results
    is_alone = is_archived & (changes.from_state == NONE) & (changes.to_delivery_count == 1)
    is_alone &= changes.first_offset == changes.last_offset
    is_transactional = configs.was_transactional(log.keys.topics)[states.key[row]]
    is_compacted = configs.was_compacted(log.keys.topics)[states.key[row]]
    is_behind_aborted = is_behind_unstored & ~is_compacted
    # a topic without aborted transactions may have none at all, and a client may reject a single record
    is_alone_committed = is_alone & _is_read_committed(log, configs)
    has_unstored = states.delivery_complete_count > states.terminal_count
    has_unstored[1:] |= has_unstored[:-1] & ~states.begins()[1:]
    is_alone_committed &= has_unstored[row] & ~is_compacted
    below, at_limit = is_archived & evidence.is_below_limit, is_archived & ~evidence.is_below_limit
    # what a snapshot is the first to show has an unknown time, so the limit of that time is unknown too
    by_count = np.where(evidence.limit.is_known & ~evidence.is_first_shown, CERTAIN, LIKELY)
    seen = at_limit & ~evidence.is_first_shown
    had_last_try = (changes.from_state == AVAILABLE) & (changes.from_delivery_count == evidence.limit.values - 1)
    returned = records.has_returned & ~records.may_have_rejected & ~records.has_acknowledged
    # brokers copy records that a client rejected or that reached the delivery limit; what no client saw, such as a
    # marker, is ARCHIVED at once
    is_copied = below & (changes.to_state == ARCHIVING)
    is_alone &= below & (changes.to_state != ARCHIVING)
    is_uncopied = (
        (changes.to_state == ARCHIVED) & ~evidence.is_first_shown & ~evidence.is_behind_hole & records.is_update
    )
    is_uncopied &= configs.is_set(
        DEAD_LETTER_TOPIC, log.keys.group_ids, log.keys.group[states.key[row]], states.at_ms[row]
    )
    return (
        (is_copied & (changes.to_delivery_count < DELIVERY_COUNT_LIMIT_MIN), "ARCHIVING_STATE", "REJECTED", CERTAIN),
        (is_copied & evidence.is_limit_shown, "ARCHIVING_STATE", "REJECTED", by_count),
        (is_alone & is_alone_committed & is_behind_aborted, "MARKER_AMONG_ABORTED", "TRANSACTION_MARKER", LIKELY),
        (is_alone & is_alone_committed, "ALONE_UNDER_READ_COMMITTED", "TRANSACTION_MARKER", GUESS),
        (below & is_uncopied, "ARCHIVED_WITHOUT_A_COPY", "GAP", LIKELY),
        (is_alone & is_transactional, "ALONE_IN_TRANSACTIONAL_TOPIC", "TRANSACTION_MARKER", GUESS),
        (below & (changes.to_delivery_count < DELIVERY_COUNT_LIMIT_MIN), "BELOW_ANY_LIMIT", None, CERTAIN),
        (below & evidence.was_released & evidence.is_limit_shown, "RELEASED_BEFORE", "REJECTED", LIKELY),
        (
            seen & ~records.has_acknowledged & ~records.may_have_rejected & evidence.is_lock_timeout,
            "LOCK_DURATION",
            "DELIVERY_LIMIT",
            LIKELY,
        ),
        (seen & returned, "RETURNED_TOGETHER", "DELIVERY_LIMIT", LIKELY),
        (seen & records.is_single_offset & had_last_try, "LAST_TRY_ALONE", "DELIVERY_LIMIT", LIKELY),
        (below & ~evidence.is_limit_shown, "ASSUMED_LIMIT", None, GUESS),
        (is_archived, "DELIVERY_COUNT", None, by_count),
    )


def _rules_of_passed(log: ShareLog, configs: Configs, is_passed: BoolArray, within: BoolArray) -> tuple[Rule, ...]:
    changes, states, row = log.transitions, log.states, log.state_of_transition
    before = np.maximum(row - 1, 0)
    hidden = states.delivery_complete_count[before] - states.terminal_count[before]
    passed = np.bincount(row[is_passed], offset_counts(changes)[is_passed], len(states))[row]
    had_none = changes.from_state == NONE
    keys = log.keys
    is_compacted = configs.was_compacted(keys.topics)[states.key[row]]
    is_transactional = configs.was_transactional(keys.topics)[states.key[row]]
    may_be_aborted = is_passed & had_none & _is_read_committed(log, configs) & ~is_compacted
    # only the data log's own start passes more at once
    is_in_flight = offset_counts(changes) <= RECORD_LOCKS
    # holes from compaction are normal; where there was a batch, there was a record
    is_record = ~(is_compacted & had_none)
    is_hidden = is_passed & within & (passed <= hidden)
    is_moved = is_passed & ~within & (hidden <= 0)
    # without a count, a hole may also be a range that the group skips for a reason that no log shows
    is_moved &= (states.delivery_complete_count[before] != NONE) | ~had_none
    # where the isolation level is not known, a hole may be an aborted transaction
    is_level_known = configs.is_shown(ISOLATION_LEVEL, keys.group_ids, keys.group[states.key[row]], states.at_ms[row])
    moved = np.where(had_none & ~is_level_known, GUESS, LIKELY)
    return (
        (is_hidden & may_be_aborted, "COMPLETE_COUNT", "ABORTED_TRANSACTION", LIKELY),
        (is_hidden, "COMPLETE_COUNT", None, LIKELY),
        (is_moved & is_record, "START_OFFSET_JUMP", "AGED_OUT", moved),
        (is_moved, "START_OFFSET_JUMP", None, moved),
        (may_be_aborted & is_transactional & is_in_flight, "START_OFFSET_PASSED", "ABORTED_TRANSACTION", GUESS),
        (is_passed, "START_OFFSET_PASSED", None, GUESS),
    )


def _is_read_committed(log: ShareLog, configs: Configs) -> BoolArray:
    """Whether the group of each transition was set to read_committed at that time. False if the log does not say."""
    keys, states, row = log.keys, log.states, log.state_of_transition
    return configs.equals(
        ISOLATION_LEVEL, READ_COMMITTED, keys.group_ids, keys.group[states.key[row]], states.at_ms[row]
    )


def _is_passed(log: ShareLog) -> BoolArray:
    """Ranges that the start offset passed unseen. Only where all earlier batches are known: otherwise they may have
    been seen.
    """
    states, row = log.states, log.state_of_transition
    is_known = ~states.begins()[row] & states.is_complete[np.maximum(row - 1, 0)] & ~log.unlisted()[row]
    is_passed: BoolArray = (log.transitions.kind == PASSED) & is_known
    # it was given up when it became ARCHIVING, and has a row for that
    is_passed &= log.transitions.from_state != ARCHIVING
    return is_passed


def _is_within_complete_count(log: ShareLog, configs: Configs) -> BoolArray:
    """Whether the start offset moved by no more than the complete count of the previous record, or over offsets that
    the group may have skipped since.

    Kafka before 4.2 has no such count. There, offsets may have been archived only in the broker's memory where the
    topic is compacted, or where the group skips aborted records. In all other cases only the start of the data log
    moves it like that.
    """
    states, row = log.states, log.state_of_transition
    had_none = log.transitions.from_state == NONE
    is_compacted = configs.was_compacted(log.keys.topics)[states.key[row]]
    may_be_hidden = is_compacted | (had_none & _is_read_committed(log, configs))
    before = np.maximum(row - 1, 0)
    jump = states.start_offset[row] - states.start_offset[before]
    complete_count = states.delivery_complete_count[before]
    within: BoolArray = np.where(complete_count == NONE, may_be_hidden, jump <= complete_count)
    # no count includes records of an aborted transaction that were archived in memory after the previous record
    within |= had_none & ~is_compacted & _is_read_committed(log, configs)
    return within
