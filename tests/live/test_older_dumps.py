"""What kafka-dump-log of older releases prints, and the tests of the reader go by, is what the tools print."""

import subprocess
from pathlib import Path

import pytest

from tests.conftest import IS_TEST_LIVE, takes_minutes
from tests.live.release import ReleaseHome, release_home
from tests.maven import Unavailable
from tests.older_dumps import STATE, printed_files, write_log

TOOL = "kafka.tools.DumpLogSegments"
TIMEOUT_S = 60
OUTPUTS = [
    pytest.param(path, marks=takes_minutes if index else (), id=path.stem) for index, path in enumerate(printed_files())
]
"""A release each, whose jars come from Maven."""


def printed(home: ReleaseHome, name: str, root: Path) -> str:
    """What the tool of a release prints of one of the logs; that of 0.11 fails at a tombstone of a transactional id."""
    path = write_log(root, name)
    decoder = "--transaction-log-decoder" if name == STATE else "--offsets-decoder"
    command = home.command(
        TOOL, "--files", str(path.relative_to(root)), "--print-data-log", decoder, "--deep-iteration"
    )
    at = command.index("-cp")
    command[at:at] = ["-Dfile.encoding=UTF-8"]
    done = subprocess.run(command, cwd=root, capture_output=True, check=False, timeout=TIMEOUT_S)
    return done.stdout.decode()


@pytest.mark.parametrize("path", OUTPUTS)
def test_the_tools_print_what_the_reader_is_tested_with(path: Path, tmp_path: Path) -> None:
    """Each kept output is the release's own, to the byte."""
    version, _, name = path.stem.partition("-")
    try:
        home = release_home(version)
    except Unavailable as error:
        if IS_TEST_LIVE:
            raise
        pytest.skip(str(error))
    assert printed(home, name, tmp_path) == path.read_text(encoding="utf-8")
