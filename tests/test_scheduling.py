"""How the tests are distributed over processes."""

import pytest
from xdist.remote import Producer

from tests.conftest import pytest_xdist_make_scheduler
from tests.scheduling import SESSIONS, SPARK, names_with_spark, needs_spark


def test_every_test_that_takes_a_session_is_known(request: pytest.FixtureRequest) -> None:
    """Through whatever fixture, else a second process would start a JVM for it; no other test waits for that process.
    Of all tests that are collected in this run."""
    for item in request.session.items:
        assert needs_spark(item.nodeid) is not SESSIONS.isdisjoint(getattr(item, "fixturenames", ())), item.nodeid


def test_a_session_is_asked_for_through_fixtures_of_the_file() -> None:
    """Those of fixtures that ask for such a fixture, too; others of the same file need none."""
    assert "test_answers_of_a_session_are_as_shown" in names_with_spark("tests/test_documents.py")
    known = names_with_spark("tests/cases/test_grown_topics.py")
    assert known == {"test_jobs_and_sql_find_the_same"}
    assert names_with_spark("tests/test_words.py") == set()


def test_tests_that_need_spark_go_to_one_process(pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left of each file is distributed for itself, and is not torn apart."""
    monkeypatch.setattr(pytestconfig.option, "dist", "loadfile", raising=False)
    monkeypatch.setattr(pytestconfig.option, "tx", ["3*popen"], raising=False)
    scheduler = pytest_xdist_make_scheduler(pytestconfig, Producer("tests", enabled=False))
    assert scheduler is not None
    for nodeid, scope in (
        ("tests/groupledger/test_replay.py::test_pandas_gives_the_same[x::y]", SPARK),
        ("tests/jobs/operations/test_nightly.py::test_b", "tests/jobs/operations/test_nightly.py"),
        ("tests/test_words.py::test_c[@]", "tests/test_words.py"),
    ):
        assert scheduler._split_scope(nodeid) == scope
    monkeypatch.setattr(pytestconfig.option, "dist", "load", raising=False)
    assert pytest_xdist_make_scheduler(pytestconfig, Producer("tests", enabled=False)) is None
