"""Client libraries of four languages on a real broker: what their own callbacks say is what gold says.

--minutes 10 for a run of ten minutes instead of two, --first-seed N for other stories than those of seed 23.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.cases.harness import Ledger, Night
from tests.conftest import REPORT_LINE
from tests.lengths import first_seed, minutes, takes_minutes
from tests.live.broker import LiveBroker
from tests.live.kafka_home import KafkaHome
from tests.live.libraries.installed import install
from tests.live.libraries.judge import JUDGED, LIKELY, Judgement, report, speaks_of_coordinators
from tests.live.libraries.play import GROUPS, LIBRARY_SETTINGS, cycles_in, play
from tests.live.libraries.truth import read_truth

MINUTES: Final = minutes(2)
SEED: Final = first_seed(23)
LIBRARIES_MIN: Final = 6
LANGUAGES_MIN: Final = 4
LIKELY_RIGHT_MIN: Final = 0.95

pytestmark = takes_minutes


@pytest.fixture(scope="module")
def played(home: KafkaHome, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Groups of all libraries have lived through their scripts."""
    root = tmp_path_factory.mktemp("libraries")
    installed = install(home)
    with LiveBroker(home, root / "broker", settings=LIBRARY_SETTINGS) as broker:
        return play(broker, installed, root / "played", GROUPS, seed=SEED, cycles=cycles_in(MINUTES))


@pytest.fixture(scope="module")
def night(played: Path) -> tuple[Night, Ledger]:
    """One night over the broker's logs."""
    ledger = Ledger(played / "warehouse")
    return ledger.night(played / "logs"), ledger


@pytest.fixture(scope="module")
def judgement(played: Path, night: tuple[Night, Ledger]) -> Judgement:
    """The tables against callbacks, script, and the broker's own log."""
    return report(read_truth(played / "truth"), {name: night[1].rows(name) for name in JUDGED})


@pytest.fixture
def says(record_property: Callable[[str, object], None]) -> Iterator[Callable[[str], None]]:
    """A line for the end of the run."""
    yield lambda line: record_property(REPORT_LINE, line)


def test_libraries_of_four_languages_took_part(judgement: Judgement, played: Path) -> None:
    """At least six libraries of four languages lived: members left in order and were killed in each."""
    left_out: dict[str, Any] = json.loads((played / "truth" / "groups.json").read_text())["left_out"]
    assert judgement.library_count >= LIBRARIES_MIN, left_out
    assert judgement.language_count >= LANGUAGES_MIN, left_out
    assert min(judgement.acts["kill"], judgement.acts["leave"]) >= len(GROUPS)


def test_nothing_is_said_against_the_coordinators(night: tuple[Night, Ledger]) -> None:
    """The night ends well, nothing is quarantined, and no rule of the coordinators counts as broken."""
    ended, ledger = night
    assert ended.exit_code == 0, ended.text
    assert ledger.rows("bronze.quarantine") == []
    assert [row for row in ledger.rows("gold.log_anomalies") if speaks_of_coordinators(row)] == []


def test_owners_are_those_of_the_callbacks(judgement: Judgement, says: Callable[[str], None]) -> None:
    """Every interval of ownership in gold is one of the members' callbacks, and the other way round."""
    for line in judgement.lines("live libraries"):
        says(line)
    assert sum(score.right for score in judgement.owners.values()) > 0
    assert judgement.wrong_owners == []


def test_causes_are_what_happened(judgement: Judgement) -> None:
    """CERTAIN is always right, LIKELY nearly always: the script and the broker's own log say what happened."""
    assert judgement.wrongly_certain == []
    assert judgement.causes[LIKELY].share >= LIKELY_RIGHT_MIN, judgement.causes[LIKELY].wrong
