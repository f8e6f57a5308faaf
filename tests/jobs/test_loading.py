"""Loading without the garbage collector."""

import gc

import pytest

from jobs.loading import loaded_for_good


def test_what_is_loaded_is_never_looked_at() -> None:
    """No collection while it is loaded, none of it later; and the collector works again, whatever happened."""
    gc.unfreeze()
    kept: list[list[int]] = []
    runs = [generation["collections"] for generation in gc.get_stats()]
    try:
        with pytest.raises(KeyError), loaded_for_good():
            kept += [[] for _ in range(100_000)]
            assert [generation["collections"] for generation in gc.get_stats()] == runs
            raise KeyError
        assert gc.isenabled()
        assert gc.get_freeze_count() >= len(kept)
    finally:
        gc.unfreeze()
