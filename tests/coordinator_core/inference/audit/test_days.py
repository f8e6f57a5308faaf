"""The days of groups."""

from coordinator_core.inference.audit.groups import GroupGold, audit_group
from coordinator_core.inference.facts.calendar import DAY_MS
from coordinator_core.inference.facts.settings import InferenceSettings
from tests.coordinator_core.inference.group_lives import classic, epoch, joins, life_of, reconciled, target

SETTINGS = InferenceSettings()


def test_days_count_what_happened_in_them() -> None:
    """Generations, members that were there from the day before, commits; a day on which nothing happened has no row."""
    life = life_of(
        [(0, classic(0, {})), (10, classic(1, {"a": (0,), "b": (1,)})), (3 * DAY_MS + 5, classic(2, {"a": (0, 1)}))],
        [(20, 0, 5), (30, 0, 6), (DAY_MS + 1, 1, 7)],
    )
    days = audit_group(life, SETTINGS).days
    assert [
        (day.day // DAY_MS, day.generation_count, day.rebalance_count, day.member_count_max, day.commit_count)
        for day in days
    ] == [(0, 2, 1, 2, 2), (1, 0, 0, 2, 1), (3, 1, 1, 2, 0)]


def test_times_scattered_over_ages_count_all_the_same() -> None:
    """Days far apart, and commits of no time at all: the first count, the others are of no day."""
    far = 200_000 * DAY_MS
    days = audit_group(life_of([], [(-1, 0, 4), (5, 0, 5), (6, 0, 6), (far, 0, 7)]), SETTINGS).days
    assert [(day.day, day.commit_count, day.group_type) for day in days] == [(0, 2, "CLASSIC"), (far, 1, "CLASSIC")]


def test_time_not_stable_and_without_owner_is_cut_at_midnight() -> None:
    """A hand-over that goes on over midnight counts for both days, and names the partition."""
    night = DAY_MS
    life = life_of(
        [
            (0, [*joins("a"), *epoch(2), *target(2, {"a": (0, 1)}), *reconciled("a", 2, (0, 1))]),
            (night - 900, [*joins("b"), *epoch(3), *target(3, {"a": (0,), "b": (1,)})]),
            (night - 400, reconciled("a", 3, (0,))),
            (night + 250, reconciled("b", 3, (1,))),
        ]
    )
    days = audit_group(life, SETTINGS).days
    assert [(day.not_stable_ms, day.unowned_partition_ms, day.worst_partition) for day in days] == [
        (900, 400, 1),
        (250, 250, 1),
    ]


def test_gold_of_groups_adds_up() -> None:
    """`extend` keeps every row, and the length counts them."""
    gold, life = GroupGold(), life_of([(0, classic(1, {"a": (0,)}))], [(20, 0, 5)])
    one = audit_group(life, SETTINGS)
    gold.extend(one)
    gold.extend(one)
    assert len(gold) == 2 * len(one) == 2 * (len(one.owners) + len(one.rebalances) + len(one.days))
