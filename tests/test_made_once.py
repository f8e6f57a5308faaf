"""Folders that processes of a run share: one makes each of them."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.made_once import MadeOnce


def test_one_of_several_makes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes of pytest-xdist have a folder each, side by side: all get the same one, made once."""
    monkeypatch.setenv("PYTEST_XDIST_WORKER", "gw0")
    made: list[Path] = []

    def make(root: Path) -> None:
        root.mkdir()
        made.append(root)

    def ask(number: int) -> Path:
        return MadeOnce(tmp_path / f"popen-gw{number}")("tables", make)

    with ThreadPoolExecutor(4) as pool:
        assert {*pool.map(ask, range(8))} == {tmp_path / "tables"}
    assert made == [tmp_path / "tables"]


def test_what_failed_is_made_by_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the first attempt is left."""
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    made_once = MadeOnce(tmp_path)

    def fail(root: Path) -> None:
        root.mkdir()
        (root / "half").touch()
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space"):
        made_once("tables", fail)
    root = made_once("tables", Path.mkdir)
    assert [*root.iterdir()] == []
