"""Readers during a night: each answer is of one night, silver and gold together, and no reader stops a night."""

import json
import multiprocessing
import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any, Final

import pytest

from jobs.delta.locks import AUDIT, NIGHTLY, only_one
from jobs.delta.replay_runs import WholeRun
from jobs.errors import WarehouseError
from jobs.exit_codes import DONE, INCOMPLETE
from jobs.operations import nightly
from jobs.operations.erase import KEY_BYTES, erase
from jobs.operations.maintain import maintain
from jobs.report import run as report
from jobs.report.cluster import group_lines
from jobs.report.run import make_report
from jobs.report.sql_text import Scope
from schemas.tables.gold import REBALANCES
from tests.cases.harness import CLUSTER_ID, FIRST_NIGHT, Ledger
from tests.cases.test_not_judged import groups_log, more
from tests.jobs.cli.asking import Shown, answered
from tests.jobs.in_process import in_process
from tests.lengths import takes_minutes

COUNTS: Final = ", ".join(
    f"(SELECT count(*) FROM {name}) AS {name.partition('.')[2]}"
    for name in ("silver.offset_commits", "silver.group_events", "gold.rebalances", "gold.partition_owners")
)
ERASED: Final = "erased"
QUESTIONS: Final = (
    "groups --format json",
    "describe --format json",
    "describe --members --format json",
    "audit --list rebalances --format json",
    "audit --list commits --format json",
    "history --group {group} --format json",
    "changes --format json",
    f'sql --format json -e "SELECT {COUNTS}"',
)


def asked(question: str, root: Path, group: str) -> Shown:
    """What a command answers of a warehouse."""
    job, *options = question.format(group=group).split(" ", 1)
    return answered(f"{job} --warehouse {root} --cluster-id {CLUSTER_ID} {' '.join(options)}")


def rows_of(shown: Shown) -> list[str]:
    """The rows, without what a list says of itself: it is of an earlier moment than the log."""
    return [line for line in shown.out.splitlines() if not line.startswith('{"is_complete"')]


class StoppedError(Exception):
    """The night ends here."""


def stop(*_: Any, **__: Any) -> None:
    """In place of a step of a night."""
    raise StoppedError


def answers_of(ledger: Ledger) -> dict[str, list[str]]:
    """The rows of every question."""
    return {question: rows_of(asked(question, Path(ledger.root), "good")) for question in QUESTIONS}


def nights_of(folder: Path, count: int) -> list[Path]:
    """A log that grows, as each night finds it."""
    log, found = groups_log(), []
    for number in range(count):
        if number:
            more(log, number + 1)
        found.append(log.write(folder / f"logs-{number}"))
    return found


@pytest.fixture
def between(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Ledger, dict[str, list[str]], Path]:
    """A ledger whose second night has replayed and not audited, what it answered after the first, and its log. The
    parameter ERASED: between the two an erasure deleted all older versions."""
    first, second = nights_of(tmp_path, 2)
    ledger = Ledger(tmp_path / "warehouse")
    ledger.night(first)
    if getattr(request, "param", "") == ERASED:
        erase(in_process(), ledger.warehouse, ids=["client-of-nobody"], new_key=b"k" * KEY_BYTES, at=FIRST_NIGHT)
    before = answers_of(ledger)
    with monkeypatch.context() as patch:
        patch.setattr(nightly, "audit", stop)
        with pytest.raises(StoppedError):
            ledger.night(second, number=2)
    return ledger, before, second


@pytest.mark.parametrize("between", ["not erased", ERASED], indirect=True)
def test_a_night_appears_as_one(between: tuple[Ledger, dict[str, list[str]], Path]) -> None:
    """Until its audit has ended, silver is shown as gold is: of the night before, and a line says so."""
    ledger, before, log = between
    with only_one(ledger.warehouse, NIGHTLY, CLUSTER_ID, since=FIRST_NIGHT):
        assert answers_of(ledger) == before
    for question in ("groups", "describe", "history --group good"):
        shown = asked(question, Path(ledger.root), "good")
        assert "replayed and not audited yet" in shown.out + shown.err, question
    ledger.night(log, number=3)
    after = answers_of(ledger)
    assert all(after[question] != before[question] for question in QUESTIONS if "--members" not in question)


