"""How jobs are started, and the command `groupledger` of a wheel, which starts them by the same shell as a checkout."""

import os
import sys
from pathlib import Path
from shutil import which
from typing import Final

from jobs.settings import PROJECT_ROOT

INSTALLED: Final = "groupledger"
SHELL: Final = "spark-submit.sh"
ENTRY: Final = os.environ.get("GROUPLEDGER_ENTRY") or f"./{SHELL}"
"""What a user types before a job's name: all hints are written with it."""
COMPLETE: Final = "_GROUPLEDGER_COMPLETE"
"""Set where a user's shell asks what may follow."""


def command(words: str) -> str:
    """A command line for people, as `./spark-submit.sh nightly`."""
    return f"{ENTRY} {words}"


def main() -> None:
    """Hand the words over to the shell, which checks Java, fetches and compiles what is missing, and runs the job."""
    shell: Path = PROJECT_ROOT / SHELL
    bash = which("bash")
    if bash is None:
        sys.exit("error: no bash on the PATH: install it, or run the job in an image that has it")
    environment = {**os.environ, "GROUPLEDGER_PYTHON": sys.executable, "GROUPLEDGER_ENTRY": INSTALLED}
    os.execve(bash, [bash, str(shell), *sys.argv[1:]], environment)
