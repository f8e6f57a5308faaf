"""Internal topics that got more partitions: where groups and share partitions are, in tables, jobs and SQL alike."""

from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest
from pyspark.sql import SparkSession

from coordinator_core.replay.lookup import SharePartitionKey, key_partition
from jobs.cli_enums import Listing
from jobs.laboratory.whatif import asked as asked_whatif
from jobs.laboratory.whatif import whatif
from jobs.operations.erase import erase, erased_ids
from jobs.operations.maintain import maintain
from jobs.operations.nightly import run_replay
from jobs.queries.answers.audit_report import Span, past_statements
from jobs.queries.answers.findings import findings
from jobs.queries.as_of.as_of import SilverAt
from jobs.queries.as_of.group_model import TopicPartition
from jobs.queries.sql.sql_spark import Catalogue
from jobs.queries.verify.verify import verify
from jobs.queries.verify.verify_broker import Asked
from jobs.report.cluster import GroupLine
from jobs.report.groups import read_groups
from jobs.report.reader import Limits, Reader
from jobs.report.sql_text import Scope
from jobs.silver.homes import CoordinatorPartitions
from jobs.sources.admin_answers import (
    AssignedPartition,
    CommittedOffset,
    GroupDescription,
    GroupMember,
    ShareOffset,
    Topic,
    TopicPartitionId,
)
from schemas.consumer_offsets import TOPIC, RecordType
from schemas.share_group_state import TOPIC as SHARE_TOPIC
from schemas.tables import TABLES
from schemas.tables.silver import GROUP_GENERATIONS
from schemas.tables.state import Checkpoint
from simulator.whatif.verdicts import TOTAL
from tests.answers import owners_at
from tests.cases.harness import CASES, FIRST_NIGHT, Ledger
from tests.cases.small_logs import NOON_MS, SmallLog
from tests.cases.test_answers import described, owned, restored
from tests.cases.test_caveats import audited
from tests.coordinator_core.group_records import T1
from tests.jobs.in_process import in_process
from tests.jobs.queries.verify.test_verify import FakeAdmin
from tests.lengths import how_many, is_long

HISTORIES: Final = how_many(1)
MINUTE: Final = 60_000
LATER: Final = "2100-01-01T00:00:00Z"
PLACES: Final = "silver.coordinator_partitions"
MARKED: Final = ("gold.partition_owners", "gold.rebalances", "gold.commit_anomalies")
MARKED_SHARES: Final = ("gold.redeliveries", "gold.archived_records")
"""Tables with a column that says which rows are of former log partitions."""


def group_in(*places: int, of: str = "g") -> str:
    """A group that is in these partitions of a topic with 2, 3, ... partitions."""
    names = (f"{of}{number}" for number in range(10_000))
    return next(it for it in names if places == tuple(key_partition(it, 2 + index) for index in range(len(places))))


def compacted_logs(root: Path, group: str) -> Path:
    """A topic that grew from 2 to 3 partitions. The cleaner took the beginning of the former log partition, and the
    coordinator of before wrote on: what is left there is younger than what is in the new one."""
    former, new, other = SmallLog(0), SmallLog(2), SmallLog(1)
    new.generation(group, 1, {"new": (0,)}, NOON_MS + MINUTE)
    new.commit(group, 0, 12, NOON_MS + 2 * MINUTE)
    former.skip(40)
    former.generation(group, 7, {"old": (0,)}, NOON_MS + 5 * MINUTE)
    former.commit(group, 0, 5000, NOON_MS + 6 * MINUTE)
    other.commit(group_in(1, 1), 0, 3, NOON_MS)
    for log in (former, new, other):
        log.write(root)
    return root


