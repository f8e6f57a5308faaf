"""The shape of the code: no circle, and no import of a higher floor."""

import pytest

from tools.figures import PACKAGES, Imports, arrows_of, circles_of, imports_of

ARROWS_MAX = 20


def test_rooms_of_the_core() -> None:
    arrows = arrows_of(imports_of("coordinator_core"))
    assert arrows.upward == frozenset()
    assert 0 < len(arrows.every) <= ARROWS_MAX


@pytest.mark.parametrize("package", [name for name in PACKAGES if name != "tests"])
def test_modules_import_one_another_in_one_direction(package: str) -> None:
    """Imports for types count too."""
    assert circles_of(imports_of(package)) == []


def test_circles_are_found() -> None:
    imports: Imports = {"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": {"e"}, "e": {"d"}, "f": {"a", "x"}, "g": {"g"}}
    assert circles_of(imports) == [["b", "c"], ["d", "e"], ["g"]]


def test_arrows_point_up_where_a_lower_room_imports_a_higher_one() -> None:
    imports: Imports = {
        "core.replay.state": {"core.bytes.log", "core.replay.keys", "core.history.rows"},
        "core.live.shard": {"core.history.rows"},
        "core.bytes.log": {"core.errors"},
    }
    arrows = arrows_of(imports)
    assert arrows.upward == {("replay", "history"), ("live", "history")}
    assert arrows.every == arrows.upward | {("replay", "bytes"), ("bytes", "errors")}
