"""The entry for spark-submit and for `python -m jobs`."""

import sys


def _show_error(kind: type[BaseException], error: BaseException, trace: "TracebackType | None") -> None:
    """Ctrl-C during the imports of the command line, which take a second, prints one line, too."""
    if kind is not KeyboardInterrupt:
        sys.__excepthook__(kind, error, trace)
    elif not os.environ.get("GROUPLEDGER_PARSE_ONLY"):  # bootstrap.py, which waits for this process, prints it
        sys.stderr.write("interrupted\n")


if __name__ == "__main__":
    sys.excepthook = _show_error

import os
from pathlib import Path
from types import TracebackType

if not __package__:
    # If run by path, Python puts this folder first: its modules (sql, settings ...) must not be top-level modules.
    _root = Path(__file__).resolve().parent.parent
    sys.path[0] = str(_root.parent if (_root / "__init__.py").is_file() else _root)

from jobs.cli.app import main

if __name__ == "__main__":
    sys.exit(main())
