"""A recording of client libraries of four languages (tests/live/libraries made it), judged without a broker and without
Spark."""

import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from tests.cases.harness import Ledger, Night
from tests.claims import Claim, hand_over
from tests.live.libraries.judge import GUESS, JUDGED, LIKELY, Judgement, report, speaks_of_coordinators
from tests.live.libraries.truth import EXPIRED, LEFT, Truth, read_truth
from tests.recorded import ARCHIVES as RECORDINGS
from tools.recordings import extract

ARCHIVES: Final = RECORDINGS / "clients"
LIBRARY_COUNTS: Final = {"recording": 10, "defaults": 8}
"""By archive."""
ACTS_MIN: Final = 40
"""Members killed, and members that left in order."""
LIKELY_RIGHT_MIN: Final = 0.95
GUESS_RIGHT_MIN: Final = 0.7
GUESSES_MIN: Final = 5
"""Fewer show nothing."""


@pytest.fixture(scope="module", params=LIBRARY_COUNTS)
def name(request: pytest.FixtureRequest) -> str:
    """Of an archive."""
    return str(request.param)


@pytest.fixture(scope="module")
def recording(name: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """logs/ and truth/"""
    folder = tmp_path_factory.mktemp("clients")
    with tarfile.open(ARCHIVES / f"{name}.tar.xz") as archive:
        extract(archive, folder)
    return folder


@pytest.fixture(scope="module")
def truth(recording: Path) -> Truth:
    """What was done, and what the members said."""
    return read_truth(recording / "truth")


@pytest.fixture(scope="module")
def night(recording: Path, truth: Truth) -> tuple[Night, Ledger]:
    """One night over the logs."""
    ledger = Ledger(recording / "warehouse")
    return ledger.night(recording / "logs"), ledger


@pytest.fixture(scope="module")
def judgement(truth: Truth, night: tuple[Night, Ledger]) -> Judgement:
    """The tables against callbacks, script, and the broker's own log."""
    return report(truth, {name: night[1].rows(name) for name in JUDGED})


def test_all_libraries_took_part(name: str, judgement: Judgement) -> None:
    """Libraries of four languages, and members of each that left and that were killed."""
    assert (judgement.library_count, judgement.language_count) == (LIBRARY_COUNTS[name], 4)
    assert min(judgement.acts["kill"], judgement.acts["leave"]) >= ACTS_MIN


def test_nothing_is_said_against_the_coordinators(night: tuple[Night, Ledger]) -> None:
    """The night ends well, nothing is quarantined, and no rule of the coordinators counts as broken."""
    ended, ledger = night
    assert ended.exit_code == 0, ended.text
    assert ledger.rows("bronze.quarantine") == []
    assert [row for row in ledger.rows("gold.log_anomalies") if speaks_of_coordinators(row)] == []


def test_owners_are_those_of_the_callbacks(name: str, judgement: Judgement, report_line: Callable[[str], None]) -> None:
    """Every interval of ownership in gold is one of the members' callbacks, and the other way round."""
    for line in judgement.lines(f"client libraries, {name}"):
        report_line(line)
    assert [words for score in judgement.owners.values() for words in score.wrong] == []


def test_causes_are_what_happened(judgement: Judgement, request: pytest.FixtureRequest) -> None:
    """CERTAIN is always right, LIKELY nearly always: the script and the broker's own log say what happened."""
    hand_over((Claim(it.cause, it.method, it.confidence, (), it.is_right) for it in judgement.verdicts), request.node)
    assert judgement.wrongly_certain == []
    assert judgement.causes[LIKELY].share >= LIKELY_RIGHT_MIN, judgement.causes[LIKELY].wrong
    for cause, score in judgement.departures[LIKELY].items():
        assert score.share >= LIKELY_RIGHT_MIN, (cause, score.wrong)


def test_guesses_of_departures_are_mostly_right(judgement: Judgement) -> None:
    """Of members that were killed or closed by ten client libraries each kind of guess is right in seven of ten; where
    nothing shows it gold says that it does not know."""
    guesses = judgement.departures[GUESS]
    assert sum(score.right for score in guesses.values()) >= GUESSES_MIN
    for cause, score in guesses.items():
        assert not score.wrong or score.share >= GUESS_RIGHT_MIN, (cause, score.wrong)


def test_clients_are_noted_once(name: str, night: tuple[Night, Ledger]) -> None:
    """kafka-go and platformatic name a version of the consumer protocol that they do not write: a note each, however
    many members and generations they have, and their topics are there."""
    _, ledger = night
    notes = [row for row in ledger.rows("gold.log_anomalies") if row["category"] == "CLIENT"]
    noted = {"recording": ["kafka-go", "platformatic"], "defaults": ["kafka-go-defaults"]}
    assert sorted(row["group_id"] for row in notes) == noted[name]
    members = [row for row in ledger.rows("silver.group_members") if row["group_id"] in noted[name]]
    assert members
    assert all(row["subscribed_topics"] for row in members)


def test_the_comparison_can_fail(truth: Truth, night: tuple[Night, Ledger]) -> None:
    """With the callbacks of two members exchanged, and each leave called an expiry, next to nothing is right."""
    group = truth.groups["java" if "java" in truth.groups else "java-defaults"]
    first, second = group.lives[:2]
    exchanged = {first: second, second: first}
    other = replace(
        group,
        owned=tuple(it._replace(life=exchanged.get(it.life, it.life)) for it in group.owned),
        departures={
            member_id: [it._replace(what=EXPIRED if it.what == LEFT else LEFT) for it in departures]
            for member_id, departures in group.departures.items()
        },
    )
    wrong = report(replace(truth, groups={group.group_id: other}), {name: night[1].rows(name) for name in JUDGED})
    assert len(wrong.wrong_owners) >= 4
    went = [score for scores in wrong.departures.values() for score in scores.values()]
    assert sum(score.count for score in went) >= 4
    assert sum(score.right for score in went) <= 1
