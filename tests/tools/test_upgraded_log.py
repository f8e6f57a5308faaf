"""What the comparison of a log that was upgraded in place finds, without brokers."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cases.small_logs import NOON_MS, SmallLog
from tools import upgraded_log
from tools.upgraded_log import TOPIC, ReleaseRun, compare, read_steps, tell

MINUTE_MS = 60_000


@pytest.fixture
def steps(tmp_path: Path) -> list[ReleaseRun]:
    """Two releases over one log: the second commits further, and to another partition."""
    log = SmallLog()
    log.commit("g", 0, 5, NOON_MS, topic=TOPIC)
    first = log.write(tmp_path / "1-4.2.0" / "logs")
    log.commit("g", 0, 9, NOON_MS + MINUTE_MS, topic=TOPIC)
    log.commit("h", 1, 7, NOON_MS + MINUTE_MS, topic=TOPIC)
    second = log.write(tmp_path / "2-4.4.0" / "logs")
    return [
        ReleaseRun("4.2.0", first, NOON_MS + 1_000, {("g", 0): 5}),
        ReleaseRun("4.4.0", second, NOON_MS + 2 * MINUTE_MS, {("g", 0): 9, ("h", 1): 7}),
    ]


def test_another_answer_is_named(steps: list[ReleaseRun], tmp_path: Path) -> None:
    """Of a broker that answers otherwise, once for the night and once as of the time; all else is equal: the other
    step, the tables of both ways, and the bytes."""
    steps[0] = replace(steps[0], answers={("g", 0): 6, ("k", 2): 1})
    compared = compare(steps, tmp_path / "work")
    named = ["g orders-0: broker 6, ledger 5", "k orders-2: broker 1, ledger None"]
    assert [it.differences for it in compared] == [named, [], named, [], [], []]
    assert [it.point_count for it in compared[:4]] == [2, 2, 2, 2]
    assert [*tell(compared)][:2] == ["0 of 2  offsets after the night of 4.2.0", f"  {named[0]}"]


def test_an_earlier_run_is_read_again(steps: list[ReleaseRun], tmp_path: Path) -> None:
    """As it was written, in the order of its steps."""
    for folder, step in zip(("1-4.2.0", "2-4.4.0"), steps, strict=True):
        offsets = [[*place, offset] for place, offset in sorted(step.answers.items())]
        facts = {"version": step.version, "at_ms": step.at_ms, "offsets": offsets}
        (tmp_path / folder / "answers.json").write_text(json.dumps(facts))
    assert read_steps(tmp_path) == steps


def test_a_relative_folder_is_that_of_whoever_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers run in folders of their own, where its name would mean another one."""
    made: list[Path] = []

    def make_steps(output: Path, *_: object, **__: object) -> list[ReleaseRun]:
        made.append(output)
        return []

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(upgraded_log, "make_steps", make_steps)
    monkeypatch.setattr(upgraded_log, "compare", lambda *_: [])
    assert upgraded_log.main(["upgraded", "--chain", "kraft"]) == 0
    assert made == [tmp_path / "upgraded"]
