"""A group that cannot be judged keeps no other from gold: it is said, the night ends with 3, and it is judged from its
beginning as soon as it can be."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from coordinator_core.inference.audit.groups import judge_group
from coordinator_core.inference.commits.hanging import hanging
from coordinator_core.inference.shares.share_days import merged_days
from coordinator_core.inference.shares.share_log import ShareKeys, ShareLog
from jobs.delta.core_tables import rows_table
from jobs.gold import audit_groups, audit_shares, snapshot
from jobs.gold import task as audit_work
from schemas.share_group_state import TOPIC as SHARE_TOPIC
from tests.cases.harness import Ledger
from tests.cases.small_logs import NOON_MS, SmallLog
from tests.cases.test_times import gold
from tests.lengths import takes_minutes

DAY_MS = 86_400_000
NOT_JUDGED = "NOT_JUDGED"


class PlantedError(Exception):
    """A fault of ours."""


def groups_log() -> SmallLog:
    """Two groups with members, and two that did nothing but commit."""
    log = SmallLog()
    for group_id in ("bad", "good"):
        log.generation(group_id, 1, {"a": (0,)}, NOON_MS)
        log.commit(group_id, 0, 5, NOON_MS + 1_000)
        log.generation(group_id, 2, {"a": (0,), "b": (1,)}, NOON_MS + 2_000)
        log.commit(group_id, 0, 3, NOON_MS + 3_000)
    for group_id in ("bad-simple", "good-simple"):
        log.commit(group_id, 0, 5, NOON_MS + 4_000)
    return log


def more(log: SmallLog, night: int) -> None:
    """What comes in a later night: rebalances on another day, commits that go on, and one that goes back."""
    at_ms = NOON_MS + night * DAY_MS
    for group_id in ("bad", "good"):
        log.generation(group_id, 2 * night + 1, {"a": (0, 1)}, at_ms)
        log.commit(group_id, 1, night, at_ms + 1_000)
        log.commit(group_id, 0, 10 * night, at_ms + 1_000)
        log.commit(group_id, 0, 10 * night - 1, at_ms + 2_000)
        log.generation(group_id, 2 * night + 2, {"a": (0,), "b": (1,)}, at_ms + 3_000)
    for group_id in ("bad-simple", "good-simple"):
        log.commit(group_id, 0, 5 + night, at_ms + 4_000)


def fails_of(function: Callable[..., Any], name: Callable[..., str]) -> Callable[..., Any]:
    """A function that fails for what is of a group whose id begins with `bad`."""

    def failing(*args: Any, **more: Any) -> Any:
        if name(*args).startswith("bad"):
            raise PlantedError("planted")
        return function(*args, **more)

    return failing


def plant(patch: pytest.MonkeyPatch) -> None:
    """Let the judgement of some groups fail."""
    patch.setattr(audit_groups, "judge_group", fails_of(judge_group, lambda life, *_: life.group_id))


def by_group(ledger: Ledger, name: str) -> dict[str, int]:
    """How many rows there are of each group."""
    counts: dict[str, int] = {}
    for row in ledger.rows(name):
        counts[row["group_id"]] = counts.get(row["group_id"], 0) + 1
    return counts


@pytest.mark.parametrize("good_nights", [0, 1])
def test_a_group_that_cannot_be_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, good_nights: int) -> None:
    """Be it judged for the first time, or after audits that left its past settled: the others have gold, its failure
    is a row with the place in our code and in the log; when the fault is mended, gold is as if it had never been."""
    ledger, whole, log = Ledger(tmp_path / "nights"), Ledger(tmp_path / "whole"), groups_log()
    night = 0
    # one that only commits on needs no judgement, once it had one
    failing = {"bad"} if good_nights else {"bad", "bad-simple"}
    for _ in range(good_nights):
        night += 1
        more(log, night)
        assert ledger.night(log.write(tmp_path / "logs"), number=night).exit_code == 0
    with monkeypatch.context() as patch:
        plant(patch)
        for _ in range(1 + good_nights):
            night += 1
            more(log, night)
            reported = ledger.night(log.write(tmp_path / "logs"), number=night)
            assert reported.exit_code == 3
            assert f"{len(failing)} could not be judged: " in reported.text
            rows = [row for row in ledger.rows("gold.log_anomalies") if row["rule"] == NOT_JUDGED]
            assert sorted(row["group_id"] for row in rows) == sorted(failing)
            for row in rows:
                assert row["details"].startswith("PlantedError: planted (test_not_judged.py:")
                assert row["confidence"] is None and row["at"] is None
                assert (row["log_partition"], row["log_offset"]) in {
                    (commit["log_partition"], commit["log_offset"]) for commit in ledger.rows("silver.offset_commits")
                } | {(0, generation["from_log_offset"]) for generation in ledger.rows("silver.group_generations")}
            assert by_group(ledger, "gold.rebalances") == {"good": 2 + 2 * night}
            assert set(by_group(ledger, "gold.partition_owners")) == {"good"}
            judged = {"good", "good-simple", "bad-simple"} - failing
            assert set(by_group(ledger, "gold.group_summary")) == judged
            assert by_group(ledger, "gold.commit_anomalies")["good"] == 1 + night
    night += 1
    more(log, night)
    assert ledger.night(log.write(tmp_path / "logs"), number=night).exit_code == 0
    assert whole.night(log.write(tmp_path / "logs")).exit_code == 0
    assert gold(ledger) == gold(whole)


@pytest.mark.parametrize(
    ("stage", "good_nights"),
    [
        ("audit_share_log", 0),
        ("archived_table", 1),
        pytest.param("audit_share_log", 1, marks=takes_minutes),
        pytest.param("archived_table", 0, marks=takes_minutes),
    ],
)
def test_a_share_group_that_cannot_be_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str, good_nights: int
) -> None:
    """The other share groups of its log partition, and of others, have gold, also where all was settled before."""
    ledger, whole = Ledger(tmp_path / "nights"), Ledger(tmp_path / "whole")
    logs, night = [SmallLog(0, SHARE_TOPIC), SmallLog(1, SHARE_TOPIC)], 0

    def goes_on() -> Path:
        nonlocal night
        night += 1
        for number, log in enumerate(logs):
            for group_id in ("bad", "good") if number == 0 else ("other",):
                batches = tuple((10 * at, 10 * at + 9, 4 * (at % 2), 1 + at % 2) for at in range(2 * night))
                log.snapshot(group_id, NOON_MS + night * DAY_MS, batches, snapshot_epoch=night)
            log.write(tmp_path / "logs")
        return tmp_path / "logs"

    for _ in range(good_nights):
        assert ledger.night(goes_on(), number=night).exit_code == 0
    made = getattr(audit_shares, stage)

    def groups(of: Any, keys: ShareKeys | None = None) -> set[str]:
        """Whose rows a stage is given, be it a log, columns of gold or rows of silver."""
        if isinstance(of, ShareLog):
            keys, key = of.keys, of.states.key
        else:
            keys, key = keys or of.keys, of.key
        return {keys.group_ids[code] for code in keys.group[key].tolist()}

    def failing(of: Any, *args: Any) -> Any:
        if "bad" in groups(of, args[0] if stage.endswith("_table") else None):
            raise PlantedError("planted")
        return made(of, *args)

    with monkeypatch.context() as patch:
        patch.setattr(audit_shares, stage, failing)
        for _ in range(2 - good_nights):
            assert ledger.night(goes_on(), number=night).exit_code == 3
            rows = ledger.rows("gold.log_anomalies")
            assert [(row["group_id"], row["rule"], row["log_topic"]) for row in rows if row["rule"] == NOT_JUDGED] == [
                ("bad", NOT_JUDGED, SHARE_TOPIC)
            ]
            assert by_group(ledger, "gold.redeliveries").keys() == {"good", "other"}
            assert by_group(ledger, "gold.archived_records").keys() == {"good", "other"}
            assert by_group(ledger, "gold.share_group_summary").keys() == {"good", "other"}
    assert ledger.night(goes_on(), number=night).exit_code == 0
    assert whole.night(tmp_path / "logs").exit_code == 0
    assert gold(ledger) == gold(whole)


def share_log() -> SmallLog:
    """One share group."""
    log = SmallLog(0, SHARE_TOPIC)
    log.snapshot("share", NOON_MS, ((0, 9, 4, 1), (10, 19, 0, 2)))
    return log


class Begun(NamedTuple):
    """A warehouse after one night, to be copied, the logs of a second and of a third night, and gold of one night over
    the latter in which all could be read."""

    root: Path
    second: Path
    third: Path
    gold: dict[str, list[str]]

    def copy(self, root: Path) -> Ledger:
        """A ledger that goes on."""
        return Ledger(shutil.copytree(self.root, root))


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Begun:
    """Groups with members and without, and a share group."""
    folder, log = tmp_path_factory.mktemp("begun"), groups_log()
    ledger, whole = Ledger(folder / "first"), Ledger(folder / "whole")
    first, second, third = (share_log().write(folder / f"logs-{number}") for number in (1, 2, 3))
    for number, logs in enumerate((first, second, third), 1):
        more(log, number)
        log.write(logs)
    assert ledger.night(first, number=1).exit_code == 0
    assert whole.night(third).exit_code == 0
    return Begun(folder / "first", second, third, gold(whole))


@pytest.mark.parametrize("stage", ["is_noted", "rows_table"])
def test_a_fault_in_what_is_done_for_many_groups_at_once(
    begun: Begun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    """Be it in what is new, so that all are judged from their beginning, or where rows become columns, which leaves
    their log partition out: other log partitions have gold, and gold is whole once the fault is mended."""
    ledger = begun.copy(tmp_path / "nights")
    with monkeypatch.context() as patch:
        if stage == "is_noted":
            patch.setattr(audit_groups, stage, raises)
        else:
            of_bad = fails_of(rows_table, lambda _, rows, *__: min(row.group_id or "" for row in rows))
            patch.setattr(audit_work, stage, of_bad)
        reported = ledger.night(begun.second, number=2)
        of_audit = [row for row in ledger.rows("gold.log_anomalies") if row["category"] == "AUDIT"]
        rows = [(row["rule"], row["log_topic"]) for row in of_audit]
        assert rows == ([] if stage == "is_noted" else [("LOG_NOT_JUDGED", "__consumer_offsets")])
        assert reported.exit_code == (3 if rows else 0)
        assert by_group(ledger, "gold.rebalances").keys() == (set() if rows else {"bad", "good"})
        assert by_group(ledger, "gold.archived_records").keys() == {"share"}
    assert ledger.night(begun.third, number=3).exit_code == 0
    assert gold(ledger) == begun.gold


def planted(real: Callable[..., Any], is_bad: Callable[..., bool]) -> Callable[..., Any]:
    """A function that fails where something of a group whose id begins with `bad` is in what it is given."""

    def failing(*args: Any, **more: Any) -> Any:
        if is_bad(*args):
            raise PlantedError("planted")
        return real(*args, **more)

    return failing


def test_an_open_transaction_that_cannot_be_judged(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the driver says of transactions is said of all other groups; once it can be judged, no row is left."""
    from jobs.gold import hanging_transactions as audit_hanging

    log = SmallLog()
    for number, group_id in enumerate(("bad", "good")):
        log.commit(group_id, 0, 10, NOON_MS, producer_id=7 + number)
    log.commit("good", 1, 1, NOON_MS + 60 * 60_000)
    with monkeypatch.context() as patch:
        patch.setattr(
            audit_hanging,
            "hanging",
            planted(hanging, lambda commits, *_: commits.group_id == "bad"),
        )
        assert ledger.night(log.write(tmp_path / "logs")).exit_code == 3
        assert [row["group_id"] for row in ledger.rows("gold.hanging_transactions")] == ["good"]
        rows = [row for row in ledger.rows("gold.log_anomalies") if row["rule"] == NOT_JUDGED]
        assert [(row["group_id"], row["log_topic"], row["log_offset"]) for row in rows] == [
            ("bad", "__consumer_offsets", 0)
        ]
    log.commit("good", 1, 2, NOON_MS + 61 * 60_000)
    assert ledger.night(log.write(tmp_path / "logs"), number=2).exit_code == 0
    assert sorted(row["group_id"] for row in ledger.rows("gold.hanging_transactions")) == ["bad", "good"]


