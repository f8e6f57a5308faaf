"""Planted faults are found, and the hunt for them can fail; `make mutants` plants all of them."""

from dataclasses import replace

import pytest

from tests.mutants.harness import Fate, HuntFailed, Mutant, check, hunt, mutated_source
from tests.mutants.mutants import MUTANTS

BY_NAME = {mutant.name: mutant for mutant in MUTANTS}
QUICK = [
    "anybody assigns",
    "a partition is taken from whoever has it",
    "a share member never follows its target",
    "one delivery too many",
    "dynamic members go first",
]
"""One for each kind of hunter."""


def test_there_are_enough_mutants() -> None:
    """Each has a name of its own, and all parts of the live side have some."""
    assert len(BY_NAME) == len(MUTANTS) >= 24
    parts = {mutant.path.split("/")[1] for mutant in MUTANTS}
    assert parts == {"classic", "consumer", "coordinator", "share", "share_partition", "share_state", "assignors"}


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_mutants_fit_the_code(mutant: Mutant) -> None:
    """What a mutant changes is in our code, once: whoever rewrites that place has to move the mutant."""
    check(mutant)


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
        BY_NAME["dynamic members go first"],
        name="the same said in another way",
        mutated="        return not False, string_order(member_id)\n",
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
