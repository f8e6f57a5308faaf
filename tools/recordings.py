"""Recordings of brokers as archives: hundreds of small files are one file of the repository.

python -m tools.recordings pack FOLDER ARCHIVE      the same files give the same bytes, on any day and machine
python -m tools.recordings unpack ARCHIVE FOLDER    FOLDER/NAME of NAME.tar.xz
"""

import argparse
import io
import lzma
import tarfile
import tempfile
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from typing import Final

SUFFIX: Final = ".tar.xz"
_FILE_MODE: Final = 0o644
_FOLDER_MODE: Final = 0o755
_HASH_DIGITS: Final = 16


def packed(folder: Path) -> bytes:
    """The archive of a folder: its files by name, without owners and times."""
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for path in (folder, *sorted(folder.rglob("*"))):
            info = tarfile.TarInfo((folder.name / path.relative_to(folder)).as_posix())
            if path.is_dir():
                info.type, info.mode = tarfile.DIRTYPE, _FOLDER_MODE
                archive.addfile(info)
            else:
                data = path.read_bytes()
                info.size, info.mode = len(data), _FILE_MODE
                archive.addfile(info, io.BytesIO(data))
    return lzma.compress(tar.getvalue(), preset=9 | lzma.PRESET_EXTREME)


def name_of(archive: Path) -> str:
    """The recording in an archive. Raises ValueError if the file is not named like an archive."""
    if not archive.name.endswith(SUFFIX):
        raise ValueError(f"{archive}: the archive of a recording is named NAME{SUFFIX}")
    return archive.name.removesuffix(SUFFIX)


def unpack(archive: Path, folder: Path) -> Path:
    """Unpack a recording below a folder. Raises ValueError if the archive contains anything else."""
    name = name_of(archive)
    with tarfile.open(archive) as members:
        for member in members:
            if Path(member.name).parts[0] != name:
                raise ValueError(f"{archive}: {member.name} is not below {name}/; pack the folder {name} again")
        extract(members, folder)
    return folder / name


def extract(archive: tarfile.TarFile, folder: Path, *, is_trusted: bool = False) -> None:
    """All of an archive. Python before 3.11.4, as of Debian 12, has no filters of what may be written where."""
    name = "fully_trusted_filter" if is_trusted else "data_filter"
    archive.extraction_filter = getattr(tarfile, name, lambda member, path: member)
    archive.extractall(folder)


def unpacked(archives: Iterable[Path], cache: Path, links: Iterable[Path] = ()) -> Path:
    """A folder with these recordings, unpacked once for all processes, and with links to unpacked ones.

    Its name depends on the bytes of the archives, so content of older archives is never used. It appears under that
    name when it is complete.
    """
    archives, links = sorted(archives), sorted(links)
    digest = sha256()
    for archive in archives:
        digest.update(archive.name.encode())
        digest.update(sha256(archive.read_bytes()).digest())
    for link in links:
        digest.update(str(link).encode())
    made = cache / digest.hexdigest()[:_HASH_DIGITS]
    if made.is_dir():
        return made
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache, prefix="unpacking-") as scratch:
        complete = Path(scratch) / "complete"
        complete.mkdir()
        for archive in archives:
            unpack(archive, complete)
        for link in links:
            (complete / link.name).symlink_to(link, target_is_directory=True)
        try:
            complete.rename(made)
        except OSError:
            if not made.is_dir():  # else another process was faster, with the same bytes
                raise
    return made


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m tools.recordings", description=__doc__, allow_abbrev=False)
    parser.add_argument("action", choices=("pack", "unpack"))
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    words = parser.parse_args()
    try:
        if words.action == "pack":
            if words.source.name != name_of(words.target):
                parser.error(f"the archive of {words.source.name} is named {words.source.name}{SUFFIX}")
            words.target.write_bytes(packed(words.source))
        else:
            unpack(words.source, words.target)
    except (OSError, ValueError, tarfile.TarError) as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
