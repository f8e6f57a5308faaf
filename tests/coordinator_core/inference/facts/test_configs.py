"""Configs in force at a time: a group's own first, then the brokers', then what the caller assumes."""

import numpy as np
import pytest

from coordinator_core.inference.facts.configs import ISOLATION_LEVEL, SESSION_TIMEOUTS, ConfigRow, Configs

SESSION = "consumer.session.timeout.ms"
OTHER_MS = 40_000


def set_to(
    value: str, since: int, until: int | None = None, *, name: str = SESSION, resource: tuple[str, str] = ("GROUP", "g")
) -> ConfigRow:
    """An interval of a config."""
    return ConfigRow(*resource, name, value, since, since, until)


OF_GROUP = set_to("50000", 0)
OF_BROKERS = set_to("60000", 0, name=f"group.{SESSION}", resource=("BROKER", ""))
OF_ONE_BROKER = set_to("45000", 0, name=f"group.{SESSION}", resource=("BROKER", "1"))


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([OF_GROUP], 50_000),
        ([OF_BROKERS], 60_000),
        ([OF_BROKERS, OF_GROUP], 50_000),
        ([OF_BROKERS, OF_ONE_BROKER], None),
        ([OF_GROUP._replace(resource_name="another")], None),
        ([OF_GROUP._replace(name="share.session.timeout.ms")], None),
        ([OF_GROUP._replace(value="soon")], None),
        ([], None),
    ],
)
def test_whose_session_time_out_holds(rows: list[ConfigRow], expected: int | None) -> None:
    """The group's own overrides the brokers'; where single brokers differ, or no value is recorded, it is not known."""
    assert Configs(rows).session_timeout_ms("CONSUMER", "g", 1_000_000) == expected


@pytest.mark.parametrize(
    ("ended_at_ms", "expected"),
    [
        (100_000, 45_000),
        (100_000 + 30_000, 45_000),
        (100_000 + 60_000, 45_000),
        (100_000 + 61_000, 60_000),
        (400_000 + 40_000, 60_000),
        (400_000 + 46_000, 45_000),
        (600_000 + 10_000, None),
    ],
)
def test_a_session_ends_by_what_was_in_force_when_it_was_set(ended_at_ms: int, expected: int | None) -> None:
    """After a change, members with a heartbeat before it still expire by the old value."""
    rows = [
        set_to("45000", 0, 100_000),
        set_to("60000", 100_000, 400_000),
        set_to("45000", 400_000, 600_000),
    ]
    assert Configs(rows).session_timeout_ms("CONSUMER", "g", ended_at_ms) == expected


@pytest.mark.parametrize("group_type", SESSION_TIMEOUTS)
def test_each_type_of_group_has_its_own(group_type: str) -> None:
    """consumer., share. and streams.session.timeout.ms are three configs."""
    rows = [set_to(str(number), 0, name=name) for number, name in enumerate(SESSION_TIMEOUTS.values(), 45_000)]
    expected = list(SESSION_TIMEOUTS).index(group_type) + 45_000
    assert Configs(rows).session_timeout_ms(group_type, "g", 1_000_000) == expected


def test_a_value_is_known_once_it_has_settled() -> None:
    """Brokers may lack a change in the second after it, and by their clocks have it in the second before: a value is
    taken then, but not known."""
    configs = Configs([set_to("60000", 100_000, 200_000)])
    at_ms = np.array([99_999, 100_000, 101_000, 198_999, 199_000, 200_000], np.int64)
    found = configs.numbers(SESSION, ("g",), np.zeros(6, np.int64), at_ms, OTHER_MS)
    assert found.values.tolist() == [OTHER_MS, 60_000, 60_000, 60_000, 60_000, OTHER_MS]
    assert found.is_known.tolist() == [False, False, True, True, False, False]


