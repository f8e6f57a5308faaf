"""Simulated logs in the hands of a real Kafka 4.3.1: its broker loads them from its log directory, its Admin describes
the groups, its share coordinator answers, its dump tool reads every byte; the simulator's truth and the tables of the
jobs say the same.
"""

from collections import Counter
from collections.abc import Callable
from typing import Final

import pytest

from coordinator_core.replay.lookup import SharePartitionKey
from tests.conformance import compare
from tests.conformance.compare import Tally
from tests.conformance.explained import SHARE_INITIALIZING
from tests.conformance.tables import Tables, deltas
from tests.conformance.truth import CONSUMER_OFFSETS, SHARE_GROUP_STATE, group_facts
from tests.live.conftest import Loaded
from tests.live.simulated import DECODERS

COMPLAINTS: Final = ("Found", "Mismatches", "Non-consecutive", "  ")
"""How the lines begin in which the dump tool says that something is wrong."""

DELETIONS: Final = frozenset({"delete_group", "delete_share_offsets", "delete_topic"})
"""Faults after which share partitions have no state."""


def _conclude(tally: Tally) -> None:
    assert not tally.failures, tally.report


def test_the_broker_takes_the_logs_whole(loaded: Loaded) -> None:
    """A broker recovers segments of an unknown past batch by batch and cuts off what is wrong: it cut nothing off, and
    wrote nothing while it was asked."""
    assert loaded.snapshot["leo_before"] == loaded.simulated.log_ends
    assert loaded.snapshot["leo_after"] == loaded.simulated.log_ends


def test_admin_describes_the_groups_of_the_truth(loaded: Loaded) -> None:
    """Every group which the simulator's coordinators had at the end has the state, epochs, members, assignments and
    offsets which Admin shows, and there is no other group."""
    expected = loaded.simulated.end_of_groups()
    assert expected.keys() == loaded.snapshot["groups"].keys()
    for group, facts in expected.items():
        answer = group_facts(loaded.snapshot["groups"][group])
        if ("type",) not in facts:
            answer = {path: value for path, value in answer.items() if path[0] == "offset"}
        assert deltas(answer, facts) == [], group


def test_the_share_coordinator_answers_with_the_state_of_the_truth(loaded: Loaded) -> None:
    """ReadShareGroupState gives the epoch, start offset and batches which the simulator's share coordinator had."""
    ids = {life.name: life.topic_id for life in loaded.truth.topics}
    answers = {
        SharePartitionKey(group, ids[name.rpartition("-")[0]], int(name.rpartition("-")[2])): state
        for group, reported in loaded.snapshot["groups"].items()
        for name, state in reported.get("coordinator_state", {}).items()
    }
    expected = {
        SharePartitionKey(line["group"], line["topic_id"], line["partition"]): {
            "error": "NONE",
            "state_epoch": line["state_epoch"],
            "start_offset": line["start_offset"],
            "batches": line["state_batches"],
        }
        for line in loaded.simulated.truth("end_share")
    }
    for key in loaded.simulated.initializing():
        expected.pop(key, None)
    assert answers == expected


def test_admin_describes_the_groups_of_the_tables(loaded: Loaded, tables: Tables) -> None:
    """The silver tables at the end of the log say of every group what Admin says."""
    tally = compare.compare_groups(tables, loaded.truth)
    _conclude(tally)
    assert tally.compared >= len(loaded.snapshot["groups"])
    assert not tally.explained


def test_the_share_coordinator_answers_with_the_state_of_the_tables(loaded: Loaded, tables: Tables) -> None:
    """The silver tables have the state of every share partition that ReadShareGroupState gives, offset by offset."""
    tally = compare.compare_share_partitions(tables, loaded.truth)
    _conclude(tally)
    known = {(line["group"], line["topic_id"], line["partition"]) for line in loaded.simulated.truth("end_share")}
    # of one that was deleted neither the broker nor the tables know anything at the end
    deleted = {(key.group_id, key.topic_id, key.partition) for key in tables.share_partitions} - known
    assert not deleted or any(line["fault"] in DELETIONS for line in loaded.simulated.truth("faults"))
    assert len(known) <= tally.compared <= len(known | deleted)
    assert tally.explained.get(SHARE_INITIALIZING, 0) == len(known & loaded.simulated.initializing())


