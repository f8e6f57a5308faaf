"""Hatch build hook: in the wheel everything is inside one package, `groupledger`.

In a checkout the folders `jobs`, `simulator`, `schemas` and `coordinator_core` are top-level packages. In site-packages
these names may belong to a user's own repository, so a wheel has them as `groupledger.jobs` etc., and their imports of
each other are rewritten during the build.
"""

import re
import tempfile
from pathlib import Path
from typing import Any, Final

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGE: Final = "groupledger"
CODE: Final = ("schemas", "coordinator_core", "simulator", "jobs")
DATA: Final = (
    *("conf", "scenarios", "spark-submit.sh", "bootstrap.py", "set_up.py", "recordings/full-a/logs"),
    *("docs/words.md", "docs/internals/methods.md"),
)
"""Files that keep their path relative to the package: jobs.settings.PROJECT_ROOT."""

_IMPORT: Final = re.compile(rf"^(\s*(?:from|import)\s+)(?=(?:{'|'.join(CODE)})\b)", re.MULTILINE)
_BINDS_A_ROOT: Final = re.compile(rf"^\s*import\s+(?:{'|'.join(CODE)})\b(?!.*\bas\b).*$", re.MULTILINE)


def renamed(source: str, name: str) -> str:
    """A module's source with absolute imports of the project's packages moved into `groupledger`.

    Raises ValueError for `import jobs.x`, which binds the name `jobs`: use `from jobs import x`.
    """
    if found := _BINDS_A_ROOT.search(source):
        raise ValueError(
            f"{name}: {found[0].strip()!r} binds a name that the wheel does not have: write `from ... import`"
        )
    return _IMPORT.sub(rf"\1{PACKAGE}.", source)


def files_of_the_wheel(root: Path, made: Path) -> dict[str, str]:
    """Every file of the wheel: path here -> path in the wheel. Rewritten modules are written below `made`."""
    found = {}
    for folder in (PACKAGE, *CODE):
        for path in sorted((root / folder).rglob("*")):
            if not path.is_file() or "__pycache__" in path.parts:
                continue
            name = path.relative_to(root).as_posix()
            source = path
            if path.suffix == ".py":
                source = made / name
                source.parent.mkdir(parents=True, exist_ok=True)
                source.write_text(renamed(path.read_text(encoding="utf-8"), name), encoding="utf-8")
            found[str(source)] = name if folder == PACKAGE else f"{PACKAGE}/{name}"
    for name in DATA:
        found[str(root / name)] = f"{PACKAGE}/{name}"
    return found


class WheelHook(BuildHookInterface):  # type: ignore[type-arg]
    """Passes the files to hatch, which packs them."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by hatch before it builds."""
        self._made = tempfile.TemporaryDirectory(prefix=f"{PACKAGE}-wheel-")
        build_data["force_include"] |= files_of_the_wheel(Path(self.root), Path(self._made.name))

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Called by hatch after it built the wheel."""
        self._made.cleanup()
