"""Where tests are: in the folder that mirrors the one they test."""

from typing import Final

from tests.conftest import PROJECT_ROOT

TESTED: Final = ("schemas", "coordinator_core", "jobs", "groupledger", "tools")
OF_SEVERAL_FOLDERS: Final = {"coordinator_core/stateful"}
"""Random lives of live groups of every type and of share partitions."""

OF_DECLARATIONS: Final = {"schemas/consumer_offsets", "schemas/tables"}
"""Compared with Kafka's own, and with the tables that are written, all together."""


def test_tests_mirror_the_folders() -> None:
    """A folder with tests below `tests/jobs` and its like is there in the product too."""
    tests = PROJECT_ROOT / "tests"
    folders = {path.parent.relative_to(tests) for name in TESTED for path in (tests / name).rglob("test_*.py")}
    assert {name for name in TESTED if not any(folder.parts[0] == name for folder in folders)} == set()
    assert {str(folder) for folder in folders if not (PROJECT_ROOT / folder).is_dir()} == OF_SEVERAL_FOLDERS


def test_folders_of_the_product_have_tests() -> None:
    """Each folder with modules is mirrored by one with tests."""
    tests = PROJECT_ROOT / "tests"
    folders = {
        path.parent.relative_to(PROJECT_ROOT)
        for name in TESTED
        for path in (PROJECT_ROOT / name).rglob("*.py")
        if path.name != "__init__.py"
    }
    assert {str(folder) for folder in folders if not [*(tests / folder).rglob("test_*.py")]} == OF_DECLARATIONS
