"""Functions made as source: they run, each knows its own objects, and a traceback shows their lines."""

import traceback

import pytest

from coordinator_core.bytes.codegen import Source


def test_a_function_of_source_runs_with_the_objects_it_names() -> None:
    """Two objects of one kind have two names, and lines stand as deep as they were added."""
    source = Source("total(items)")
    first, second = source.name("number", 1), source.name("number", 10)
    source.add(f"count = {first}", "for item in items:")
    source.add(f"count += item * {second}", depth=1)
    source.add("return count")
    assert source.compiled("total")([2, 3]) == 51
    assert first != second


def test_a_traceback_shows_the_line() -> None:
    """Whoever looks for a fault sees what was run."""
    source = Source("read(data)")
    source.add("return data[7]")
    with pytest.raises(IndexError) as caught:
        source.compiled("Message version 3")(b"")
    text = "".join(traceback.format_exception(caught.value))
    assert 'File "<Message version 3>", line 2, in read' in text
    assert "return data[7]" in text
