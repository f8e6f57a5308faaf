"""whatif plays a group as the release that wrote its log, and says how that is known."""

from functools import cache

import pytest

from coordinator_core.bytes.kafka_versions import DEFAULT_VERSION, KNOWN_VERSIONS, METADATA_VERSION, KafkaVersion, Since
from coordinator_core.bytes.kafka_versions import production_level as level_of
from coordinator_core.inference.facts.configs import ConfigRow, Configs
from coordinator_core.inference.facts.life import GroupLife
from coordinator_core.inference.facts.log_facts import LogFacts
from simulator.whatif.answer import answer_group
from simulator.whatif.release import PlayedRelease, ReleaseSource, played_release
from simulator.whatif.settings import Question, Recorded, question_of
from tests.recorded import RECORDINGS
from tests.simulator.whatif.recorded import recorded_life
from tests.simulator.whatif.test_whatif import DEPLOY, Case

ASKED, LEVEL, RECORDS, DEFAULT = ReleaseSource
ALL_STOP = (*DEPLOY, *(("stop", 300 + member, member, 30) for member in range(3)))
BEGIN_MS = 0
V40, V41, V42, V43, V44 = KNOWN_VERSIONS


@cache
def life(version: KafkaVersion, protocol: str = "consumer") -> GroupLife:
    """A group that is Empty for a while, as coordinators of a release write it; ours write the hash in any release."""
    is_classic = protocol == "classic"
    case = Case(ALL_STOP, protocol=protocol, assignor="range" if is_classic else "", session_s=45)
    simulated = case.run(version).life("g")
    if Since.METADATA_HASH.holds_in(version):
        return simulated
    return simulated._replace(generations=tuple(row._replace(metadata_hash=0) for row in simulated.generations))


def levels(*levels_from: tuple[int, int]) -> Configs:
    """A metadata log with levels of metadata.version, each from a time on."""
    ends = [at_ms for _, at_ms in levels_from[1:]]
    return Configs(
        ConfigRow("FEATURE", "", METADATA_VERSION, str(level), place, at_ms, end)
        for place, ((level, at_ms), end) in enumerate(zip(levels_from, [*ends, None], strict=True))
    )


def played(
    of: GroupLife, configs: Configs | None = None, asked: KafkaVersion | None = None, *, generations: int | None = None
) -> PlayedRelease:
    """For the whole life, or its first generations."""
    rows = of.generations[:generations]
    return played_release(of, rows, asked, configs or Configs(), rows[0].valid_from, rows[-1].valid_from + 60_000)


@pytest.mark.parametrize(("wrote", "plays"), [(V40, V40), (V41, V42), (V42, V42), (V43, V43), (V44, V44)], ids=str)
def test_records_show_the_release(wrote: KafkaVersion, plays: KafkaVersion) -> None:
    """Without a metadata log: no rule differs between 4.1 and 4.2, so the later one is played."""
    assert played(life(wrote)) == (plays, RECORDS)


GROUPS = {
    "old-40": (4, V40, ("k01-uniform", "k02-range", "k04-regex", "k06-migrate", "k10-empty-switch")),
    "full-a": (5, V43, ("k01-uniform", "k02-range", "k04-regex", "k06-migrate", "k10-empty-switch")),
    "new-44": (5, V44, ("k21-assignor", "x11-txn")),
}


@pytest.mark.parametrize("recording", GROUPS)
def test_records_of_real_brokers_show_their_release(recording: str) -> None:
    """Of 4.0.0, 4.3.1 and 4.4.0; a group by a regular expression or of another type before is no exception."""
    partition_count, wrote, group_ids = GROUPS[recording]
    for group_id in group_ids:
        of = recorded_life(RECORDINGS / recording / "logs", group_id, partition_count)
        assert played(of) == (wrote, RECORDS), group_id


@pytest.mark.parametrize("wrote", KNOWN_VERSIONS, ids=str)
def test_the_level_of_metadata_version_shows_the_release(wrote: KafkaVersion) -> None:
    """Where brokers finalized what they came with, whatever else the records allow."""
    assert played(life(wrote), levels((level_of(wrote), BEGIN_MS))) == (wrote, LEVEL)


def test_records_of_a_later_release_than_the_level_count() -> None:
    """An upgrade may leave the level where it was: it says at least which release there is."""
    configs = levels((level_of(V40), BEGIN_MS))
    assert played(life(V41), configs) == (V41, RECORDS)
    assert played(life(V43), configs) == (V43, RECORDS)
    assert played(life(V44), configs) == (V44, RECORDS)


def test_a_log_that_was_upgraded_meanwhile_is_played_as_the_newer_release() -> None:
    """And one of which only the time before is asked for as the older one."""
    of = life(V40)
    last = of.generations[-1]
    upgraded_ms = last.valid_from + 1
    configs = levels((level_of(V40), BEGIN_MS), (level_of(V42), upgraded_ms))
    assert played(of, configs) == (V42, LEVEL)
    assert played(of, configs, generations=1) == (V40, LEVEL)


def test_what_is_asked_for_is_played() -> None:
    """Whatever the log tells."""
    assert played(life(V40), levels((level_of(V40), BEGIN_MS)), V44) == (V44, ASKED)


@pytest.mark.parametrize(
    ("configs", "expected"),
    [
        (None, (DEFAULT_VERSION, DEFAULT)),
        (levels((level_of(KafkaVersion(3, 9)), BEGIN_MS)), (V40, LEVEL)),
        (levels((level_of(V42), BEGIN_MS)), (V42, LEVEL)),
        (levels((level_of(V44) + 5, BEGIN_MS)), (V44, LEVEL)),
    ],
    ids=["no-metadata-log", "3.9", "4.2", "later"],
)
def test_classic_groups_show_nothing_of_their_own(configs: Configs | None, expected: tuple[object, object]) -> None:
    """The level decides, as the nearest release whose rules are known; without one the default is played, and named."""
    assert played(life(V40, "classic"), configs) == expected


def test_a_group_that_was_not_seen_from_its_beginning_shows_nothing_by_its_first_epoch() -> None:
    """Behind a hole the first epoch that is seen may be any."""
    of = life(V43)
    cut = of._replace(generations=of.generations[:1], assignments=(), log=LogFacts(whole_to=0))
    (row,) = cut.generations
    cut = cut._replace(generations=(row._replace(metadata_hash=None),))
    assert played(cut) == (DEFAULT_VERSION, DEFAULT)


def test_the_answer_says_as_which_release() -> None:
    """In each row, with how it is known."""
    asked = question_of(["group.instance.id=dynamic"])
    for question, expected in (
        (asked, ("4.4", "RECORDS")),
        (Question(asked.changed, Recorded(kafka_version=V41), asked.texts), ("4.1", "ASKED")),
    ):
        rows = answer_group(life(V44), question)
        assert {(row.kafka_version, row.kafka_version_source) for row in rows} == {expected}