def test_the_table_says_where_a_group_is_and_what_tells_it(ledger: Ledger, tmp_path: Path) -> None:
    """By the number of partitions that the user says, whichever log partition begins last; others have no row. The
    owner is a member of the group where it is now, and notes name the log partition of before."""
    group = group_in(0, 2)
    ledger.night(compacted_logs(tmp_path / "logs", group), partitions=(f"{TOPIC}=3",))
    now = [row for row in ledger.rows(PLACES) if row["valid_to"] is None]
    assert [(row["group_id"], row["log_partition"], row["former_log_partitions"]) for row in now] == [(group, 2, [0])]
    assert (now[0]["partition_count"], now[0]["learned_from"], now[0]["topic_id"]) == (3, "SETTING", None)
    offsets, remarks = described(ledger, group)
    assert ",12," in offsets and "5000" not in offsets
    assert any(
        f"{TOPIC}-2" in line and f"Its records in {TOPIC}-0 are from before the topic got more partitions" in line
        for line in remarks
    )
    owners, remarks = owned(ledger, "in", 0)
    assert len(owners.splitlines()) == 2 and ",new," in owners
    (line,) = [line for line in remarks if "from before the topic" in line]
    assert f"it is in {TOPIC}-2" in line and f"Its records in {TOPIC}-0 are" in line and group in line
    plan, remarks = restored(ledger, group, LATER)
    assert "12" in plan and "5000" not in plan
    assert any("from before the topic" in line for line in remarks)
    reader = Reader(ledger.warehouse, Scope(ledger.cluster_id))
    (drawn,) = read_groups(reader, [GroupLine(group, "CLASSIC")], Limits())
    assert len(drawn.ownership.at_most(100).starts) == 1


def test_a_topic_that_never_grew_has_no_rows(ledger: Ledger) -> None:
    """Each group is where its records are."""
    ledger.night(CASES / "S-skew" / "logs")
    assert ledger.rows(PLACES) == []
    assert ledger.checkpoints(Checkpoint.COORDINATOR_KEY)


def test_a_number_that_is_reported_later_moves_groups(ledger: Ledger, tmp_path: Path) -> None:
    """A night without a new record, but with --partitions, makes the table and gold again; the next does not."""
    group = group_in(0, 2, 0)
    ledger.night(compacted_logs(tmp_path / "logs", group))
    assert place_now(ledger, group) == (2, [0])
    marks = {(row["log_partition"], row["is_former_log_partition"]) for row in ledger.rows("gold.partition_owners")}
    assert marks == {(0, True), (2, False)}
    ledger.night(tmp_path / "logs", number=2, partitions=(f"{TOPIC}=4",))
    assert place_now(ledger, group) == (0, [2])
    marks = {(row["log_partition"], row["is_former_log_partition"]) for row in ledger.rows("gold.partition_owners")}
    assert marks == {(0, False), (2, True)}
    runs = len(ledger.rows("state.run_starts"))
    ledger.night(tmp_path / "logs", number=3, partitions=(f"{TOPIC}=4",))
    assert len(ledger.rows("state.run_starts")) == runs


def place_now(ledger: Ledger, group: str) -> tuple[int, list[int]]:
    """Where a group is, and where it was."""
    (row,) = [row for row in ledger.rows(PLACES) if row["group_id"] == group and row["valid_to"] is None]
    return row["log_partition"], row["former_log_partitions"]


def test_answers_say_that_all_records_are_of_before(ledger: Ledger, tmp_path: Path) -> None:
    """Restore, of a time before the topic grew and of now, as describe does: the current offsets are not what Kafka
    has. Lists of now, but not of a span from before: then the group was there. Another group, whose log partition
    stayed the same, has no such note."""
    group, stays = group_in(0, 2), group_in(0, 0)
    log = SmallLog(0)
    for name in (group, stays):
        log.commit(name, 0, 5000, NOON_MS)
        log.commit(name, 0, 5001, NOON_MS + MINUTE)
    for number in (1, 2):
        SmallLog(number).write(tmp_path / "logs")
    ledger.night(log.write(tmp_path / "logs"), partitions=(f"{TOPIC}=3",))
    _, described_remarks = described(ledger, group)
    (said,) = [line for line in described_remarks if "before the topic got more partitions" in line]
    for at in ("2026-05-28T20:27:00Z", LATER):
        plan, remarks = restored(ledger, group, at)
        assert said in remarks
        assert "before the topic got more partitions" in plan
        plan, remarks = restored(ledger, stays, at)
        assert "more partitions" not in " ".join([plan, *remarks])
    assert past_statements(ledger.tables, Span(), [group]) == [said.replace("note: ", "group ")]
    assert past_statements(ledger.tables, Span(None, NOON_MS + 2 * MINUTE), [group]) == []


