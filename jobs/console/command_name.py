"""How users start jobs, and the command `groupledger` of a wheel, which uses the same shell script as a checkout."""

import os
import re
import shlex
import sys
from pathlib import Path
from shutil import which
from typing import Final

from jobs.settings import PROJECT_ROOT

INSTALLED: Final = "groupledger"
SHELL: Final = "spark-submit.sh"
ENTRY: Final = os.environ.get("GROUPLEDGER_ENTRY") or f"./{SHELL}"
"""What a user types before a job's name; all hints use it."""
COMPLETE: Final = "_GROUPLEDGER_COMPLETE"
"""Set when a user's shell asks for completions."""


def shell_word(text: str) -> str:
    """A word as bash and zsh read it. What no terminal should print is in escapes, which they read in $'...'."""
    if text.isprintable():
        return shlex.quote(text)
    return f"$'{''.join(map(_escaped, text))}'"


def _escaped(character: str) -> str:
    code = ord(character)
    if character in ("\\", "'"):
        return f"\\{character}"
    if character.isprintable():
        return character
    return f"\\x{code:02x}" if code < 0x80 else f"\\U{code:08x}"


def command(words: str) -> str:
    """A command line for hints, such as `./spark-submit.sh nightly`."""
    return f"{ENTRY} {words}"


def missing_packages() -> list[str]:
    """Packages that jobs need, and the installed wheel came without."""
    from importlib import metadata  # noqa: PLC0415  (only this command needs it, and no job)

    missing = []
    for requirement in metadata.requires(INSTALLED) or ():
        if re.search(r"extra == ['\"]jobs['\"]", requirement):
            name = re.split(r"[^\w.-]", requirement)[0]
            try:
                metadata.version(name)
            except metadata.PackageNotFoundError:
                missing.append(name)
    return missing


def main() -> None:
    """Run the shell script, which checks Java, fetches and compiles what is missing, and runs the job."""
    if missing := missing_packages():
        sys.exit(f"error: jobs need {', '.join(missing)}: pip install '{INSTALLED}[jobs]'")
    shell: Path = PROJECT_ROOT / SHELL
    bash = which("bash")
    if bash is None:
        sys.exit("error: no bash on the PATH: install it, or run the job in an image that has it")
    environment = {**os.environ, "GROUPLEDGER_PYTHON": sys.executable, "GROUPLEDGER_ENTRY": INSTALLED}
    os.execve(bash, [bash, str(shell), *sys.argv[1:]], environment)
