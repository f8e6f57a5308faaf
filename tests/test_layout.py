"""Where things are: tests in the folder that mirrors the one they test, names where docstrings say."""

import re
from typing import Final

from tests.conftest import PROJECT_ROOT

TESTED: Final = ("schemas", "coordinator_core", "simulator", "jobs", "groupledger", "tools")
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


REFERENCE: Final = re.compile(r"`((?:jobs|coordinator_core|simulator|schemas|inference|history)\.[a-z_]+(?:\.\w+)*)`")


def test_docstrings_name_what_is_there() -> None:
    """A dotted name in a docstring leads to a module of the product, or to a name in one."""
    sources = {
        path.relative_to(PROJECT_ROOT).with_suffix("").as_posix().removesuffix("/__init__"): path.read_text("utf-8")
        for package in ("schemas", "coordinator_core", "simulator", "jobs", "groupledger")
        for path in (PROJECT_ROOT / package).rglob("*.py")
    }

    def is_there(name: str) -> bool:
        parts = name.split(".")
        for count in range(len(parts), 0, -1):
            tail = "/".join(parts[:count])
            found = [text for module, text in sources.items() if f"/{module}".endswith(f"/{tail}")]
            if found:
                return all(any(re.search(rf"\b{part}\b", text) for text in found) for part in parts[count:])
        return False

    assert [
        f"{module}: {name}"
        for module, text in sources.items()
        for name in REFERENCE.findall(text)
        if not is_there(name)
    ] == []