def test_describe_says_which_share_state_is_of_before(ledger: Ledger, tmp_path: Path) -> None:
    """Of a share partition whose state is in a former log partition, all of it or a part; not of one that stays."""

    def share_group(*places: int) -> str:
        keys = {f"s{number}": SharePartitionKey(f"s{number}", T1, 0).as_coordinator_key() for number in range(999)}
        return next(it for it, key in keys.items() if tuple(key_partition(key, count) for count in (2, 3)) == places)

    stranded, moves, stays = share_group(0, 2), share_group(0, 1), share_group(0, 0)
    groups, former, new = SmallLog(), SmallLog(0, SHARE_TOPIC), SmallLog(1, SHARE_TOPIC)
    for group in (stranded, moves, stays):
        groups.group_record(RecordType.SHARE_GROUP_METADATA, {"group_id": group}, {"epoch": 1}, NOON_MS)
        former.snapshot(group, NOON_MS, (), start_offset=900)
    new.snapshot(moves, NOON_MS + MINUTE, (), start_offset=7)
    for log in (groups, former, new, SmallLog(2, SHARE_TOPIC)):
        log.write(tmp_path / "logs")
    ledger.night(tmp_path / "logs", partitions=(f"{SHARE_TOPIC}=3",))
    said = {group: " ".join(described(ledger, group)[1]) for group in (stranded, moves, stays)}
    assert (
        f"is in {SHARE_TOPIC}-0. That topic has 3 partitions now, so Kafka looks for it in {SHARE_TOPIC}-2"
        in (said[stranded])
    )
    assert f"-0 is in {SHARE_TOPIC}-0, from before that topic got more partitions, and is not in" in said[moves]
    assert "more partitions" not in said[stays]


def test_rows_of_former_log_partitions_say_so(ledger: Ledger, tmp_path: Path) -> None:
    """In gold, and so in SQL and in the lists of audit; also rows that an audit made before the topic grew."""
    group = group_in(0, 2)
    logs = compacted_logs(tmp_path / "logs", group)
    new = logs / f"{TOPIC}-2"
    new.rename(tmp_path / "new")
    ledger.night(logs)
    assert {row["is_former_log_partition"] for name in MARKED for row in ledger.rows(name)} == {False}
    (tmp_path / "new").rename(new)
    ledger.night(logs, number=2)
    marks = {
        (row["group_id"], row["log_partition"], row["is_former_log_partition"])
        for name in MARKED
        for row in ledger.rows(name)
    }
    assert {mark for mark in marks if mark[0] == group} == {(group, 0, True), (group, 2, False)}
    assert not any(is_former for group_id, _, is_former in marks if group_id != group)
    header, *rows = [line.split(",") for line in audited(ledger, Listing.OWNERS).splitlines() if line[0] != "#"]
    place, mark = header.index("log_partition"), header.index("is_former_log_partition")
    assert {(row[place], row[mark]) for row in rows if row[0] == group} == {("0", "true"), ("2", "false")}


def test_share_partitions_of_former_log_partitions_say_so(ledger: Ledger, tmp_path: Path) -> None:
    """Also rows that were settled before the topic grew."""
    keys = (f"s{number}" for number in range(10_000))

    def wanted(group: str, count: int) -> int:
        return key_partition(SharePartitionKey(group, T1, 0).as_coordinator_key(), count)

    moved = next(it for it in keys if (wanted(it, 2), wanted(it, 3)) == (0, 2))
    stays = next(it for it in keys if (wanted(it, 2), wanted(it, 3)) == (0, 0))
    former, new = SmallLog(0, SHARE_TOPIC), SmallLog(2, SHARE_TOPIC)
    batches = ((0, 9, 4, 1), (10, 19, 0, 2))
    for day in range(4):
        for epoch, group in enumerate((moved, stays)):
            former.snapshot(
                group, NOON_MS + day * 24 * 60 * MINUTE, batches[: 1 + day % 2], snapshot_epoch=4 * day + epoch
            )
    SmallLog(1, SHARE_TOPIC).write(tmp_path / "logs")
    ledger.night(former.write(tmp_path / "logs"))
    assert {row["is_former_log_partition"] for name in MARKED_SHARES for row in ledger.rows(name)} == {False}
    assert {row["is_settled"] for row in ledger.rows("gold.archived_records")} >= {True}
    new.snapshot(moved, NOON_MS + 5 * 24 * 60 * MINUTE, batches, snapshot_epoch=40)
    ledger.night(new.write(tmp_path / "logs"), number=2)
    marks = {
        (row["group_id"], row["log_partition"], row["is_former_log_partition"])
        for name in MARKED_SHARES
        for row in ledger.rows(name)
    }
    assert marks == {(moved, 0, True), (moved, 2, False), (stays, 0, False)}


