"""What several modules need is in one place: group types, log partitions, errors."""

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from coordinator_core import errors as core_errors
from jobs import errors as job_errors
from jobs.settings import PROJECT_ROOT
from schemas.group_types import GroupType

PACKAGES = ("schemas", "coordinator_core", "simulator", "jobs", "groupledger")


def modules(*packages: str, having: Iterable[str]) -> Iterator[tuple[str, ast.Module]]:
    """The product's modules by path: those with one of these texts, since only they are worth parsing."""
    for package in packages:
        for path in sorted((PROJECT_ROOT / package).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            if any(it in text for it in having):
                yield path.relative_to(PROJECT_ROOT).as_posix(), ast.parse(text)


def test_group_types_are_no_text() -> None:
    """No module but one has a group type as text."""
    texts = set(GroupType) - {GroupType.SHARE}  # `where` has a key of that name
    found = {
        path
        for path, module in modules(*PACKAGES, having=texts)
        for node in ast.walk(module)
        if isinstance(node, ast.Constant) and node.value in texts
    }
    assert found == {"schemas/group_types.py"}


def test_a_shared_type_has_one_definition() -> None:
    """Every other module imports it."""
    shared = {"LogPartition", "OffsetRange", "GroupType", "GroupHistory"}
    found: list[str] = []
    for _, module in modules(*PACKAGES, having=shared):
        for node in module.body:
            defined = {node.name} if isinstance(node, ast.ClassDef) else set[str]()
            if isinstance(node, ast.Assign):
                defined = {target.id for target in node.targets if isinstance(target, ast.Name)}
            found += defined & shared
    assert sorted(found) == sorted(shared)


@pytest.mark.parametrize(("package", "page"), [("coordinator_core", core_errors), ("jobs", job_errors)])
def test_errors_of_a_package_are_on_one_page(package: str, page: object) -> None:
    """Errors that a caller may meet are in errors.py, of the package or of one of its folders."""
    bases = {name for name, value in vars(page).items() if isinstance(value, type) and issubclass(value, Exception)}
    found = [
        f"{path}: {node.name}"
        for path, module in modules(package, having=bases)
        if Path(path).name != "errors.py"
        for node in module.body
        if isinstance(node, ast.ClassDef) and {base.id for base in node.bases if isinstance(base, ast.Name)} & bases
    ]
    # its value is a status of streams groups, which an errors page at the bottom cannot know
    assert found == (["coordinator_core/live/streams/topology.py: TopicsMisconfigured"] if package != "jobs" else [])


def test_one_module_opens_parquet_files() -> None:
    """All others read through it; part files are written in one module, and `sql` writes results."""
    found = {
        path
        for path, module in modules(*PACKAGES, having=PARQUET_MODULES)
        for node in ast.walk(module)
        if (isinstance(node, ast.Import) and any(it.name in PARQUET_READERS for it in node.names))
        or (isinstance(node, ast.ImportFrom) and node.module in {*PARQUET_READERS, "pyarrow"} and imports_reader(node))
    }
    assert found == {"jobs/delta/part_files.py", "jobs/delta/scanner.py", "jobs/queries/sql/sql.py"}


PARQUET_MODULES = ("parquet", "dataset")
PARQUET_READERS = tuple(f"pyarrow.{name}" for name in PARQUET_MODULES)


def imports_reader(node: ast.ImportFrom) -> bool:
    """`from pyarrow import parquet`, or a name out of it."""
    return node.module != "pyarrow" or not {it.name for it in node.names}.isdisjoint(PARQUET_MODULES)


def test_files_are_of_a_size_to_be_read() -> None:
    """None is above 700 lines but the kernels."""
    paths = [*PROJECT_ROOT.glob("*.py"), *(path for it in PACKAGES for path in (PROJECT_ROOT / it).rglob("*.py"))]
    lines = {path.relative_to(PROJECT_ROOT).as_posix(): path.read_text("utf-8").count("\n") for path in paths}
    assert {path for path, count in lines.items() if count > 700} <= {
        "coordinator_core/replay/columnar/share_state_kernels.py",
    }


def test_no_class_is_called_step() -> None:
    """Five were, each something else: a class has the name of what it is."""
    assert [
        path
        for path, module in modules(*PACKAGES, "tools", having=["class Step"])
        for node in ast.walk(module)
        if isinstance(node, ast.ClassDef) and node.name == "Step"
    ] == []
