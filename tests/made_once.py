"""Folders that the processes of one run of the tests share."""

import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path


class MadeOnce:
    """Makes a folder where no process of this run has made it yet: to be read, and never changed."""

    def __init__(self, base_folder: Path) -> None:
        """`base_folder`: pytest's for this process; those of the other processes lie in the same folder."""
        self._folder = base_folder.parent if "PYTEST_XDIST_WORKER" in os.environ else base_folder

    def __call__(self, name: str, make: Callable[[Path], object]) -> Path:
        """The folder of this name. Others who ask for it meanwhile wait; where `make` fails, the next one tries."""
        root, is_made = self._folder / name, self._folder / f"{name}.made"
        with (self._folder / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not is_made.exists():
                shutil.rmtree(root, ignore_errors=True)
                make(root)
                is_made.touch()
        return root
