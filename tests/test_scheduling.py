"""How the tests are distributed over processes."""

import ast
from collections.abc import Iterator

import pytest
from xdist.remote import Producer

from tests.conftest import PROJECT_ROOT, pytest_xdist_make_scheduler
from tests.scheduling import SPARK, needs_spark

FIXTURES = {"spark", "own_session"}


def arguments(path: str) -> Iterator[str]:
    """Names of arguments of all functions of a file."""
    for node in ast.walk(ast.parse((PROJECT_ROOT / path).read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            yield from (argument.arg for argument in node.args.args)


def test_every_file_whose_tests_take_a_session_is_known() -> None:
    """Else a second process would start a JVM for it."""
    paths = [str(path.relative_to(PROJECT_ROOT)) for path in sorted((PROJECT_ROOT / "tests").rglob("test_*.py"))]
    taking = [path for path in paths if FIXTURES & set(arguments(path))]
    assert len(taking) > 15
    assert [path for path in taking if not needs_spark(path)] == []
    assert not needs_spark("tests/test_words.py")


def test_every_test_that_takes_a_session_is_in_such_a_file(request: pytest.FixtureRequest) -> None:
    """Through whatever fixture: of all tests that are collected in this run."""
    taking = {item.path for item in request.session.items if "spark" in getattr(item, "fixturenames", ())}
    assert [path for path in taking if not needs_spark(str(path.relative_to(PROJECT_ROOT)))] == []


def test_files_that_need_spark_go_to_one_process(pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any other file is distributed for itself, and none is torn apart."""
    monkeypatch.setattr(pytestconfig.option, "dist", "loadfile", raising=False)
    monkeypatch.setattr(pytestconfig.option, "tx", ["3*popen"], raising=False)
    scheduler = pytest_xdist_make_scheduler(pytestconfig, Producer("tests", enabled=False))
    assert scheduler is not None
    for nodeid, scope in (
        ("tests/jobs/queries/test_sql.py::test_a[x::y]", SPARK),
        ("tests/jobs/queries/test_views.py::test_b", SPARK),
        ("tests/test_words.py::test_c[@]", "tests/test_words.py"),
    ):
        assert scheduler._split_scope(nodeid) == scope
    monkeypatch.setattr(pytestconfig.option, "dist", "load", raising=False)
    assert pytest_xdist_make_scheduler(pytestconfig, Producer("tests", enabled=False)) is None
