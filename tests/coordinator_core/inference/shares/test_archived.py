"""What counts as given up, by which cause, and how sure that is."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

import pytest

from coordinator_core.confidence import CONFIDENCES
from coordinator_core.inference.facts.configs import ConfigRow, Configs
from coordinator_core.inference.shares.archived import CAUSES, LIKELY_CAUSES, METHODS
from coordinator_core.inference.shares.redeliveries import METHODS as METHODS_OF_RETURNS
from coordinator_core.inference.shares.share_days import merged_days
from coordinator_core.inference.shares.shares import ShareAudit
from tests.coordinator_core.inference.share_logs import (
    ACK1,
    AR1,
    AR2,
    AR3,
    AR5,
    AV1,
    AV2,
    AV4,
    GROUP,
    LOCK_4_S,
    START_MS,
    TOPIC,
    Change,
    Record,
    State,
    audit,
    group_configs,
)

SNAPSHOT = Record(0, kind="SNAPSHOT", start_offset=-1, delivery_complete_count=-1)
NO_CONFIGS = Configs()
AR4 = ("ARCHIVED", 4)


def reported(gold: ShareAudit) -> list[tuple[object, ...]]:
    """Rows by name: log offset, first and last offset, count, limit, cause, likely cause, method, confidence."""
    rows = gold.archived
    return [
        (
            int(rows.log_offset[row]),
            int(rows.first_offset[row]),
            int(rows.last_offset[row]),
            int(rows.delivery_count[row]),
            int(rows.delivery_count_limit[row]),
            CAUSES[rows.cause[row]],
            None if rows.likely_cause[row] < 0 else LIKELY_CAUSES[rows.likely_cause[row]],
            METHODS[rows.method[row]],
            CONFIDENCES[rows.confidence[row]],
        )
        for row in range(len(rows))
    ]


@dataclass(frozen=True)
class Case:
    """Records of one share partition, and the row of the last of them, less its log offset."""

    name: str
    records: tuple[Record, ...]
    expected: tuple[object, ...] | None
    configs: Configs = LOCK_4_S


def archived(before: State, after: State, at_ms: int = 51_500) -> Record:
    """Offset 3, and nothing else, is given up."""
    return Record(at_ms, (Change(3, 3, before, after),))


def returned(*states: tuple[State, State]) -> tuple[Record, ...]:
    """Offsets 0 to 9 are handed back, one record each, every ten seconds."""
    return tuple(Record(10_000 * n, (Change(0, 9, *ends),)) for n, ends in enumerate(states, 1))


def passed(start_offset: int, *changes: Change) -> Record:
    """The start offset moves."""
    return Record(60_000, changes, start_offset=start_offset)


def complete(count: int, seen: int) -> Record:
    """The record before: so many offsets from the start offset on are complete, and so many were seen to be."""
    return Record(50_000, delivery_complete_count=count, terminal_count=seen)


def aborted(terminal_count: int, *changes: Change) -> Record:
    """A record that counts two offsets more as complete than are stored."""
    return Record(50_000, changes, delivery_complete_count=terminal_count + 2, terminal_count=terminal_count)


UNKNOWN_MS = -1 - START_MS
COMMITTED = group_configs(share_isolation_level="read_committed")
READ_COMMITTED = ConfigRow("GROUP", GROUP, "share.isolation.level", "read_committed", 2, 0, None)
WRITTEN_IN_TRANSACTIONS = ConfigRow("TRANSACTION", TOPIC, "isTransactional", "true", None, 0, None)
TRANSACTIONAL = Configs([WRITTEN_IN_TRANSACTIONS])
COMPACTED = Configs([ConfigRow("TOPIC", TOPIC, "cleanup.policy", "compact,delete", 1, 0, None), READ_COMMITTED])
RELEASED_ONCE = Record(10_000, (Change(0, 5, None, AV1), Change(6, 9, None, ACK1)))

CASES = (
    Case(
        "rule E: a first delivery cannot be at any limit",
        (SNAPSHOT, archived(None, AR1)),
        (3, 3, 1, 5, "REJECT_OR_GAP", None, "BELOW_ANY_LIMIT", "CERTAIN"),
        NO_CONFIGS,
    ),
    Case(
        "rule E: below the limit that the log tells",
        (SNAPSHOT, *returned((None, AV1)), archived(AV1, AR2)),
        (3, 3, 2, 5, "REJECT_OR_GAP", None, "DELIVERY_COUNT", "CERTAIN"),
    ),
    Case(
        "rule E: clients released it before, so it is there and was rejected",
        (SNAPSHOT, RELEASED_ONCE, archived(AV1, AR2)),
        (3, 3, 2, 5, "REJECT_OR_GAP", "REJECTED", "RELEASED_BEFORE", "LIKELY"),
    ),
    Case(
        "below the default, and nothing shows that the default holds",
        (SNAPSHOT, RELEASED_ONCE, archived(AV1, AR2)),
        (3, 3, 2, -1, "LIMIT_OR_REJECT", None, "ASSUMED_LIMIT", "GUESS"),
        NO_CONFIGS,
    ),
    Case(
        "below what the group once handed back, so below the limit",
        (SNAPSHOT, Record(5_000, (Change(20, 29, None, AV4),)), *returned((None, AV1)), archived(AV1, AR2)),
        (3, 3, 2, 5, "REJECT_OR_GAP", None, "DELIVERY_COUNT", "LIKELY"),
        NO_CONFIGS,
    ),
    Case(
        "rule F: at the limit, with what else was handed back by the same operation",
        (
            SNAPSHOT,
            *returned((None, AV4)),
            Record(50_000, (Change(0, 4, AV4, AR5), Change(20, 29, None, AV1))),
        ),
        (0, 4, 5, 5, "LIMIT_OR_REJECT", "DELIVERY_LIMIT", "RETURNED_TOGETHER", "LIKELY"),
    ),
    Case(
        "rule F: one lock duration after the last hand-back",
        (SNAPSHOT, *returned((None, AV4)), Record(14_003, (Change(0, 4, AV4, AR5),))),
        (0, 4, 5, 5, "LIMIT_OR_REJECT", "DELIVERY_LIMIT", "LOCK_DURATION", "LIKELY"),
    ),
    Case(
        "rule F: a single offset on its last try",
        (SNAPSHOT, *returned((None, AV4)), archived(AV4, AR5)),
        (3, 3, 5, 5, "LIMIT_OR_REJECT", "DELIVERY_LIMIT", "LAST_TRY_ALONE", "LIKELY"),
    ),
    Case(
        "rule F: limit or reject, nothing tells which",
        (SNAPSHOT, *returned((None, AV4)), Record(50_000, (Change(0, 4, AV4, AR5), Change(5, 9, AV4, ACK1)))),
        (0, 4, 5, 5, "LIMIT_OR_REJECT", None, "DELIVERY_COUNT", "CERTAIN"),
    ),
    Case(
        "rule F: the same by a limit that no log tells",
        (SNAPSHOT, *returned((None, AV4)), Record(50_000, (Change(0, 4, AV4, AR5), Change(5, 9, AV4, ACK1)))),
        (0, 4, 5, 5, "LIMIT_OR_REJECT", None, "DELIVERY_COUNT", "LIKELY"),
        NO_CONFIGS,
    ),
    Case(
        "rule F: a limit of the group's own",
        (SNAPSHOT, *returned((None, AV1)), Record(50_000, (Change(0, 4, AV1, AR2), Change(20, 29, None, AV1)))),
        (0, 4, 2, 2, "LIMIT_OR_REJECT", "DELIVERY_LIMIT", "RETURNED_TOGETHER", "LIKELY"),
        group_configs(share_delivery_count_limit="2"),
    ),
    Case(
        "what had come back most often was archived at the next delivery, each alone: that was the limit",
        (
            SNAPSHOT,
            *returned((None, AV1), (AV1, AV2)),
            *(Record(40_000 + offset, (Change(offset, offset, AV2, AR3),)) for offset in (0, 1, 2)),
            archived(AV2, AR3),
        ),
        (3, 3, 3, 3, "LIMIT_OR_REJECT", "DELIVERY_LIMIT", "LAST_TRY_ALONE", "LIKELY"),
        NO_CONFIGS,
    ),
    Case(
        "so it was where other records were accepted at that delivery",
        (
            SNAPSHOT,
            *returned((None, AV1), (AV1, AV2)),
            Record(39_000, (Change(4, 4, AV2, ("ACKNOWLEDGED", 3)),)),
            *(Record(40_000 + offset, (Change(offset, offset, AV2, AR3),)) for offset in (0, 1, 2)),
            archived(AV2, AR3),
        ),
        (3, 3, 3, 3, "LIMIT_OR_REJECT", "DELIVERY_LIMIT", "LAST_TRY_ALONE", "LIKELY"),
        NO_CONFIGS,
    ),
    Case(
        "two such ends are no pattern",
        (SNAPSHOT, *returned((None, AV1), (AV1, AV2)), archived(AV2, AR3, 40_000), archived(AV2, AR3)),
        (3, 3, 3, -1, "LIMIT_OR_REJECT", None, "ASSUMED_LIMIT", "GUESS"),
        NO_CONFIGS,
    ),
    Case(
        "the first snapshot does not tell when, so not under which limit",
        (Record(0, (Change(3, 3, None, AR5, "FIRST_SEEN"),), "SNAPSHOT"),),
        (3, 3, 5, 5, "LIMIT_OR_REJECT", None, "DELIVERY_COUNT", "LIKELY"),
    ),
    Case(
        "ARCHIVING, then ARCHIVED: given up once",
        (SNAPSHOT, archived(None, ("ARCHIVING", 1)), archived(("ARCHIVING", 1), AR1, 52_000)),
        None,
    ),
    Case(
        "rule H: within what was complete, as many as were complete unseen",
        (SNAPSHOT, complete(11, seen=6), passed(11, Change(6, 10, None, None))),
        (6, 10, -1, 5, "UNSEEN", None, "COMPLETE_COUNT", "LIKELY"),
    ),
    Case(
        "rule H: in a group that reads committed records only",
        (SNAPSHOT, complete(11, seen=6), passed(11, Change(6, 10, None, None))),
        (6, 10, -1, 5, "UNSEEN", "ABORTED_TRANSACTION", "COMPLETE_COUNT", "LIKELY"),
        group_configs(share_isolation_level="read_committed"),
    ),
    Case(
        "a single offset of a group that reads committed records only: nothing shows a transaction",
        (SNAPSHOT, archived(None, AR1)),
        (3, 3, 1, 5, "REJECT_OR_GAP", None, "BELOW_ANY_LIMIT", "CERTAIN"),
        COMMITTED,
    ),
    Case(
        "it may be a transaction marker where the record before counts what is not stored, as aborted records are",
        (SNAPSHOT, aborted(1, Change(20, 20, None, ACK1)), archived(None, AR1)),
        (3, 3, 1, 5, "REJECT_OR_GAP", "TRANSACTION_MARKER", "ALONE_UNDER_READ_COMMITTED", "GUESS"),
        COMMITTED,
    ),
    Case(
        "in a topic that transactions write to, a single offset may be a marker under either isolation level",
        (SNAPSHOT, archived(None, AR1)),
        (3, 3, 1, 5, "REJECT_OR_GAP", "TRANSACTION_MARKER", "ALONE_IN_TRANSACTIONAL_TOPIC", "GUESS"),
        TRANSACTIONAL,
    ),
    Case(
        "two offsets are none",
        (SNAPSHOT, Record(50_000, (Change(3, 4, None, AR1),))),
        (3, 4, 1, 5, "REJECT_OR_GAP", None, "BELOW_ANY_LIMIT", "CERTAIN"),
        TRANSACTIONAL,
    ),
    Case(
        "nor is one that clients had released before",
        (SNAPSHOT, RELEASED_ONCE, archived(AV1, AR2)),
        (3, 3, 2, -1, "LIMIT_OR_REJECT", None, "ASSUMED_LIMIT", "GUESS"),
        TRANSACTIONAL,
    ),
    Case(
        "right behind offsets that were counted and not stored, as aborted records are, it is likely one",
        (SNAPSHOT, aborted(3, Change(0, 1, None, ACK1), Change(4, 4, None, AR1))),
        (4, 4, 1, 5, "REJECT_OR_GAP", "TRANSACTION_MARKER", "MARKER_AMONG_ABORTED", "LIKELY"),
        COMMITTED,
    ),
    Case(
        "also where the record before has the offset before them",
        (SNAPSHOT, Record(40_000, (Change(0, 1, None, ACK1),)), aborted(3, Change(4, 4, None, AR1))),
        (4, 4, 1, 5, "REJECT_OR_GAP", "TRANSACTION_MARKER", "MARKER_AMONG_ABORTED", "LIKELY"),
        COMMITTED,
    ),
    Case(
        "elsewhere a client may have rejected it, whatever else is counted and not stored",
        (SNAPSHOT, aborted(4, Change(0, 2, None, ACK1), Change(3, 3, None, AR1))),
        (3, 3, 1, 5, "REJECT_OR_GAP", "TRANSACTION_MARKER", "ALONE_UNDER_READ_COMMITTED", "GUESS"),
        COMMITTED,
    ),
    Case(
        "so it may behind offsets that are not counted: another member has them",
        (SNAPSHOT, aborted(1, Change(3, 3, None, AR1))),
        (3, 3, 1, 5, "REJECT_OR_GAP", "TRANSACTION_MARKER", "ALONE_UNDER_READ_COMMITTED", "GUESS"),
        COMMITTED,
    ),
    Case(
        "so it may where an earlier record that was not read may have stored them",
        (
            Record(40_000, (Change(0, 1, None, ACK1),), is_complete=False),
            replace(aborted(3, Change(4, 4, None, AR1)), is_complete=False),
        ),
        (4, 4, 1, 5, "REJECT_OR_GAP", "TRANSACTION_MARKER", "ALONE_UNDER_READ_COMMITTED", "GUESS"),
        COMMITTED,
    ),
    Case(
        "two offsets side by side are no marker, nor is one that was handed back before",
        (SNAPSHOT, Record(50_000, (Change(3, 4, None, AR1), Change(7, 7, None, AR2)))),
        (3, 4, 1, 5, "REJECT_OR_GAP", None, "BELOW_ANY_LIMIT", "CERTAIN"),
        group_configs(share_isolation_level="read_committed"),
    ),
    Case(
        "rule H: holes of a compacted topic look the same",
        (SNAPSHOT, complete(11, seen=6), passed(11, Change(6, 10, None, None))),
        (6, 10, -1, 5, "UNSEEN", None, "COMPLETE_COUNT", "LIKELY"),
        COMPACTED,
    ),
    Case(
        "within what was complete, though all of that was seen elsewhere",
        (SNAPSHOT, complete(11, seen=11), passed(11, Change(6, 10, AV1, None))),
        (6, 10, 1, 5, "UNSEEN", None, "START_OFFSET_PASSED", "GUESS"),
    ),
    Case(
        "rule G: further than what was complete",
        (SNAPSHOT, complete(5, seen=5), passed(7, Change(5, 6, None, None))),
        (5, 6, -1, 5, "START_OFFSET_MOVED", "AGED_OUT", "START_OFFSET_JUMP", "LIKELY"),
    ),
    Case(
        "rule G: in a group that reads committed records only it may have been an aborted transaction",
        (SNAPSHOT, complete(5, seen=5), passed(7, Change(5, 6, None, None))),
        (5, 6, -1, 5, "UNSEEN", None, "START_OFFSET_PASSED", "GUESS"),
        COMMITTED,
    ),
    Case(
        "rule G: which is the better guess where transactions write to the topic",
        (SNAPSHOT, complete(5, seen=5), passed(7, Change(5, 6, None, None))),
        (5, 6, -1, 5, "UNSEEN", "ABORTED_TRANSACTION", "START_OFFSET_PASSED", "GUESS"),
        Configs([WRITTEN_IN_TRANSACTIONS, READ_COMMITTED]),
    ),
    Case(
        "rule G: but not of more than may be in flight",
        (SNAPSHOT, complete(5, seen=5), passed(2_006, Change(5, 2_005, None, None))),
        (5, 2_005, -1, 5, "UNSEEN", None, "START_OFFSET_PASSED", "GUESS"),
        Configs([WRITTEN_IN_TRANSACTIONS, READ_COMMITTED]),
    ),
    Case(
        "rule G: so it may without times, where the group ever did",
        tuple(
            replace(it, at_ms=UNKNOWN_MS) for it in (SNAPSHOT, complete(5, seen=5), passed(7, Change(5, 6, None, None)))
        ),
        (5, 6, -1, 5, "UNSEEN", None, "START_OFFSET_PASSED", "GUESS"),
        COMMITTED,
    ),
    Case(
        "rule G: so it may where no log has the isolation level",
        (SNAPSHOT, complete(5, seen=5), passed(7, Change(5, 6, None, None))),
        (5, 6, -1, 5, "START_OFFSET_MOVED", "AGED_OUT", "START_OFFSET_JUMP", "GUESS"),
        NO_CONFIGS,
    ),
    Case(
        "rule G: a record that was handed back is in no aborted transaction, whatever the isolation level",
        (SNAPSHOT, *returned((None, AV1)), complete(0, seen=0), passed(7, Change(0, 6, AV1, None))),
        (0, 6, 1, 5, "START_OFFSET_MOVED", "AGED_OUT", "START_OFFSET_JUMP", "LIKELY"),
        NO_CONFIGS,
    ),
    Case(
        "rule G: in a compacted topic it may be a hole",
        (SNAPSHOT, complete(5, seen=5), passed(7, Change(5, 6, None, None))),
        (5, 6, -1, 5, "START_OFFSET_MOVED", None, "START_OFFSET_JUMP", "LIKELY"),
        COMPACTED,
    ),
    Case(
        "rule J: handed back and then deleted from the data log, compacted or not",
        (SNAPSHOT, *returned((None, AV1)), complete(0, seen=0), passed(7, Change(0, 6, AV1, None))),
        (0, 6, 1, 5, "START_OFFSET_MOVED", "AGED_OUT", "START_OFFSET_JUMP", "LIKELY"),
        COMPACTED,
    ),
    Case(
        "further than what was complete, some of it unseen: which is which nobody can tell",
        (SNAPSHOT, complete(5, seen=2), passed(7, Change(2, 6, None, None))),
        (2, 6, -1, 5, "START_OFFSET_MOVED", None, "START_OFFSET_PASSED", "GUESS"),
    ),
    Case(
        "Kafka before 4.2 does not count what is complete: the start of the data log moves it over a hole",
        (SNAPSHOT, complete(-1, seen=0), passed(7, Change(2, 6, None, None))),
        (2, 6, -1, 5, "START_OFFSET_MOVED", None, "START_OFFSET_PASSED", "GUESS"),
    ),
    Case(
        "Kafka before 4.2: what was handed back is deleted from the data log",
        (SNAPSHOT, *returned((None, AV1)), complete(-1, seen=0), passed(7, Change(0, 6, AV1, None))),
        (0, 6, 1, 5, "START_OFFSET_MOVED", "AGED_OUT", "START_OFFSET_JUMP", "LIKELY"),
    ),
    Case(
        "Kafka before 4.2: a compacted topic, or aborted records, may have holes",
        (SNAPSHOT, complete(-1, seen=0), passed(7, Change(2, 6, None, None))),
        (2, 6, -1, 5, "UNSEEN", None, "START_OFFSET_PASSED", "GUESS"),
        COMPACTED,
    ),
    Case(
        "without a snapshot what is passed may have been terminal",
        (
            Record(0, is_complete=False),
            Record(50_000, is_complete=False),
            Record(60_000, (Change(0, 6, None, None),), start_offset=7, is_complete=False),
        ),
        None,
    ),
    Case(
        "rule N: what a reset clears was not given up",
        (SNAPSHOT, *returned((None, AV1)), Record(50_000, (Change(0, 9, AV1, None, "RESET"),), kind="RESET")),
        None,
    ),
)


AG1, AG4, AG5 = (("ARCHIVING", count) for count in (1, 4, 5))
COPIED = group_configs(share_delivery_count_limit="5", errors_deadletterqueue_topic_name="dlq.orders")
COPIED_TO_NOTHING = group_configs(share_delivery_count_limit="5", errors_deadletterqueue_topic_name="")
DEAD_LETTER_CASES = (
    Case(
        "a first delivery that is to be copied was rejected",
        (SNAPSHOT, archived(None, AG1)),
        (3, 3, 1, 5, "REJECT_OR_GAP", "REJECTED", "ARCHIVING_STATE", "CERTAIN"),
    ),
    Case(
        "below a limit that the log tells, too",
        (SNAPSHOT, archived(None, AG4)),
        (3, 3, 4, 5, "REJECT_OR_GAP", "REJECTED", "ARCHIVING_STATE", "CERTAIN"),
    ),
    Case(
        "below a limit that no log tells it may have been the limit",
        (SNAPSHOT, archived(None, AG4)),
        (3, 3, 4, -1, "LIMIT_OR_REJECT", None, "ASSUMED_LIMIT", "GUESS"),
        NO_CONFIGS,
    ),
    Case(
        "at the limit it may still have been rejected",
        (SNAPSHOT, Record(10_000, (Change(0, 9, None, AV4),)), archived(AV4, AG5, 21_500)),
        (3, 3, 5, 5, "LIMIT_OR_REJECT", "DELIVERY_LIMIT", "LAST_TRY_ALONE", "LIKELY"),
        COPIED,
    ),
    Case(
        "a marker is not copied: a single offset of a read_committed group is none",
        (SNAPSHOT, archived(None, AG1)),
        (3, 3, 1, 5, "REJECT_OR_GAP", "REJECTED", "ARCHIVING_STATE", "CERTAIN"),
        group_configs(share_isolation_level="read_committed"),
    ),
    Case("its end is no second one", (SNAPSHOT, archived(None, AG1), archived(AG1, AR1, 52_000)), None),
    Case(
        "nor is it, where the start offset passes it meanwhile",
        (SNAPSHOT, archived(None, AG1), passed(4, Change(3, 3, AG1, None))),
        None,
    ),
    Case(
        "what is archived at once in a group with a dead letter topic was a gap",
        (SNAPSHOT, archived(None, AR1)),
        (3, 3, 1, 5, "REJECT_OR_GAP", "GAP", "ARCHIVED_WITHOUT_A_COPY", "LIKELY"),
        COPIED,
    ),
    Case(
        "an empty name is no dead letter topic",
        (SNAPSHOT, archived(None, AR1)),
        (3, 3, 1, 5, "REJECT_OR_GAP", None, "BELOW_ANY_LIMIT", "CERTAIN"),
        COPIED_TO_NOTHING,
    ),
)


def test_the_end_of_archiving_is_no_request() -> None:
    """What comes back in the record that ends ARCHIVING was not released with a rejection."""
    records = (SNAPSHOT, archived(None, AG1), Record(60_000, (Change(3, 3, AG1, AR1), Change(5, 5, None, AV1))))
    redelivered = audit(records, configs=LOCK_4_S).redeliveries
    assert [METHODS_OF_RETURNS[method] for method in redelivered.method] == ["DELIVERY_COUNT"]


@pytest.mark.parametrize("case", [*CASES, *DEAD_LETTER_CASES], ids=attrgetter("name"))
def test_archived_of_the_last_record(case: Case) -> None:
    """Each rule of inference gives its row, and no other."""
    rows = reported(audit(case.records, configs=case.configs))
    last = [row[1:] for row in rows if row[0] == len(case.records) - 1]
    assert last[:1] == ([] if case.expected is None else [case.expected])


@pytest.mark.parametrize(
    ("name", "archived_count", "given_up_count"),
    [
        ("rule H: within what was complete, as many as were complete unseen", 5, 5),
        ("rule H: in a group that reads committed records only", 5, 0),
        ("right behind offsets that were counted and not stored, as aborted records are, it is likely one", 1, 0),
    ],
)
def test_what_counts_as_given_up(name: str, archived_count: int, given_up_count: int) -> None:
    """Transaction markers are no records, and those of an aborted transaction were not to be delivered."""
    (case,) = (case for case in CASES if case.name == name)
    rows = merged_days([audit(case.records, configs=case.configs).counted.counts()], [])
    assert sum(row.archived_count for row in rows) == archived_count
    assert sum(row.records_given_up for row in rows) == given_up_count


def config(
    value: str | None, *, name: str = GROUP, since_ms: int = 0, until_ms: int | None = None, place: int = 1
) -> ConfigRow:
    """A delivery limit of a group, or of brokers where the name says so."""
    of_brokers = name != GROUP
    return ConfigRow(
        "BROKER" if of_brokers else "GROUP",
        name.removeprefix("broker:"),
        ("group." if of_brokers else "") + "share.delivery.count.limit",
        value,
        place,
        START_MS + since_ms,
        None if until_ms is None else START_MS + until_ms,
    )


LIMITS = (
    ("the group's own before the brokers'", [config("7"), config("9", name="broker:")], 7, "CERTAIN"),
    ("all brokers'", [config("4", name="broker:")], 4, "CERTAIN"),
    ("all brokers', and one has its own", [config("4", name="broker:"), config("3", name="broker:1")], 4, "LIKELY"),
    ("one broker's alone says nothing of the others", [config("3", name="broker:1")], 5, "LIKELY"),
    ("changed this very moment", [config("5", until_ms=50_000), config("4", since_ms=50_000, place=2)], 4, "LIKELY"),
    ("ended before", [config("4", until_ms=40_000)], 5, "LIKELY"),
    ("set later", [config("4", since_ms=60_000)], 5, "LIKELY"),
    ("removed", [config(None)], 5, "LIKELY"),
    ("not a number", [config("many")], 5, "LIKELY"),
    ("a number of 40 digits", [config("9" * 40)], 5, "LIKELY"),
)


@pytest.mark.parametrize(("configs", "limit", "confidence"), [case[1:] for case in LIMITS], ids=[c[0] for c in LIMITS])
def test_the_limit_in_force(configs: Sequence[ConfigRow], limit: int, confidence: str) -> None:
    """The metadata log tells the limit, of the group first, at the time of the record; else the setting holds."""
    count = limit - 1
    records = (
        SNAPSHOT,
        Record(5_000, (Change(20, 20, None, ("AVAILABLE", count)), Change(3, 3, None, ("AVAILABLE", count)))),
        Record(50_000, (Change(3, 3, ("AVAILABLE", count), ("ARCHIVED", limit)), Change(30, 31, None, ACK1))),
    )
    (row,) = reported(audit(records, configs=Configs(configs)))
    assert (row[4], row[5], row[8]) == (limit, "LIMIT_OR_REJECT", confidence)


def test_a_time_that_is_not_known_is_the_earliest() -> None:
    """A config whose record has no time holds from the beginning of the log."""
    rows = reported(audit((SNAPSHOT, archived(None, AR4)), Configs([config("3")._replace(valid_from=None)])))
    assert [row[4] for row in rows] == [3]
