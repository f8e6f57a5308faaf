"""Logs of another cluster, or of a topic that was recreated, never mix with what bronze has: nothing is written."""

import json
import shutil
from base64 import b64encode
from pathlib import Path
from typing import Any, Final

import pytest

from coordinator_core.bytes.log.records import decode_chunk
from jobs.errors import JobError, SettingsError, SourceError
from jobs.sources.segments import as_array, find_partitions, read_segment
from schemas.tables import TABLES
from tests.cases.harness import CASES, Ledger
from tests.cases.small_logs import NOON_MS, SmallLog
from tests.coordinator_core.group_records import T1, T2

NIGHT_1: Final = CASES / "H-recreated" / "night1"
NIGHT_2: Final = CASES / "H-recreated" / "night2"
DONE: Final = (0, 3)
"""3: of the log partitions one alone is in the case."""


def copy_of(folder: Path, to: Path, *, with_ids: bool = True, cluster_id: str | None = None) -> Path:
    """A copy of a log directory, with or without partition.metadata, with a meta.properties of a cluster."""
    ignore = None if with_ids else shutil.ignore_patterns("partition.metadata")
    shutil.copytree(folder, to, ignore=ignore)
    if cluster_id is not None:
        (to / "meta.properties").write_text(f"#\nversion=1\ncluster.id={cluster_id}\nnode.id=1\n")
    return to


def versions(ledger: Ledger) -> dict[str, int]:
    """The version of every table of bronze, silver and gold."""
    return {name: ledger.warehouse.version(table) for name, table in TABLES.items() if table.layer != "state"}


def refused(ledger: Ledger, *folders: Path, match: str) -> str:
    """The error of a second night, which wrote nothing."""
    before = versions(ledger)
    with pytest.raises(SourceError, match=match) as caught:
        ledger.capture(*folders, number=2)
    assert versions(ledger) == before
    return str(caught.value)


def test_a_recreated_topic_is_refused_by_its_id(ledger: Ledger) -> None:
    """Another topic id in partition.metadata: the message has both ids, the folder and what to do."""
    assert ledger.night(NIGHT_1).exit_code in DONE
    said = refused(ledger, NIGHT_2, match="deleted and recreated")
    for part in (
        "__consumer_offsets",
        "AAAAAAAAAAAAAAAAAAAAAQ",
        "AAAAAAAAAAAAAAAAAAAAAg",
        str(NIGHT_2),
        str(NIGHT_1),
        "--cluster-id",
        "--warehouse",
    ):
        assert part in said
    assert ledger.night(NIGHT_1, number=3).exit_code in DONE


@pytest.mark.parametrize("ids_of", [(), (1,), (2,)])
def test_a_recreated_topic_is_refused_by_its_batches(ledger: Ledger, tmp_path: Path, ids_of: tuple[int, ...]) -> None:
    """Where a folder has no topic id, other records at known offsets under a lower leader epoch tell it."""
    first = copy_of(NIGHT_1, tmp_path / "1", with_ids=1 in ids_of)
    second = copy_of(NIGHT_2, tmp_path / "2", with_ids=2 in ids_of)
    ledger.capture(first)
    said = refused(ledger, second, match="is another log than bronze")
    assert "At offset 0 " in said and "leader epoch 0" in said and "leader epoch 4" in said


def test_the_old_log_is_refused_behind_the_new_one(ledger: Ledger, tmp_path: Path) -> None:
    """The order of nights does not matter: the old folder comes last."""
    ledger.capture(copy_of(NIGHT_2, tmp_path / "2", with_ids=False))
    refused(ledger, copy_of(NIGHT_1, tmp_path / "1", with_ids=False), match="is another log than bronze")


@pytest.mark.parametrize("with_ids", [True, False])
def test_two_logs_in_one_run_are_refused(ledger: Ledger, tmp_path: Path, with_ids: bool) -> None:
    """Two folders of one run that cannot be of one log: not even a table is made."""
    folders = [copy_of(it, tmp_path / it.name, with_ids=with_ids) for it in (NIGHT_1, NIGHT_2)]
    with pytest.raises(SourceError, match="not of one log" if with_ids else "is another log than"):
        ledger.capture(*folders)
    assert ledger.warehouse.version(TABLES["bronze.record_batches"]) <= 0
    assert not ledger.rows("bronze.coverage")


def test_two_topic_ids_in_one_log_directory_name_both_folders(ledger: Ledger, tmp_path: Path) -> None:
    """Partitions of one name whose ids differ: the message names each partition's folder, not the directory twice."""
    (tmp_path / "logs").mkdir()
    for number, topic_id in enumerate((T1, T2)):
        SmallLog(number).write(tmp_path / "logs")
        folder = tmp_path / "logs" / f"__consumer_offsets-{number}"
        (folder / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}\n")
    with pytest.raises(SourceError, match="not of one log") as caught:
        ledger.capture(tmp_path / "logs")
    for number, topic_id in enumerate((T1, T2)):
        assert str(tmp_path / "logs" / f"__consumer_offsets-{number}") in str(caught.value)
        assert topic_id in str(caught.value)