def test_pictures_of_the_report_end_where_the_group_left(ledger: Ledger) -> None:
    """What is open in a former log partition is drawn as long as the group was there: a partition has one owner."""
    ledger.night(CASES / "J-partitions" / "logs")
    places = CoordinatorPartitions(ledger.table(PLACES))
    (left_ms,) = places.left_at(TOPIC).values()
    reader = Reader(ledger.warehouse, Scope(ledger.cluster_id))
    (group,) = read_groups(reader, [GroupLine("grp3", "CLASSIC")], Limits())
    drawn = group.ownership.at_most(100)
    assert len(drawn.starts) == 2
    assert drawn.starts.tolist()[1] == drawn.ends.tolist()[0] == left_ms
    assert [column.name for column in group.owners.columns][-1] == "is_former_log_partition"


def test_whatif_is_of_the_log_partition_where_the_group_is(ledger: Ledger, tmp_path: Path) -> None:
    """Now the new one, whatever its number; of a time before that the former one."""
    group = group_in(0, 2)
    former, new, third = SmallLog(0), SmallLog(2), SmallLog(1)
    former.generation(group, 7, {"old": (0,)}, NOON_MS)
    former.generation(group, 8, {}, NOON_MS + MINUTE)
    new.generation(group, 1, {"new": (0,)}, NOON_MS + 5 * MINUTE)
    new.generation(group, 2, {"new": (0,), "more": ()}, NOON_MS + 6 * MINUTE)
    third.commit("other", 0, 1, NOON_MS)
    for log in (former, new, third):
        log.write(tmp_path / "logs")
    ledger.night(tmp_path / "logs")
    question = asked_whatif(["session.timeout.ms=60000"], [], ledger.settings())

    def generations(**span: int) -> set[int | None]:
        rows = whatif(ledger.tables, group_id=group, question=question, **span)
        return {row.generation for row in rows if row.kind != TOTAL}

    assert generations() and generations() <= {1, 2}
    assert generations(to_ms=NOON_MS + 2 * MINUTE) == {7, 8}
    # the former log partition's last generation has nobody: the group has not gone
    assert group not in findings(ledger.tables).new(Listing.EMPTIED)


# --- verify


def broker_says(counts: dict[str, int], **answers: Any) -> Asked:
    """A cluster whose coordinator topics have so many partitions, none of them written to meanwhile."""
    topics = {name: Topic(name, f"{number:022d}", count) for number, (name, count) in enumerate(counts.items())}
    logs = [(name, number) for name, count in counts.items() for number in range(count)]
    nothing: dict[str, Any] = {"descriptions": {}, "offsets": {}, "share_offsets": {}, "share_states": {}}
    starts, ends = dict.fromkeys(logs, 0), dict.fromkeys(logs, 1_000)
    return Asked(None, starts, ends, ends, topics | {"in": Topic("in", T1, 4)}, **(nothing | answers))


def verified(ledger: Ledger, asked: Asked) -> list[tuple[str, str, str | None]]:
    """What verify finds: verdict, thing and reason."""
    findings = verify(ledger.tables, asked, FakeAdmin({}))
    return [(it.verdict.name, it.thing.what.value, it.reason) for it in findings]