def test_what_was_reported_is_between_what_was_logged() -> None:
    """Intervals of the log are in its order, those of Admin snapshots (no offset) at their time."""
    rows = [
        ConfigRow("GROUP", "g", "n", "3", 20, 40_000, None),
        ConfigRow("GROUP", "g", "n", "2", None, 20_000, 40_000),
        ConfigRow("GROUP", "g", "n", "1", 10, 10_000, 20_000),
    ]
    at_ms = np.array([5_000, 15_000, 25_000, 45_000], np.int64)
    found = Configs(rows).numbers("n", ("g",), np.zeros(4, np.int64), at_ms, -1)
    assert found.values.tolist() == [-1, 1, 2, 3]


LETTERS = "errors.deadletterqueue."
COPIED_TO = set_to("orders-dlq", 0, name=f"{LETTERS}topic.name")
ENABLED = set_to("true", 0, name=f"{LETTERS}group.enable", resource=("TOPIC", "orders-dlq"))


def prefix(value: str, since: int, until: int | None = None, *, broker: str = "") -> ConfigRow:
    """What names of dead letter topics have to begin with."""
    return set_to(value, since, until, name=f"{LETTERS}topic.name.prefix", resource=("BROKER", broker))


@pytest.mark.parametrize(
    ("rows", "refused"),
    [
        ([ENABLED], [False, False]),
        ([], [True, True]),
        ([ENABLED, prefix("dlq.", 0)], [True, True]),
        ([ENABLED, prefix("", 0)], [False, False]),
        ([ENABLED, prefix("orders", 0)], [False, False]),
        ([ENABLED, prefix("", 0, 50_000), prefix("dlq.", 50_000)], [False, True]),
        ([ENABLED, prefix("", 0, 59_500), prefix("dlq.", 59_500)], [False, False]),
        ([ENABLED, prefix("dlq.", 0, broker="1"), prefix("dlq.", 0, broker="2")], [True, True]),
        ([ENABLED, prefix("dlq.", 0, broker="1"), prefix("", 0, broker="2")], [False, False]),
    ],
)
def test_which_dead_letter_topic_is_refused(rows: list[ConfigRow], refused: list[bool]) -> None:
    """One that is not enabled, and one whose name no broker takes: where brokers differ it may be either."""
    configs = Configs([COPIED_TO, *rows])
    found = configs.is_refused(["g"], np.array([0, 0]), np.array([40_000, 60_000]))
    assert found.tolist() == refused


def test_another_prefix_is_asked_of_brokers_again() -> None:
    """What is compared before an audit leaves a share group as it was."""
    known = [Configs([COPIED_TO, ENABLED, prefix(text, 0)]).of_share_groups(["g"], [], 60_000) for text in ("", "dlq.")]
    assert known[0] != known[1]


def test_what_a_group_had_without_a_time() -> None:
    """A row without a time has each value that the group ever had, and is judged again where another one is known."""
    level = set_to("read_committed", 50_000, name=ISOLATION_LEVEL, resource=("GROUP", "g"))
    configs = Configs([level])
    found = configs.equals(
        ISOLATION_LEVEL, "read_committed", ["g"], np.zeros(3, np.int64), np.array([-1, 40_000, 60_000])
    )
    assert found.tolist() == [True, False, True]
    assert configs.of_share_groups(["g"], [], 40_000) != Configs().of_share_groups(["g"], [], 40_000)


def test_where_a_group_without_a_config_has_none() -> None:
    """The metadata log has each config that is set; an Admin snapshot tells its own time, and none before."""
    level = set_to("read_uncommitted", 50_000, name=ISOLATION_LEVEL, resource=("GROUP", "g"))
    of_any = set_to("7", 0, name="metadata.version", resource=("FEATURE", ""))
    found = [
        Configs(rows).is_shown(ISOLATION_LEVEL, ["g"], np.zeros(3, np.int64), np.array([-1, 40_000, 60_000])).tolist()
        for rows in ([], [of_any], [level._replace(from_log_offset=None)])
    ]
    assert found == [[False] * 3, [True] * 3, [False, False, True]]
