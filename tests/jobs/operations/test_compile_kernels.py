"""Set-up compiles kernels in two processes, and leaves nothing to compile."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from jobs.operations import compile_kernels
from tests.conftest import PROJECT_ROOT
from tests.lengths import takes_minutes

OTHER_PROCESS = """#!/bin/bash
for package in log share_state; do
    mkdir -p "$NUMBA_CACHE_DIR/$package"; echo "$* other" >"$NUMBA_CACHE_DIR/$package/kernel"
done
exit "${FAKE_CODE:-0}"
"""


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for what is compiled; this process would compile the package `log`, the other one that and another."""
    kept, other = tmp_path / "kept", tmp_path / "python"
    other.write_text(OTHER_PROCESS)
    other.chmod(0o755)

    def own() -> None:
        (kept / "log").mkdir()
        (kept / "log" / "kernel").write_text("own\n")

    kept.mkdir()
    monkeypatch.setattr(compile_kernels, "use_all_but_share_states", own)
    monkeypatch.setattr(compile_kernels, "use_share_states", lambda: None)
    monkeypatch.setattr(sys, "executable", str(other))
    return kept


def test_what_the_other_process_compiled_is_taken_over(kept: Path) -> None:
    """Packages that both compiled are this process's: files of two indexes never mix."""
    compile_kernels.compile_in_two_processes(kept)
    found = {path.parent.name: path.read_text() for path in kept.rglob("kernel")}
    assert found == {"log": "own\n", "share_state": "-m jobs.operations.compile_kernels share-states other\n"}
    assert not (kept / "part").exists()


def test_a_process_that_fails_fails_the_set_up(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its exit code comes back, and set-up says what it wrote."""
    monkeypatch.setenv("FAKE_CODE", "3")
    with pytest.raises(SystemExit, match="3"):
        compile_kernels.compile_in_two_processes(kept)


COUNT_COMPILED = """
from numba.core import event
from jobs.operations.compile_kernels import compile_kernels

class Compiled(event.Listener):
    names = []
    def on_start(self, event):
        self.names.append(event.data["dispatcher"].py_func.__qualname__)
    def on_end(self, event):
        pass

event.register("numba:compile", Compiled())
compile_kernels()
print(Compiled.names)
"""


@takes_minutes
def test_nothing_is_left_to_compile(tmp_path: Path) -> None:
    """A process after the set-up loads all kernels."""
    environment = {**os.environ, "PYTHONPATH": str(PROJECT_ROOT), "NUMBA_CACHE_DIR": str(tmp_path)}
    for command in (["-m", "jobs.operations.compile_kernels"], ["-c", COUNT_COMPILED]):
        done = subprocess.run(
            [sys.executable, *command], cwd=PROJECT_ROOT, env=environment, capture_output=True, text=True, check=True
        )
    assert done.stdout == "[]\n"