def test_a_report_that_a_night_crossed_is_of_the_later_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its tables are read one after the other: the page is what it is when nothing happens meanwhile."""
    first, second = nights_of(tmp_path, 2)
    ledger = Ledger(tmp_path / "warehouse")
    ledger.night(first)
    nights = [second]

    def page() -> str:
        text, _ = make_report(ledger.warehouse, Scope(CLUSTER_ID), made_at=FIRST_NIGHT)
        return text

    def meanwhile(*arguments: Any) -> Any:
        if nights:
            ledger.night(nights.pop(), number=2)
        return group_lines(*arguments)

    before = page()
    with monkeypatch.context() as patch:
        patch.setattr(report, "group_lines", meanwhile)
        crossed = page()
    assert not nights
    assert crossed == page() != before


def test_a_replay_alone_is_shown(tmp_path: Path) -> None:
    """Without a night nobody waits for an audit: whoever only replays sees what was replayed."""
    first, second = nights_of(tmp_path, 2)
    ledger = Ledger(tmp_path / "warehouse")
    ledger.night(first)
    before = answers_of(ledger)
    ledger.run(nightly.run_catch_up, second, number=2)
    after = answers_of(ledger)
    described = QUESTIONS[1]
    assert after[described] != before[described]


def test_a_capture_changes_no_answer(tmp_path: Path) -> None:
    """The last day, of which verdicts are, ends with what was judged: a continuous capture is ahead all day."""
    first, second = nights_of(tmp_path, 2)
    ledger = Ledger(tmp_path / "warehouse")
    ledger.night(first)
    before = answers_of(ledger)
    ledger.capture(second, number=2)
    assert answers_of(ledger) == before


def test_ids_are_not_erased_from_half_a_night(between: tuple[Ledger, dict[str, list[str]], Path]) -> None:
    """Readers would still see the rows of before."""
    ledger, _, _ = between
    with pytest.raises(WarehouseError, match="the last audit of cluster 'case' was interrupted"):
        erase(in_process(), ledger.warehouse, ids=["good"], new_key=bytes(32), at=FIRST_NIGHT)


@pytest.mark.parametrize("job", [NIGHTLY, AUDIT])
def test_a_list_waits_for_no_job(between: tuple[Ledger, dict[str, list[str]], Path], job: str) -> None:
    """While a night or an audit is at work, a list is that of the last whole one, and no second audit begins."""
    ledger, before, _ = between
    question = "audit --list rebalances --format json"
    with only_one(ledger.warehouse, job, CLUSTER_ID, since=FIRST_NIGHT):
        shown = asked(question, Path(ledger.root), "good")
    assert rows_of(shown) == before[question]
    assert "replayed and not audited yet" in shown.out
    assert shown.code == INCOMPLETE


def test_a_night_waits_for_an_audit(tmp_path: Path) -> None:
    """Somebody else's audit ends, and the night goes on."""
    (log,) = nights_of(tmp_path, 1)
    ledger = Ledger(tmp_path / "warehouse")
    with ThreadPoolExecutor(1) as pool:
        with only_one(ledger.warehouse, AUDIT, CLUSTER_ID, since=FIRST_NIGHT):
            night = pool.submit(ledger.night, log)
            until(lambda: WholeRun.newest(ledger.tables).is_known)
            assert not ledger.warehouse.exists(REBALANCES) or not ledger.rows(REBALANCES.full_name)
        assert night.result().exit_code == DONE
    assert ledger.rows(REBALANCES.full_name)


def test_nights_do_not_overlap(tmp_path: Path) -> None:
    """The second says who is at work, before it captures anything."""
    (log,) = nights_of(tmp_path, 1)
    ledger = Ledger(tmp_path / "warehouse")
    with (
        only_one(ledger.warehouse, NIGHTLY, CLUSTER_ID, since=FIRST_NIGHT),
        pytest.raises(WarehouseError, match="another nightly of cluster 'case' is at work"),
    ):
        ledger.night(log)
    assert not ledger.rows("bronze.record_batches")


def until(is_so: Callable[[], bool]) -> None:
    """Wait for what another thread does."""
    while not is_so():
        time.sleep(0.05)


def read_on(root: Path, seed: int, is_over: Event, is_erasing: Event, found: Path) -> None:
    """Ask one question after the other, as a process of its own. An answer that an erasure crossed may be none: it
    deletes what is being read, and readers are to be stopped."""
    pick, seen = random.Random(seed), []
    while not is_over.is_set():
        question, was_erasing = pick.choice(QUESTIONS), is_erasing.is_set()
        shown = asked(question, root, "good")
        if shown.code in (DONE, INCOMPLETE) or not (was_erasing or is_erasing.is_set()):
            seen.append((question, shown.code, rows_of(shown), shown.err))
    found.write_text(json.dumps(seen))


@takes_minutes
def test_every_answer_is_of_one_night(tmp_path: Path) -> None:
    """Three readers ask all the time, while nights, maintain and erasures run."""
    logs = nights_of(tmp_path, 6)
    alone = Ledger(tmp_path / "alone")
    expected: dict[str, list[list[str]]] = {question: [] for question in QUESTIONS}
    for number, log in enumerate(logs, 1):
        alone.night(log, number=number)
        for question, rows in answers_of(alone).items():
            expected[question].append(rows)
    ledger = Ledger(tmp_path / "warehouse")
    ledger.night(logs[0])
    # what deltalake has begun does not live on in a forked process
    context = multiprocessing.get_context("spawn")
    is_over, is_erasing = context.Event(), context.Event()
    found = [tmp_path / f"reader-{number}.json" for number in range(3)]
    readers = [
        context.Process(target=read_on, args=(Path(ledger.root), seed, is_over, is_erasing, path))
        for seed, path in enumerate(found)
    ]
    for reader in readers:
        reader.start()
    try:
        for number, log in enumerate(logs[1:], 2):
            ledger.night(log, number=number)
            maintain(in_process(), ledger.warehouse, ledger.settings(), started_at=FIRST_NIGHT + timedelta(days=number))
            if number % 2:
                is_erasing.set()
                erase(
                    in_process(), ledger.warehouse, ids=["client-of-nobody"], new_key=b"k" * KEY_BYTES, at=FIRST_NIGHT
                )
                is_erasing.clear()
    finally:
        is_over.set()
        for reader in readers:
            reader.join()
    seen = [answer for path in found for answer in json.loads(path.read_text())]
    torn = [
        (question, code, error)
        for question, code, rows, error in seen
        if rows not in expected[question] and "is gone: maintain deleted its files" not in error
    ]
    assert torn == []
    assert len({json.dumps(rows) for question, _, rows, _ in seen if question == QUESTIONS[-1]}) > 1, "one night alone"
