"""`python -m tests.mutants.hunt_tests "FILE..." FOLDER`: tests as the hunters of a fault in the folder; see `harness`.

Files are named from `tests/coordinator_core` on. pytest comes first: it imports hypothesis itself.
"""

import sys
from typing import Final

import pytest

from tests.mutants.harness import FOUND_CODE, PACKAGE, ROOT, SURVIVED_CODE, require_copy

OPTIONS: Final = ("-x", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", "-c", str(ROOT / "pyproject.toml"))


class Failures:
    """What failed, by name."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.names.append(report.nodeid)


def main(files: str, folder: str) -> int:
    """The exit code. The test that failed is the last line on standard output."""
    require_copy(folder)
    failures = Failures()
    code = pytest.main([*OPTIONS, *(str(ROOT / "tests" / PACKAGE / file) for file in files.split())], [failures])
    if failures.names:
        print(failures.names[0])
        return FOUND_CODE
    if code != pytest.ExitCode.OK:
        raise SystemExit(f"pytest ended with {code!r}")
    print("nothing")
    return SURVIVED_CODE


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
