"""One folder for all temporary files of a run: Spark's blocks, native libraries of the JVM, sockets, Python's own.

A killed process deletes nothing, and neither does its JVM. So everything is in a folder that its process keeps locked,
and each run deletes the folders of processes that no longer exist.
"""

import fcntl
import os
import shlex
import shutil
import tempfile
from contextlib import suppress
from multiprocessing.util import Finalize
from pathlib import Path
from time import time
from typing import Final

PREFIX: Final = "groupledger-"
UNFINISHED: Final = ".new-groupledger-"
"""Prefix of a folder that its process has not locked yet."""
UNFINISHED_SECONDS_MAX: Final = 3600
AFTER_ALL: Final = -200
"""Priority for deleting the folder at exit: after multiprocessing's own folder in it (-100)."""
SUBMIT_ARGS: Final = "PYSPARK_SUBMIT_ARGS"
JVM_OPTIONS: Final = "spark.driver.defaultJavaOptions"
"""Spark puts them before `spark.driver.extraJavaOptions`, which remain the user's."""

_locks: Final[dict[str, int]] = {}
"""File descriptors of this process's folders: locked until the process ends, for whatever reason."""


def use_run_folder() -> Path:
    """Let this process, its JVM and its workers put temporary files into one folder. Returns the folder.

    Call this before Spark's JVM starts. Repeated calls in a process return the same folder.
    """
    if _locks:
        return Path(next(iter(_locks)))
    base = Path(tempfile.gettempdir())
    delete_abandoned(base)
    folder = _locked_folder(base)
    Finalize(None, shutil.rmtree, (folder,), {"ignore_errors": True}, exitpriority=AFTER_ALL)
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
    options = f"{JVM_OPTIONS}=-Djava.io.tmpdir={folder}"
    os.environ[SUBMIT_ARGS] = f"--conf {shlex.quote(options)} {os.environ.get(SUBMIT_ARGS, 'pyspark-shell')}"
    return folder


def _locked_folder(base: Path) -> Path:
    unfinished = Path(tempfile.mkdtemp(prefix=UNFINISHED, dir=base))
    lock = os.open(unfinished, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    folder = base / (PREFIX + unfinished.name.removeprefix(UNFINISHED))
    unfinished.rename(folder)
    _locks[str(folder)] = lock
    return folder


def delete_abandoned(base: Path) -> None:
    """Delete folders of runs whose process no longer exists. Folders of other users stay."""
    for folder in base.glob(f"{PREFIX}*"):
        with suppress(OSError):
            if folder.is_symlink() or folder.stat().st_uid != os.getuid():
                continue
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)
    for folder in base.glob(f"{UNFINISHED}*"):
        with suppress(OSError):
            if time() - folder.stat().st_mtime > UNFINISHED_SECONDS_MAX and folder.stat().st_uid == os.getuid():
                shutil.rmtree(folder, ignore_errors=True)
