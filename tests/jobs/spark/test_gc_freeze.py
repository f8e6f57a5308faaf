"""Loading without the garbage collector."""

import gc

import pytest

from jobs.spark import gc_freeze as loading
from jobs.spark.gc_freeze import is_loaded_for_good, loaded_for_good


def test_what_is_loaded_is_never_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """No collection while it is loaded, none of it later; and the collector works again, whatever happened."""
    monkeypatch.setattr(loading, "_is_loaded", False)
    gc.unfreeze()
    assert not is_loaded_for_good()
    kept: list[list[int]] = []
    runs = [generation["collections"] for generation in gc.get_stats()]
    try:
        with pytest.raises(KeyError), loaded_for_good():
            kept += [[] for _ in range(100_000)]
            assert [generation["collections"] for generation in gc.get_stats()] == runs
            raise KeyError
        assert gc.isenabled()
        assert is_loaded_for_good()
        assert gc.get_freeze_count() >= len(kept)
    finally:
        gc.unfreeze()
