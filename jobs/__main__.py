"""The entry for spark-submit and for `python -m jobs`."""

import sys
from pathlib import Path

if not __package__:
    # Run by its path, Python puts this folder first: its modules (sql, settings ...) are no top-level modules.
    _root = Path(__file__).resolve().parent.parent
    sys.path[0] = str(_root.parent if (_root / "__init__.py").is_file() else _root)

from jobs.cli.app import main

if __name__ == "__main__":
    sys.exit(main())
