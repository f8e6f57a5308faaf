"""Pack what machines of a cluster need besides Spark: `python -m jobs.spark.cluster_archives ENVIRONMENT.tar.gz
CODE.tar.gz`.

Spark unpacks both archives in the folder of each executor: the packages of the environment, and the project's code with
compiled loops. numba finds the compiled loops next to the code at any place (NUMBA_CACHE_LOCATOR_CLASSES =
InTreeCacheLocator), and compiles again on machines with another CPU type.
"""

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from fnmatch import fnmatch
from pathlib import Path
from typing import Final

from numba.core.caching import UserProvidedCacheLocator

from jobs import PACKAGE
from jobs.settings import PROJECT_ROOT

CODE: Final = ("schemas", "coordinator_core", "simulator", "jobs", "conf")
COMPRESSION_LEVEL: Final = 1
"""The packages are large and sent once: speed matters more than size."""
LEFT_OUT: Final = ("*/site-packages/pyspark", "*/site-packages/pyspark-*", "*/__pycache__")
"""Workers use Spark's own Python modules; bytecode is compiled again quickly."""


def pack_environment(path: Path) -> None:
    """Pack the current virtual environment, without pyspark.

    An environment works at any place of a machine that has the same Python at the same place: it names that one, and
    workers run none of its scripts.
    """
    with tarfile.open(path, "w:gz", compresslevel=COMPRESSION_LEVEL) as archive:
        archive.add(Path(sys.prefix).resolve(), arcname=".", filter=_if_needed)


def _if_needed(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if any(fnmatch(member.name, pattern) for pattern in LEFT_OUT) else member


def pack_code(path: Path) -> None:
    """Pack the packages and the settings, with the compiled loops next to their code.

    The loops that set-up compiled are reused: numba's cache is named after the folder of the code, and verified by the
    code itself.
    """
    with tempfile.TemporaryDirectory() as folder:
        for name in CODE:
            shutil.copytree(PROJECT_ROOT / name, Path(folder, name), ignore=shutil.ignore_patterns("__pycache__"))
        compiled = os.environ.get("NUMBA_CACHE_DIR")
        for package in Path(folder).rglob("__init__.py") if compiled else ():
            own = PROJECT_ROOT / package.relative_to(folder)
            made = Path(str(compiled), UserProvidedCacheLocator.get_suitable_cache_subpath(str(own)))
            if made.is_dir():
                shutil.copytree(made, package.parent / "__pycache__")
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("NUMBA_", "PYTHON"))}
        environment["NUMBA_CACHE_LOCATOR_CLASSES"] = "InTreeCacheLocator"
        compiling = [sys.executable, "-m", f"{PACKAGE}.operations.compile_kernels"]
        subprocess.run(compiling, cwd=folder, env=environment, check=True)
        with tarfile.open(path, "w:gz", compresslevel=COMPRESSION_LEVEL) as archive:
            for name in CODE:
                archive.add(Path(folder, name), arcname=name)


def main(environment: Path, code: Path) -> None:
    """Create both archives, unless they exist; their names depend on their content."""
    for path, pack in ((environment, pack_environment), (code, pack_code)):
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            part = path.with_name("part-" + path.name)
            pack(part)
            part.replace(path)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
