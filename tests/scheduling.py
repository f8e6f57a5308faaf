"""Which process of a run takes which files: those that need Spark share one, and with it its JVM."""

import re
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

ROOT: Final = Path(__file__).resolve().parent.parent
SPARK: Final = "files that need Spark"
ASKS_FOR_SPARK: Final = re.compile(r"\b(?:spark|own_session): SparkSession\b")
"""An argument of a test, or of a fixture of its file."""


@cache
def needs_spark(path: str) -> bool:
    """Does a test file ask for a session? Its path is one below the project's folder."""
    return ASKS_FOR_SPARK.search((ROOT / path).read_text(encoding="utf-8")) is not None


def scope_of(nodeid: str) -> str:
    """The file of a test; of all that need Spark the same scope."""
    path = nodeid.split("::", 1)[0]
    return SPARK if needs_spark(path) else path


def one_jvm(config: pytest.Config, log: Producer) -> Any:
    """A scheduler that gives a file to one process, as `--dist loadfile` does, and all that need Spark to the same one.

    A JVM takes five seconds to start and half a minute to become fast: three of them cost more than they save.
    """
    scheduler = LoadFileScheduling(config, log)
    scheduler._split_scope = scope_of
    return scheduler
