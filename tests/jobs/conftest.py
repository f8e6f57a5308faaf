"""What several tests of the jobs share."""

from collections.abc import Iterator

import pytest

from tests.jobs.java_says import JavaSays


@pytest.fixture(scope="session")
def java() -> Iterator[JavaSays]:
    """A JVM that says what the JDK makes of some input."""
    with JavaSays() as process:
        yield process