def test_days_of_a_share_group_that_cannot_be_put_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others have their days, and gold is whole as soon as they can be."""
    ledger, whole = Ledger(tmp_path / "nights"), Ledger(tmp_path / "whole")
    log = SmallLog(0, SHARE_TOPIC)

    def goes_on(night: int) -> Path:
        for group_id in ("bad", "good", "other"):
            batches = tuple((10 * at, 10 * at + 9, 4 * (at % 2), 1 + at % 2) for at in range(2 * night))
            log.snapshot(group_id, NOON_MS + night * DAY_MS, batches, snapshot_epoch=night)
        return log.write(tmp_path / "logs")

    def is_bad(counts: Any, days: Any) -> bool:
        return any(place.group_id == "bad" for part in counts for place in part.places)

    with monkeypatch.context() as patch:
        patch.setattr(audit_shares, "merged_days", planted(merged_days, is_bad))
        for night in (1, 2):
            assert ledger.night(goes_on(night), number=night).exit_code == 3
            assert by_group(ledger, "gold.share_group_summary").keys() == {"good", "other"}
            assert by_group(ledger, "gold.archived_records").keys() == {"bad", "good", "other"}
            rows = [row for row in ledger.rows("gold.log_anomalies") if row["rule"] == NOT_JUDGED]
            assert [row["group_id"] for row in rows] == ["bad"]
    assert ledger.night(goes_on(3), number=3).exit_code == 0
    assert whole.night(tmp_path / "logs").exit_code == 0
    assert gold(ledger) == gold(whole)


def raises(*_: Any) -> Any:
    """A function of ours that always fails."""
    raise PlantedError("planted")


@pytest.mark.parametrize(
    ("module", "name", "what"),
    [
        (audit_groups, "configs", "configs of groups, topics and brokers"),
        (audit_shares, "share_members", "members of share groups"),
        pytest.param(audit_groups, "removed_topics", "topics that were removed", marks=takes_minutes),
        pytest.param(snapshot, "samples_seen", "when end offsets were sampled", marks=takes_minutes),
        (snapshot, "topic_growth", "when topics got more partitions"),
        pytest.param(snapshot, "counts_by_id", "how many partitions topics have", marks=takes_minutes),
        pytest.param(snapshot, "_session_configs", "configs of sessions", marks=takes_minutes),
        pytest.param(snapshot, "_removals", "when topics were removed", marks=takes_minutes),
        (snapshot, "_places", "which groups are in several log partitions"),
    ],
)
def test_an_input_of_all_groups_that_cannot_be_read(
    begun: Begun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: Any, name: str, what: str
) -> None:
    """Gold is made without it and says so, the night ends with 3, and the next audit rebuilds gold with it."""
    ledger = begun.copy(tmp_path / "nights")
    with monkeypatch.context() as patch:
        patch.setattr(module, name, raises)
        reported = ledger.night(begun.second, number=2)
        assert reported.exit_code == 3
        assert "1 could not be judged" in reported.text
        (row,) = [row for row in ledger.rows("gold.log_anomalies") if row["category"] == "AUDIT"]
        assert (row["rule"], row["group_id"]) == ("INPUT_NOT_READ", None)
        assert row["details"].startswith(f"{what}: PlantedError: planted (test_not_judged.py:")
        assert by_group(ledger, "gold.rebalances").keys() == {"bad", "good"}
        assert by_group(ledger, "gold.archived_records").keys() == {"share"}
    assert ledger.night(begun.third, number=3).exit_code == 0
    assert gold(ledger) == begun.gold


@pytest.mark.parametrize(
    ("topic", "good_nights"),
    [
        ("__consumer_offsets", 1),
        (SHARE_TOPIC, 0),
        pytest.param("__consumer_offsets", 0, marks=takes_minutes),
        pytest.param(SHARE_TOPIC, 1, marks=takes_minutes),
    ],
)
def test_a_log_partition_that_cannot_be_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, topic: str, good_nights: int
) -> None:
    """Of the others there is gold, be the fault in what is read of one log partition; afterwards gold is whole."""
    ledger, whole = Ledger(tmp_path / "nights"), Ledger(tmp_path / "whole")
    first, second = SmallLog(0, topic), SmallLog(1, topic)

    def goes_on(number: int) -> Path:
        for log, group_id in ((first, "first"), (second, "second")):
            at_ms = NOON_MS + number * DAY_MS
            if topic == SHARE_TOPIC:
                batches = ((0, 9, 4, 1), (10, 10 * number + 19, 0, 2))
                log.snapshot(group_id, at_ms, batches, snapshot_epoch=number)
            else:
                log.generation(group_id, number + 1, {"a": tuple(range(number + 1))}, at_ms)
                log.commit(group_id, 0, 5 + number, at_ms + 1_000)
            log.write(tmp_path / "logs")
        return tmp_path / "logs"

    table = "gold.archived_records" if topic == SHARE_TOPIC else "gold.rebalances"
    for number in range(good_nights):
        assert ledger.night(goes_on(number), number=number + 1).exit_code == 0
    with monkeypatch.context() as patch:
        for module in (audit_groups, audit_shares):
            patch.setattr(
                module,
                "clock_steps",
                planted(module.clock_steps, lambda _work, _parts, log_partition, *_: log_partition == 1),
            )
        reported = ledger.night(goes_on(good_nights), number=good_nights + 1)
        assert reported.exit_code == 3
        assert f"1 could not be judged: {topic}-1" in reported.text
        (row,) = [row for row in ledger.rows("gold.log_anomalies") if row["category"] == "AUDIT"]
        assert (row["rule"], row["log_topic"], row["log_partition"]) == ("LOG_NOT_JUDGED", topic, 1)
        assert by_group(ledger, table).keys() == {"first"}
    assert ledger.night(goes_on(good_nights + 1), number=good_nights + 2).exit_code == 0
    assert whole.night(tmp_path / "logs").exit_code == 0
    assert gold(ledger) == gold(whole)
    assert by_group(ledger, table).keys() == {"first", "second"}