def test_verify_equals_the_broker_of_a_topic_that_grew(ledger: Ledger) -> None:
    """The group as the broker has it, where the broker looks for it; a difference names the former log partition."""
    ledger.night(CASES / "J-partitions" / "logs")
    owned_rows = frozenset({AssignedPartition(None, "in", 0, None)})
    member = GroupMember("new", None, "c", "/10.0.0.1", assigned=owned_rows)
    group = GroupDescription("grp3", "CLASSIC", "Stable", (member,), "consumer", "range")

    def answers(offset: int, reported: GroupDescription) -> Asked:
        committed = {"grp3": {("in", 0): CommittedOffset(offset, None, "")}}
        return broker_says({TOPIC: 60}, descriptions={"grp3": reported}, offsets=committed)

    assert {(verdict, reason) for verdict, _, reason in verified(ledger, answers(12, group))} == {("EQUAL", None)}
    found = verified(ledger, answers(5000, replace(group, members=(replace(member, member_id="old"),))))
    unlike = [(what, reason or "") for verdict, what, reason in found if verdict == "DIFFERENT"]
    assert {"member", "offset"} <= {what for what, _ in unlike}
    for _, reason in unlike:
        assert f"it is in {TOPIC}-50 now that the topic has 60 partitions" in reason
        assert (
            f"its records in {TOPIC}-0 are from before the topic got more partitions, and were not compared" in reason
        )


def test_verify_names_the_log_partition_of_what_is_in_none_of_now(ledger: Ledger, tmp_path: Path) -> None:
    """A group and a share partition of which nothing was captured but what is of before."""
    group = group_in(0, 2)
    key = SharePartitionKey(group, T1, 0)
    log, shares = SmallLog(0), SmallLog(key_partition(key.as_coordinator_key(), 2), SHARE_TOPIC)
    log.commit(group, 0, 5000, NOON_MS)
    shares.snapshot(group, NOON_MS, (), start_offset=900)
    log.write(tmp_path / "logs")
    ledger.night(shares.write(tmp_path / "logs"))
    count = next(it for it in range(3, 9) if key_partition(key.as_coordinator_key(), it) != shares.partition)
    asked = broker_says(
        {TOPIC: 3, SHARE_TOPIC: count},
        offsets={group: {("in", 0): CommittedOffset(12, None, "")}},
        share_offsets={group: {TopicPartitionId(T1, "in", 0): ShareOffset(10, 0)}},
    )
    reasons = {what: reason or "" for verdict, what, reason in verified(ledger, asked) if verdict != "EQUAL"}
    assert f"its records in {TOPIC}-0 are from before" in reasons["offset"]
    assert f"its records in {SHARE_TOPIC}-{shares.partition} are from before" in reasons["share-offset"]


# --- at random


