"""Planted faults are found, and the hunt for them can fail; `make mutants` plants all of them."""

from dataclasses import replace

import pytest

from tests.mutants.harness import MUTANTS, PACKAGE, ROOT, Fate, HuntFailed, Mutant, hunt, mutated_source

BY_NAME = {mutant.name: mutant for mutant in MUTANTS}
QUICK = [
    "live/classic/commands.py: anybody assigns",
    "live/consumer/reconciliation.py: a partition is taken from whoever has it",
    "live/share/heartbeat.py: a share member never follows its target",
    "live/share_partition/in_flight.py: one delivery too many",
    "live/assignors/server_range.py: dynamic members go first",
    "inference/groups/storms.py: range(count - 1, => range(count,",
]
"""One for each kind of hunter."""


def test_there_are_enough_mutants() -> None:
    """Each has a name of its own, and all parts of the core that decide have some."""
    assert len(BY_NAME) == len(MUTANTS) >= 150
    rooms = {mutant.path.rpartition("/")[0] for mutant in MUTANTS}
    live = ("classic", "consumer", "coordinator", "share", "share_partition", "share_state", "assignors")
    inference = ("audit", "commits", "facts", "groups", "shares")
    assert rooms >= {
        *(f"live/{room}" for room in live),
        *(f"inference/{room}" for room in inference),
        "replay/columnar",
    }
    assert len({mutant.path for mutant in MUTANTS if mutant.path.startswith(("inference/", "replay/"))}) >= 25


def test_mutants_fit_the_code() -> None:
    """What a mutant changes is in our code, once: whoever rewrites that place has to move the mutant."""
    sources = {path: (ROOT / PACKAGE / path).read_text(encoding="utf-8") for path in {one.path for one in MUTANTS}}
    for mutant in MUTANTS:
        assert mutated_source(mutant, sources[mutant.path]) != sources[mutant.path]


@pytest.mark.nights
@pytest.mark.parametrize("name", QUICK)
def test_mutants_are_found(name: str) -> None:
    """The hunter finds the fault."""
    mutant = BY_NAME[name]
    fate, what = hunt(mutant, mutant.hunter)
    assert fate == Fate.FOUND, what


def test_nothing_is_found_where_nothing_is_planted() -> None:
    """Our code as it is gives the hunter nothing to find."""
    assert hunt(None, "range") == (Fate.SURVIVED, "nothing")


def test_a_change_without_effect_survives() -> None:
    """A mutant which only looks different is not found: a hunter looks at what the code does."""
    harmless = replace(
        BY_NAME["live/assignors/server_range.py: dynamic members go first"],
        name="the same said in another way",
        mutated="not False, string_order(member_id)",
    )
    fate, _ = hunt(harmless, harmless.hunter)
    assert fate == Fate.SURVIVED


MUTANT = Mutant("m", "p.py", "x = 1", "x = 2", "range")
MISFITS = {
    "text which is not there": (MUTANT, "y = 1\n"),
    "text which is there twice": (MUTANT, "x = 1\nx = 1\n"),
    "a change which is none": (replace(MUTANT, mutated="x = 1"), "x = 1\n"),
    "a change which is no Python": (replace(MUTANT, mutated="x = "), "x = 1\n"),
}


@pytest.mark.parametrize("case", MISFITS)
def test_a_misfit_fails_loudly(case: str) -> None:
    """A mutant which cannot be planted as it is meant is no mutant."""
    mutant, source = MISFITS[case]
    with pytest.raises(HuntFailed):
        mutated_source(mutant, source)


def test_a_hunter_who_falls_finds_nothing() -> None:
    """A hunt which ends in any other way than with a find or without one is no find."""
    with pytest.raises(HuntFailed):
        hunt(None, "nobody")
