"""Recordings as archives: what is packed comes back, each time the same, and whole for all who ask at once."""

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.conftest import PROJECT_ROOT
from tests.recorded import ARCHIVES, RECORDINGS, SAMPLES
from tools.recordings import SUFFIX, name_of, packed, unpack, unpacked


def folder_of(place: Path, name: str = "small") -> Path:
    """A folder of three files in two folders."""
    logs = place / name / "logs" / "__consumer_offsets-0"
    logs.mkdir(parents=True)
    (logs / "00000000000000000000.log").write_bytes(bytes(range(256)))
    (logs / "partition.metadata").write_bytes(b"version: 0\r\n")
    (place / name / "README.md").write_text("small\n")
    return place / name


def archive_of(place: Path) -> Path:
    """The archive of such a folder."""
    place.mkdir(exist_ok=True)
    archive = place / f"small{SUFFIX}"
    archive.write_bytes(packed(folder_of(place / "source")))
    return archive


def files_of(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, by its path in it."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_what_is_packed_comes_back(tmp_path: Path) -> None:
    """Names, folders and bytes."""
    archive = archive_of(tmp_path)
    assert files_of(unpack(archive, tmp_path / "out")) == files_of(tmp_path / "source" / "small")


def test_the_same_files_give_the_same_bytes(tmp_path: Path) -> None:
    """Times, modes and the order of a folder's files are not in the archive."""
    first, other = folder_of(tmp_path / "a"), folder_of(tmp_path / "b")
    (other / "README.md").unlink()
    (other / "README.md").write_text("small\n")
    (other / "README.md").chmod(0o700)
    os.utime(other, (1, 1))
    assert packed(first) == packed(other)
    (other / "README.md").write_text("other\n")
    assert packed(first) != packed(other)


def test_all_who_ask_at_once_get_one_folder(tmp_path: Path) -> None:
    """Several processes of a run unpack at the same time: one folder is left, whole, and nothing else."""
    archive, cache = archive_of(tmp_path), tmp_path / "cache"
    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(lambda _: unpacked([archive], cache), range(16)))
    assert [*found] == [*cache.iterdir()]
    assert files_of(found.pop() / "small") == files_of(tmp_path / "source" / "small")


def test_another_archive_is_another_folder(tmp_path: Path) -> None:
    """The files of an older version of an archive are not read in its place."""
    archive, cache = archive_of(tmp_path), tmp_path / "cache"
    before = unpacked([archive], cache)
    (tmp_path / "source" / "small" / "README.md").write_text("newer\n")
    archive.write_bytes(packed(tmp_path / "source" / "small"))
    after = unpacked([archive], cache)
    assert (before / "small" / "README.md").read_text() == "small\n"
    assert (after / "small" / "README.md").read_text() == "newer\n"


def test_a_broken_archive_leaves_nothing(tmp_path: Path) -> None:
    """What could not be unpacked whole is not there for the next one."""
    archive, cache = archive_of(tmp_path), tmp_path / "cache"
    archive.write_bytes(archive.read_bytes()[:100])
    with pytest.raises(EOFError):
        unpacked([archive], cache)
    assert [*cache.iterdir()] == []


def test_an_archive_holds_the_recording_it_is_named_after(tmp_path: Path) -> None:
    """Of another name, or with a file next to the recording, it is refused before a file is written."""
    archive = archive_of(tmp_path)
    renamed = shutil.move(archive, tmp_path / f"large{SUFFIX}")
    with pytest.raises(ValueError, match="small is not below large/; pack the folder large again"):
        unpack(Path(renamed), tmp_path / "out")
    assert not (tmp_path / "out").exists()
    with pytest.raises(ValueError, match=r"the archive of a recording is named NAME\.tar\.xz"):
        name_of(Path("recording.zip"))


def test_recordings_are_those_of_the_repository() -> None:
    """The samples and the archives, and no others; no recording lies open among the tests."""
    samples = {path.name for path in SAMPLES.iterdir()}
    archives = {name_of(path) for path in ARCHIVES.glob(f"*{SUFFIX}")}
    assert samples == {"full-a"}
    assert archives & samples == set()
    assert {path.name for path in RECORDINGS.iterdir()} == samples | archives
    assert all((RECORDINGS / name / "logs").is_dir() for name in samples | archives)


def test_the_command_packs_what_the_repository_has(tmp_path: Path) -> None:
    """An archive of the repository is unpacked and packed again: the same bytes. A wrong name says what to do."""
    archive = ARCHIVES / f"codec-lz4{SUFFIX}"

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "tools.recordings", *words]
        return subprocess.run(command, cwd=PROJECT_ROOT, capture_output=True, text=True, check=False)

    assert run("unpack", str(archive), str(tmp_path)).returncode == 0
    again = tmp_path / archive.name
    assert run("pack", str(tmp_path / "codec-lz4"), str(again)).returncode == 0
    assert again.read_bytes() == archive.read_bytes()
    refused = run("pack", str(tmp_path / "codec-lz4"), str(tmp_path / f"other{SUFFIX}"))
    assert (refused.returncode, refused.stderr.splitlines()[-1]) == (
        2,
        "python -m tools.recordings: error: the archive of codec-lz4 is named codec-lz4.tar.xz",
    )