class GrownLogs:
    """Logs of both coordinator topics that got more partitions twice, at random: groups with members, groups without,
    share partitions; the cleaner took beginnings of log partitions."""

    COUNTS: Final = (2, 3, 5)

    def __init__(self, random: Random) -> None:
        self.random = random
        self.logs = {(topic, number): SmallLog(number, topic) for topic in (TOPIC, SHARE_TOPIC) for number in range(5)}
        self.groups = [f"{kind}{random.randrange(1000)}" for kind in "abcde"]
        self.at_ms = NOON_MS
        self.times: list[int] = []
        for step in range(60):
            self.at_ms += random.randrange(1, MINUTE)
            self.times.append(self.at_ms)
            self._write(step // 20)
        self.skipped = {
            place: random.randrange(len(log.batches) // 2 + 1) if random.random() < 0.5 else 0
            for place, log in self.logs.items()
        }

    def _write(self, age: int) -> None:
        random = self.random
        group = random.choice(self.groups)
        # the coordinator of before goes on for a while
        count = self.COUNTS[age if random.random() < 0.8 else max(age - 1, 0)]
        match random.randrange(3):
            case 0:
                members: dict[str, tuple[int, ...]] = {}
                if random.random() < 0.8:
                    members[f"member-{random.randrange(3)}"] = (0,)
                self._log(TOPIC, group, count).generation(group, random.randrange(1, 99), members, self.at_ms)
            case 1:
                offset = random.randrange(1000) if random.random() < 0.9 else None
                self._log(TOPIC, group, count).commit(group, random.randrange(2), offset, self.at_ms)
            case _:
                key = SharePartitionKey(group, T1, 0).as_coordinator_key()
                start, epoch = random.randrange(1000), random.randrange(1, 99)
                log = self._log(SHARE_TOPIC, key, count)
                batches = ((start, start + 9, 0, 1),)
                log.snapshot(group, self.at_ms, batches, start_offset=start, snapshot_epoch=epoch)

    def _log(self, topic: str, key: str, count: int) -> SmallLog:
        return self.logs[topic, key_partition(key, count)]

    def write(self, root: Path, part: float = 1.0) -> Path:
        """The first part of each log, as segments; log partitions without a record are there, too."""
        for place, log in self.logs.items():
            batches = log.batches
            log.batches = batches[self.skipped[place] : max(self.skipped[place], round(len(batches) * part))]
            log.write(root)
            log.batches = batches
        return root


def grown_ledger(tmp_path: Path, seed: int, *parts: float) -> tuple[Ledger, GrownLogs]:
    """A warehouse of random logs, a night a part."""
    logs, ledger = GrownLogs(Random(seed)), Ledger(tmp_path / f"{seed}-{len(parts)}" / "warehouse")
    for number, part in enumerate(parts, 1):
        ledger.night(logs.write(tmp_path / f"{seed}-{len(parts)}" / "logs", part), number=number)
    return ledger, logs


def keys_of(ledger: Ledger) -> list[str]:
    """The groups and share partitions that log partitions have records of."""
    return sorted(map(repr, ledger.checkpoints(Checkpoint.COORDINATOR_KEY)))


@pytest.mark.parametrize("seed", range(HISTORIES))
def test_nights_find_what_one_run_finds(tmp_path: Path, seed: int) -> None:
    """However the logs are cut: the same places, by the same keys, and the same marks in gold."""
    whole, _ = grown_ledger(tmp_path, seed, 1.0)
    nights, _ = grown_ledger(tmp_path, seed, 0.3, 0.7, 1.0)
    for name in (PLACES, *MARKED, *MARKED_SHARES):
        assert sorted(map(repr, whole.rows(name))) == sorted(map(repr, nights.rows(name))), name
    assert keys_of(whole) == keys_of(nights)
    places = whole.table(PLACES)
    assert places.num_rows == places.group_by(list(TABLES[PLACES].key)).aggregate([]).num_rows > 0


def test_the_table_stays_what_one_run_makes(tmp_path: Path) -> None:
    """Older offsets that come later, files that are merged, ids that are erased, and all replayed again: the places of
    keys are those of one run over everything."""
    logs, ledger = GrownLogs(Random(7)), Ledger(tmp_path / "warehouse")
    skipped = logs.skipped
    logs.skipped = {place: min(count + 2, len(logs.logs[place].batches)) for place, count in skipped.items()}
    ledger.night(logs.write(tmp_path / "late"))
    logs.skipped = skipped
    ledger.night(logs.write(tmp_path / "all"), number=2)
    whole = Ledger(tmp_path / "whole")
    whole.night(tmp_path / "all")

    def same() -> bool:
        places = (sorted(map(repr, it.rows(PLACES))) for it in (ledger, whole))
        return next(places) == next(places) and keys_of(ledger) == keys_of(whole)

    assert whole.rows(PLACES) and same()
    settings = ledger.settings()
    merging = replace(settings, maintain=replace(settings.maintain, merge_file_count_min=2))
    maintain(in_process(), ledger.warehouse, merging, started_at=FIRST_NIGHT + timedelta(days=3))
    assert same()
    ids = erased_ids(["member=member-1", "host=member-2"])
    counts = erase(in_process(), ledger.warehouse, ids=ids, new_key=b"key!" * 8, at=FIRST_NIGHT + timedelta(days=4))
    assert counts["silver.group_members"] and not counts[PLACES]
    assert same()
    starts = len(ledger.rows("state.run_starts"))
    ledger.night(tmp_path / "all", number=5)
    assert len(ledger.rows("state.run_starts")) == starts and same()
    ledger.run(partial(run_replay, rebuild=True), number=6)
    assert same()


@pytest.mark.skipif(HISTORIES == 1 and not is_long(), reason="minutes: --long, or --count")
def test_jobs_and_sql_find_the_same(own_session: SparkSession, tmp_path: Path) -> None:
    """Newest offsets, groups and share partitions, and those of a time, and owners: of random logs that grew."""
    for seed in range(max(1, HISTORIES // 3)):
        ledger, logs = grown_ledger(tmp_path, 100 + seed, 0.6, 1.0)
        catalogue = Catalogue(own_session, ledger.warehouse)
        assert sql_state(catalogue, logs.groups, None) == job_state(ledger, None)
        # a query each
        moments = [logs.times[index] for index in ((45, 15, 59) if HISTORIES > 1 else (45,))]
        groups = logs.groups if HISTORIES > 1 else logs.groups[:1]
        offsets, generations, starts = job_state(ledger, moments[0])
        starts = {group: start for group, start in starts.items() if group in groups}
        assert sql_state(catalogue, groups, moments[0]) == (offsets, generations, starts)
        assert sql_owners(catalogue, moments) == {
            (at_ms, row.group_id, row.member_id)
            for at_ms in moments
            for row in owners_at(ledger.warehouse, ledger.cluster_id, topic="in", partition=0, at_ms=at_ms)
        }


State = tuple[dict[tuple[str, TopicPartition], int], dict[str, int], dict[str, int]]


def job_state(ledger: Ledger, at_ms: int | None) -> State:
    """Offsets in force, generations, and start offsets of share partitions, as describe and restore find them."""
    silver = SilverAt(ledger.tables, at_ms)
    offsets = silver.committed_offsets()
    starts = silver._share_starts()
    generations = silver.left_behind().present(silver.open_rows(GROUP_GENERATIONS))
    return (
        {(group, place): it.offset for group, places in offsets.items() for place, it in places.items()},
        {row["group_id"]: row["generation"] for row in generations},
        {group: it.start_offset or 0 for group, places in starts.items() for it in places.values()},
    )


def sql_state(catalogue: Catalogue, groups: list[str], at_ms: int | None) -> State:
    """The same by views, or by functions of the time."""
    sources = ("current_offsets", "current_groups", "current_share_partitions")
    if at_ms is not None:
        time = f"timestamp_millis({at_ms})"
        shares = [f"SELECT * FROM share_partition_at('{group}', '{T1}', 0, {time})" for group in groups]
        ids = "SELECT DISTINCT group_id AS id FROM state.checkpoints WHERE kind = 'COORDINATOR_KEY'"
        sources = (
            f"({ids}) AS g, LATERAL offsets_at(g.id, {time})",
            f"group_at({time})",
            f"({' UNION ALL '.join(shares)})",
        )
    offsets, generations, states = sources
    committed = asked(catalogue, f"SELECT group_id, topic, partition, committed_offset FROM {offsets}")
    found = asked(catalogue, f"SELECT group_id, generation FROM {generations}")
    starts = asked(catalogue, f"SELECT group_id, start_offset FROM {states}")
    # of one group and partition there is one row, of one log partition
    assert len({row[:3] for row in committed}) == len(committed)
    assert len(dict(found)) == len(found) and len(dict(starts)) == len(starts)
    return (
        {(group, TopicPartition(topic, partition)): offset for group, topic, partition, offset in committed},
        dict(found),
        dict(starts),
    )


def sql_owners(catalogue: Catalogue, moments: list[int]) -> set[tuple[int, str, str]]:
    """Who owned a partition at some moments, by group."""
    times = ", ".join(map(str, moments))
    query = f"""
        SELECT t.at_ms, o.group_id, o.member_id FROM (SELECT explode(array({times})) AS at_ms) AS t,
        LATERAL owner_at('in', 0, timestamp_millis(t.at_ms)) AS o
    """
    return set(asked(catalogue, query))


def asked(catalogue: Catalogue, query: str) -> list[Any]:
    """Rows of a query."""
    return [tuple(row) for row in catalogue.frame(query).collect()]