def test_the_dump_tool_reads_every_record(loaded: Loaded) -> None:
    """Every batch is valid, the batches follow on one another, and every record of the logs is there."""
    starts: dict[str, int] = {}
    for path in (path for topic in DECODERS for path in loaded.simulated.segments(topic)):
        starts.setdefault(path.parent.name, int(path.stem))
    counted = Counter(starts)
    for batch in loaded.batches:
        place = f"{batch.place.topic}-{batch.place.partition}"
        assert batch.is_valid, batch
        assert batch.base_offset == counted[place]
        assert batch.record_count == len(batch.records) == batch.last_offset - batch.base_offset + 1
        counted[place] += batch.record_count
    assert counted == loaded.simulated.log_ends
    others = sum(line["end_offset"] for line in loaded.simulated.truth("log_ends") if line["topic"] not in DECODERS)
    below = sum(starts.values())  # deleted, since the log start offset is beyond them
    assert counted.total() + others - below == loaded.simulated.written.record_count


def test_the_dump_tool_reads_every_byte(loaded: Loaded) -> None:
    """The sizes of the batches add up to the segments, and the tool speaks of no byte beyond them."""
    sizes = sum(batch.size for batch in loaded.batches)
    segments = [path for topic in (CONSUMER_OFFSETS, SHARE_GROUP_STATE) for path in loaded.simulated.segments(topic)]
    assert sizes == sum(path.stat().st_size for path in segments)
    every = loaded.simulated.logs.glob("*/*.log")
    assert sum(path.stat().st_size for path in every) == loaded.simulated.written.size_bytes
    expected = []
    for path in segments:
        if int(path.stem):  # the tool looks for offset 0 in every segment: so it says of real logs too
            expected += [f"Non-consecutive offsets in {path}", f"  -1 is followed by {int(path.stem)}"]
    texts = [path.read_text() for path in loaded.dumps.glob("*.dump.txt")]
    complaints = [line for text in texts for line in text.splitlines() if line.startswith(COMPLAINTS)]
    assert sorted(complaints) == sorted(expected)


def test_indexes_fit_their_segments(loaded: Loaded) -> None:
    """Kafka's own tool finds the batch of every entry of the index files, at its position and with its timestamp."""
    files = loaded.simulated.indexes()
    empty = [path for path in files if path.suffix == ".index" and not path.stat().st_size]
    expected = [f"Dumping {path}" for path in files] + [f"{path} is empty." for path in empty]
    assert sorted(loaded.index_report.splitlines()) == sorted(expected)


@pytest.mark.parametrize(
    "comparison", [compare.compare_headers, compare.compare_records], ids=lambda it: it.__name__.split("_")[1]
)
def test_bronze_is_what_the_dump_tool_prints(loaded: Loaded, tables: Tables, comparison: Callable[..., Tally]) -> None:
    """Every header, key, value and marker of the simulated logs reads the same here and there."""
    tally = comparison(tables, compare.dumps_of(loaded.dumps))
    _conclude(tally)
    assert tally.compared > 0


def test_silver_is_what_the_dumped_records_make(loaded: Loaded, tables: Tables) -> None:
    """Commits, intervals of generations, members and assignments, reconciliations and share states are those which
    follow from the records as Kafka's tool reads them."""
    dumps = compare.dumps_of(loaded.dumps)
    groups, shares = dumps[CONSUMER_OFFSETS], dumps.get(SHARE_GROUP_STATE, [])
    _conclude(compare.compare_offset_commits(tables, groups))
    for tally in compare.compare_intervals(tables, groups):
        _conclude(tally)
    _conclude(compare.compare_reconciliations(tables, groups))
    _conclude(compare.compare_share_states(tables, shares))
    _conclude(compare.compare_coverage(tables, dumps))
