"""What a reset, a deletion of offsets or the end of a group changes, and how sure that is."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

import pytest

from coordinator_core.inference.facts.configs import NO_CONFIGS, ConfigRow, Configs
from coordinator_core.inference.shares.offset_changes import (
    Endings,
    OffsetChange,
    counts_of_changes,
    ended_states,
    first_start_offsets,
    offset_changes,
)
from coordinator_core.inference.shares.share_days import merged_days
from tests.coordinator_core.inference.share_logs import (
    ACK1,
    AV1,
    GROUP,
    START_MS,
    TOPIC,
    Change,
    Record,
    State,
    share_log,
)

BEGUN = Record(0, kind="SNAPSHOT", start_offset=-1, delivery_complete_count=-1)
"""Initialized, and nothing written."""
AT_100 = (BEGUN, Record(1_000, start_offset=0), Record(2_000, start_offset=90, effective_start_offset=100))
"""Delivered are the offsets 0 to 99."""
DELETED = Record(9_000, kind="TOMBSTONE", start_offset=-1, delivery_complete_count=-1)
ASKED = Endings(deleting={GROUP: [(START_MS + 8_990, TOPIC)]})


def reset(to_offset: int, *in_flight: tuple[int, int, State], at_ms: int = 9_000) -> Record:
    """An Initialize snapshot over a state with some batches."""
    changes = tuple(Change(first, last, before, None, "RESET") for first, last, before in in_flight)
    return Record(at_ms, changes, kind="RESET", start_offset=to_offset)


def changes_of(
    records: Sequence[Record], endings: Endings = ASKED, holes: tuple[int, ...] = (), configs: Configs = NO_CONFIGS
) -> list[OffsetChange]:
    """Rows of gold.share_offset_changes."""
    log = replace(share_log(records), holes=holes)
    return list(offset_changes(ended_states(log), first_start_offsets(log), endings, configs))


@dataclass(frozen=True)
class Case:
    """Records of one share partition; kind, from and to offset, counts, method and confidence of each change."""

    name: str
    records: tuple[Record, ...]
    expected: tuple[tuple[object, ...], ...]
    endings: Endings = ASKED
    holes: tuple[int, ...] = ()


SKIPPED = ("SKIPPED_BY_RESET", 100, 300, 200, 0, "RESET_RECORD", "CERTAIN")
REWOUND = ("REWOUND_BY_RESET", 100, 20, 0, 80, "RESET_RECORD", "CERTAIN")

CASES = (
    Case("forward: what lies between is never delivered", (*AT_100, reset(300)), (SKIPPED,)),
    Case("back: what was delivered is delivered again", (*AT_100, reset(20)), (REWOUND,)),
    Case("to the offset where it is", (*AT_100, reset(100)), ()),
    Case(
        "forward over ranges that had been delivered: in part handed back, and acknowledged",
        (*AT_100, reset(300, (90, 99, ACK1), (150, 159, AV1), (290, 309, ACK1))),
        (("SKIPPED_BY_RESET", 100, 300, 180, 10, "RESET_RECORD", "CERTAIN"),),
    ),
    Case(
        "where it is, but what was acknowledged beyond is forgotten",
        (*AT_100, reset(100, (150, 159, ACK1))),
        (("REWOUND_BY_RESET", 100, 100, 0, 10, "RESET_RECORD", "CERTAIN"),),
    ),
    Case(
        "back to before the group began: what it never had is not delivered again",
        (BEGUN, Record(1_000, start_offset=60), Record(2_000, start_offset=100), reset(20)),
        (("REWOUND_BY_RESET", 100, 20, 0, 40, "RESET_RECORD", "CERTAIN"),),
    ),
    Case(
        "forward, then back: what was skipped is delivered after all",
        (*AT_100, reset(300), Record(10_000, start_offset=350), reset(50, at_ms=11_000)),
        (
            ("SKIPPED_BY_RESET", 100, 300, 0, 0, "RESET_RECORD", "CERTAIN"),
            ("REWOUND_BY_RESET", 350, 50, 0, 100, "RESET_RECORD", "CERTAIN"),
        ),
    ),
    Case(
        "forward, then back by less",
        (*AT_100, reset(300), Record(10_000, start_offset=350), reset(250, at_ms=11_000)),
        (
            ("SKIPPED_BY_RESET", 100, 300, 150, 0, "RESET_RECORD", "CERTAIN"),
            ("REWOUND_BY_RESET", 350, 250, 0, 50, "RESET_RECORD", "CERTAIN"),
        ),
    ),
    Case(
        "forward, then deleted, and back from further on",
        (*AT_100, reset(300), DELETED, replace(BEGUN, at_ms=10_000), Record(11_000, start_offset=200)),
        (
            ("SKIPPED_BY_RESET", 100, 300, 100, 0, "RESET_RECORD", "CERTAIN"),
            ("OFFSETS_DELETED", 300, None, 0, 0, "DELETING_RECORD", "CERTAIN"),
        ),
    ),
    Case(
        "back and forward before anything was delivered again",
        (*AT_100, reset(20), reset(150, at_ms=11_000)),
        (
            ("REWOUND_BY_RESET", 100, 20, 0, 0, "RESET_RECORD", "CERTAIN"),
            ("SKIPPED_BY_RESET", 20, 150, 50, 0, "RESET_RECORD", "CERTAIN"),
        ),
    ),
    Case(
        "back and forward when some was delivered again",
        (*AT_100, reset(20), Record(10_000, start_offset=50), reset(150, at_ms=11_000)),
        (
            ("REWOUND_BY_RESET", 100, 20, 0, 30, "RESET_RECORD", "CERTAIN"),
            ("SKIPPED_BY_RESET", 50, 150, 50, 0, "RESET_RECORD", "CERTAIN"),
        ),
    ),
    Case("back, and to the same offset again", (*AT_100, reset(20), reset(20, at_ms=11_000)), (REWOUND,)),
    Case(
        "forward, to the same offset again, and back",
        (*AT_100, reset(300), reset(300, at_ms=10_000), reset(200, at_ms=11_000)),
        (
            ("SKIPPED_BY_RESET", 100, 300, 100, 0, "RESET_RECORD", "CERTAIN"),
            ("REWOUND_BY_RESET", 300, 200, 0, 0, "RESET_RECORD", "CERTAIN"),
        ),
    ),
    Case(
        "back, where the broker finished more in memory alone, and forward",
        (
            *AT_100,
            reset(20),
            Record(10_000, start_offset=50, delivery_complete_count=9),
            reset(150, at_ms=11_000),
        ),
        (
            ("REWOUND_BY_RESET", 100, 20, 0, 30, "RESET_RECORD", "LIKELY"),
            ("SKIPPED_BY_RESET", 50, 150, 41, 0, "RESET_RECORD", "LIKELY"),
        ),
    ),
    Case("before the group read anything", (BEGUN, reset(300)), ()),
    Case(
        "the broker had finished some in memory alone: at least the others are never delivered",
        (*AT_100[:2], replace(AT_100[2], delivery_complete_count=30, terminal_count=10), reset(300)),
        (("SKIPPED_BY_RESET", 100, 300, 180, 0, "RESET_RECORD", "LIKELY"),),
    ),
    Case(
        "a log that begins later: what was delivered before it is not known",
        (Record(1_000, kind="SNAPSHOT", start_offset=90), reset(20)),
        (("REWOUND_BY_RESET", 90, 20, 0, None, "RESET_RECORD", "LIKELY"),),
    ),
    Case(
        "the same, forward",
        (Record(1_000, kind="SNAPSHOT", start_offset=90), reset(300)),
        (("SKIPPED_BY_RESET", 90, 300, 210, 0, "RESET_RECORD", "LIKELY"),),
    ),
    Case(
        "without a snapshot the batches are not known",
        (Record(1_000, start_offset=90, is_complete=False), reset(300)),
        (("SKIPPED_BY_RESET", 90, 300, None, None, "RESET_RECORD", "LIKELY"),),
    ),
    Case(
        "records are missing",
        (*AT_100, reset(300)),
        (("SKIPPED_BY_RESET", 100, 300, None, None, "RESET_RECORD", "LIKELY"),),
        holes=(2,),
    ),
    Case(
        "offsets deleted, and the group does not come back",
        (*AT_100, DELETED),
        (("OFFSETS_DELETED", 100, None, None, None, "DELETING_RECORD", "CERTAIN"),),
    ),
    Case(
        "it is initialized again, and has written nothing",
        (*AT_100, DELETED, replace(BEGUN, at_ms=10_000)),
        (("OFFSETS_DELETED", 100, None, None, None, "DELETING_RECORD", "CERTAIN"),),
    ),
    Case(
        "it comes back further on",
        (*AT_100, DELETED, replace(BEGUN, at_ms=10_000), Record(11_000, start_offset=400)),
        (("OFFSETS_DELETED", 100, None, 300, 0, "DELETING_RECORD", "CERTAIN"),),
    ),
    Case(
        "it comes back from the beginning, with its group gone meanwhile",
        (*AT_100, DELETED, replace(BEGUN, at_ms=10_000), Record(11_000, start_offset=0)),
        (("GROUP_DELETED", 100, None, 0, 100, "GROUP_TOMBSTONE", "CERTAIN"),),
        replace(ASKED, groups={GROUP: [START_MS + 9_005]}),
    ),
    Case(
        "it comes back by a reset, before it wrote anything",
        (*AT_100, DELETED, replace(BEGUN, at_ms=10_000), reset(400, at_ms=11_000)),
        (("OFFSETS_DELETED", 100, None, 300, 0, "DELETING_RECORD", "CERTAIN"),),
    ),
    Case(
        "nobody asked for it, as far as the log of groups was read",
        (*AT_100, DELETED),
        (("OFFSETS_DELETED", 100, None, None, None, "STATE_TOMBSTONE", "GUESS"),),
        Endings(),
    ),
    Case("the topic was removed", (*AT_100, DELETED), (), Endings(topics={TOPIC: [START_MS + 8_000]})),
    Case(
        "the group was deleted long after its offsets",
        (*AT_100, DELETED),
        (("OFFSETS_DELETED", 100, None, None, None, "DELETING_RECORD", "CERTAIN"),),
        replace(ASKED, groups={GROUP: [START_MS + 90_000]}),
    ),
)


def test_a_state_starts_once() -> None:
    """Whatever its records say later: an audit that goes on has the first one, not all between."""
    log = share_log(
        [Record(0, kind="SNAPSHOT", start_offset=17), Record(1, start_offset=-1), Record(2, start_offset=3)]
    )
    assert list(first_start_offsets(log).values()) == [(TOPIC, 17)]


@pytest.mark.parametrize("case", CASES, ids=attrgetter("name"))
def test_changes(case: Case) -> None:
    """Each end of a state gives its row, with what is never delivered and what again."""
    found = changes_of(case.records, case.endings, case.holes)
    assert tuple((row.kind, *row[7 + 1 :]) for row in found) == case.expected


def test_days_count_changes() -> None:
    """The day of a reset has the number of changes, and of offsets."""
    (day,) = merged_days([counts_of_changes(changes_of((*AT_100, reset(300), reset(20, at_ms=11_000))))], [])
    assert (day.offset_change_count, day.never_delivered_count, day.delivered_again_count) == (2, 0, 80)


@pytest.mark.parametrize(
    "row",
    [
        ConfigRow("TRANSACTION", TOPIC, "isTransactional", "true", None, 0, None),
        ConfigRow("TOPIC", TOPIC, "cleanup.policy", "compact", 1, 0, None),
    ],
    ids=["transactional", "compacted"],
)
def test_where_offsets_may_be_no_records_their_number_is_not_certain(row: ConfigRow) -> None:
    """Markers, aborted records and holes are counted; that nothing lies between is certain all the same."""
    found = [changes_of((*AT_100, records), configs=Configs([row])) for records in (reset(300), reset(20), DELETED)]
    assert [change.confidence for changes in found for change in changes] == ["LIKELY", "LIKELY", "CERTAIN"]