def test_another_cluster_is_refused_by_its_id(ledger: Ledger, tmp_path: Path) -> None:
    """meta.properties of the log directory, or of the folder above a copy of it, names the cluster."""
    mine = copy_of(CASES / "X-compaction" / "full", tmp_path / "mine", cluster_id="mine-AAAAAAAAAAAAAAAAA")
    ledger.capture(mine)
    others = copy_of(CASES / "S-skew", tmp_path / "others", cluster_id="other-BBBBBBBBBBBBBBBB") / "logs"
    said = refused(ledger, others, match="another Kafka cluster")
    for part in ("mine-AAAAAAAAAAAAAAAAA", "other-BBBBBBBBBBBBBBBB", str(others), str(mine), "--cluster-id"):
        assert part in said
    kept = {row["kind"]: (row["id"], row["source"]) for row in ledger.rows("bronze.identities")}
    assert kept["CLUSTER"] == ("mine-AAAAAAAAAAAAAAAAA", str(mine))


def test_a_second_name_of_a_cluster_is_said(tmp_path: Path) -> None:
    """A --cluster-id that was typed in another way has tables of its own, and its first night says so. Not the second
    night, nor one of another cluster."""
    mine = copy_of(CASES / "X-compaction" / "full", tmp_path / "mine", cluster_id="mine-AAAAAAAAAAAAAAAAA")
    other = copy_of(CASES / "X-compaction" / "full", tmp_path / "other", cluster_id="other-AAAAAAAAAAAAAAAA")
    orders, mistyped, third = (Ledger(tmp_path / "warehouse", name) for name in ("orders", "ordesr", "third"))
    said = "(its id is mine-AAAAAAAAAAAAAAAAA) was captured as --cluster-id orders before"
    assert said not in orders.night(mine).text
    assert said in mistyped.night(mine, number=2).text
    assert said not in mistyped.night(mine, number=3).text
    assert "was captured as" not in third.night(other, number=4).text


def test_the_recording_goes_into_no_ledger_of_ones_own(tmp_path: Path) -> None:
    """A night on a named warehouse or cluster without a source is wrong arguments, and nothing is there afterwards."""
    ledger = Ledger(tmp_path / "warehouse", is_prepared=False)
    with pytest.raises(SettingsError, match="no source is named") as caught:
        ledger.night()
    assert caught.value.exit_code == 2
    assert isinstance(caught.value, JobError) and not Path(ledger.root).exists()


def test_a_night_names_its_source(ledger: Ledger) -> None:
    """Which folder went into which cluster's rows is in what a night prints."""
    assert f"source: {NIGHT_1}, as cluster case into {ledger.root}" in ledger.night(NIGHT_1).lines


def dump_of(folder: Path, to: Path) -> Path:
    """The records of a log directory as rows of key and value with offsets, as JSON lines."""
    rows = []
    for log in find_partitions(str(folder), ["__consumer_offsets"]):
        for segment in log.segments:
            chunk = decode_chunk(as_array(read_segment(segment).data))
            for row in range(len(chunk.records)):
                key, value = (
                    b64encode(chunk.data[at : at + size].tobytes()).decode()
                    for at, size in (
                        (int(chunk.records.key_position[row]), int(chunk.records.key_length[row])),
                        (int(chunk.records.value_position[row]), int(chunk.records.value_length[row])),
                    )
                )
                place = {"topic": log.topic, "partition": log.partition, "offset": int(chunk.records.offset[row])}
                rows.append(place | {"timestamp": int(chunk.records.timestamp_ms[row]), "key": key, "value": value})
    to.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return to


def test_a_dump_of_a_recreated_topic_is_refused(ledger: Ledger, tmp_path: Path) -> None:
    """As far as it can be seen: another record at offset 0, a day later; a dump of the same log goes on."""
    ledger.capture(NIGHT_1)
    before = versions(ledger)
    with pytest.raises(SourceError, match="is another log than bronze"):
        ledger.capture(dumps=(str(dump_of(NIGHT_2, tmp_path / "other.json")),), number=2)
    assert versions(ledger) == before
    ledger.capture(dumps=(str(dump_of(NIGHT_1, tmp_path / "same.json")),), number=3)
    again = Ledger(tmp_path / "dump first")
    again.capture(dumps=(str(tmp_path / "same.json"),))
    again.capture(copy_of(NIGHT_1, tmp_path / "1", with_ids=False), number=2)
    with pytest.raises(SourceError, match="is another log than bronze"):
        again.capture(copy_of(NIGHT_2, tmp_path / "2", with_ids=False), number=3)


@pytest.mark.parametrize(
    ("kinds", "is_one_run"),
    [(("log", "dump"), False), (("dump", "log"), False), (("dump", "log"), True), (("dump", "dump"), True)],
)
def test_a_dump_of_another_cluster_is_refused(
    ledger: Ledger, tmp_path: Path, kinds: tuple[str, str], is_one_run: bool
) -> None:
    """If compaction removed the beginning of both logs, their times prove it, in one night or in two."""
    sources: list[dict[str, Any]] = []
    for name, kind in zip(("one", "other"), kinds, strict=True):
        log = SmallLog()
        log.skip(40)
        for minute in range(9):
            log.commit(name, 0, minute, NOON_MS + minute * 60_000)
        folder = log.write(tmp_path / name)
        as_dump = {"dumps": (str(dump_of(folder, tmp_path / f"{name}.json")),)}
        sources.append(as_dump if kind == "dump" else {"segments": (str(folder),)})
    if is_one_run:
        both: dict[str, Any] = {}
        for source in sources:
            for key, uris in source.items():
                both[key] = (*both.get(key, ()), *uris)
        with pytest.raises(SourceError, match="is another log than"):
            ledger.capture(**both)
        return
    ledger.capture(**sources[0])
    before = versions(ledger)
    with pytest.raises(SourceError, match="is another log than bronze"):
        ledger.capture(**sources[1], number=2)
    assert versions(ledger) == before
