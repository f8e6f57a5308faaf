"""Find the intended folder where a wrong one was named: searches above, below and next to it.

A source is a folder with `<topic>-<partition>` folders; a warehouse has `<layer>/<table>` folders. The search is
bounded, since a wrong name may be the root of a file system.
"""

import difflib
import posixpath
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final

import pyarrow as pa
from pyarrow import fs

from coordinator_core.bytes.log.segment import parse_partition_folder, select_segments
from jobs.delta.filesystems import filesystem_of
from jobs.errors import ArgumentError, NoSuchSource
from jobs.settings import DUMP_SUFFIXES

DEPTH_MAX: Final = 3
"""Levels of folders searched below and above the named one."""
FOLDERS_MAX: Final = 300
"""Maximum number of folders listed."""
SHOWN_MAX: Final = 3
LAYERS: Final = ("bronze", "silver", "gold", "state")
DELTA_LOG: Final = "_delta_log"


def require_source_folder(uri: str, topics: Sequence[str]) -> None:
    """Raise NoSuchSource where a folder has no log partition of these topics, and name the one that does.

    Only folders are listed; their content is checked by the capture.
    """
    filesystem, root = filesystem_of(uri.rstrip("/") or "/")
    entries = _listed(filesystem, root)
    if entries is None or not _is_source(entries, topics):
        raise NoSuchSource(nothing_to_read(uri, topics))


def nothing_to_read(uri: str, topics: Sequence[str]) -> str:
    """A sentence: why a source has nothing of these topics, and which folder is right."""
    filesystem, root = filesystem_of(uri.rstrip("/") or "/")
    root = root.rstrip("/") or "/"
    info = filesystem.get_file_info(root)
    entries = _listed(filesystem, root) or []
    names = [entry.base_name for entry in entries]
    if info.type == fs.FileType.File:
        what = "is a file, and a source is a folder that holds <topic>-<partition>/*.log"
    elif info.type == fs.FileType.NotFound:
        return f"cannot read the folder {uri}: no such folder{_remedy(filesystem, uri, root, info, names, topics)}"
    elif warehouse_at(filesystem, root) or DELTA_LOG in names:
        what = "holds Delta tables"
    elif select_segments(names) and parse_partition_folder(posixpath.basename(root)):
        what = "is the folder of one partition: give the folder above it"
    elif not names:
        what = "is empty"
    else:
        what = f"has no folder <topic>-<partition> with .log files of {', '.join(topics)}"
    return f"nothing to read: {uri} {what}{_remedy(filesystem, uri, root, info, names, topics)}"


def _remedy(
    filesystem: fs.FileSystem, uri: str, root: str, info: fs.FileInfo, names: Sequence[str], topics: Sequence[str]
) -> str:
    found = list(_sources_near(filesystem, root, topics))
    if found:
        shown = " ".join(f"--segments {_as_named(uri, root, folder)}" for folder in found[:SHOWN_MAX])
        return f"; did you mean {shown}{' ...' if len(found) > SHOWN_MAX else ''}?"
    if DELTA_LOG in names and not warehouse_at(filesystem, root):
        return f". A Delta table of raw records is a dump: --dump {uri}"
    if any(name.endswith(DUMP_SUFFIXES) for name in (names if info.type != fs.FileType.File else [root])):
        return f". Files of dumped records are named with --dump {uri}"
    if warehouse_at(filesystem, root):
        return f". A warehouse is what jobs write: --warehouse {uri}; --segments names the logs"
    if info.type == fs.FileType.NotFound and (similar := _similar(filesystem, root)):
        return f"; did you mean {_as_named(uri, root, similar)}?"
    return ""


def require_dump(uri: str) -> None:
    """Raise NoSuchSource where a dump does not exist, or is a folder of segment files."""
    filesystem, root = filesystem_of(uri.rstrip("/") or "/")
    info = filesystem.get_file_info(root)
    if info.type == fs.FileType.NotFound:
        similar = _similar(filesystem, root)
        meant = f"; did you mean {_as_named(uri, root, similar)}?" if similar else ""
        raise NoSuchSource(f"no such dump: {uri}{meant}")
    if info.type == fs.FileType.Directory and _is_log_directory(_listed(filesystem, root) or []):
        raise NoSuchSource(f"--dump {uri} is a folder of segment files: name it with --segments {uri}")


def require_warehouse_folder(uri: str) -> None:
    """Raise ArgumentError where tables would be written into a broker's log directory, or into a table or layer of
    another warehouse.
    """
    with suppress(OSError, pa.ArrowException):
        filesystem, root = filesystem_of(uri.rstrip("/") or "/")
        entries = _listed(filesystem, root) or []
        if warehouse_at(filesystem, root):
            return
        if _is_log_directory(entries) or (
            parse_partition_folder(posixpath.basename(root)) and select_segments([entry.base_name for entry in entries])
        ):
            raise ArgumentError(
                f"--warehouse {uri} is a folder of Kafka's logs, and tables would be written into it: give tables a "
                f"folder of their own, and name the logs with --segments {uri}"
            )
        above = warehouse_above(filesystem, root)
        if above is not None:
            raise ArgumentError(
                f"--warehouse {uri} lies inside of the warehouse {_as_named(uri, root, above)}: name that one"
            )


def warehouse_near(uri: str) -> str | None:
    """The intended warehouse where a folder has no tables: above, below or next to it; None if there is none."""
    with suppress(OSError, pa.ArrowException):
        filesystem, root = filesystem_of(uri.rstrip("/") or "/")
        root = root.rstrip("/") or "/"
        found = warehouse_above(filesystem, root)
        if found is None:
            below = (folder for folder, _ in _below(filesystem, root) if warehouse_at(filesystem, folder))
            found = next(below, None)
        if found is None:
            parent = posixpath.dirname(root)
            neighbours = [
                entry.path for entry in _listed(filesystem, parent) or [] if entry.type == fs.FileType.Directory
            ]
            whole = [folder for folder in neighbours[:FOLDERS_MAX] if warehouse_at(filesystem, folder)]
            found = whole[0] if len(whole) == 1 else None
        return None if found is None else _as_named(uri, root, found)
    return None


def warehouse_at(filesystem: fs.FileSystem, root: str) -> bool:
    """Is the folder a warehouse with tables?"""
    marks = [f"{root.rstrip('/')}/bronze/record_batches/{DELTA_LOG}", f"{root.rstrip('/')}/state/runs/{DELTA_LOG}"]
    return any(info.type == fs.FileType.Directory for info in filesystem.get_file_info(marks))


def warehouse_above(filesystem: fs.FileSystem, root: str) -> str | None:
    """The warehouse if the folder is one of its layers or tables."""
    parent = posixpath.dirname(root)
    for layer, above in ((root, parent), (parent, posixpath.dirname(parent))):
        if posixpath.basename(layer) in LAYERS and warehouse_at(filesystem, above):
            return above
    return None


def _sources_near(filesystem: fs.FileSystem, root: str, topics: Sequence[str]) -> Iterator[str]:
    folder = root
    for _ in range(DEPTH_MAX):
        above = posixpath.dirname(folder)
        if above == folder or not above:
            break
        folder = above
        if _is_source(_listed(filesystem, folder) or [], topics):
            yield folder
            return
    for folder, entries in _below(filesystem, root):
        if _is_source(entries, topics):
            yield folder


def _below(filesystem: fs.FileSystem, root: str) -> Iterator[tuple[str, list[fs.FileInfo]]]:
    """Yield folders below one with their entries, nearest first; skips the content of internal topics and hidden
    folders."""
    level, listed = [root], 0
    for _ in range(DEPTH_MAX + 1):
        below: list[str] = []
        for folder in level:
            listed += 1
            if listed > FOLDERS_MAX:
                return
            entries = _listed(filesystem, folder) or []
            if folder != root:
                yield folder, entries
            below += [
                entry.path
                for entry in entries
                if entry.type == fs.FileType.Directory and not entry.base_name.startswith((".", "_"))
            ]
        level = sorted(below)


def _listed(filesystem: fs.FileSystem, folder: str) -> list[fs.FileInfo] | None:
    """The entries of a folder; None where it cannot be listed."""
    try:
        entries: list[fs.FileInfo] = filesystem.get_file_info(fs.FileSelector(folder or "/", recursive=False))
    except (OSError, pa.ArrowException):
        return None
    return entries


def _is_source(entries: Sequence[fs.FileInfo], topics: Sequence[str]) -> bool:
    parsed = (parse_partition_folder(entry.base_name) for entry in entries if entry.type == fs.FileType.Directory)
    return any(part is not None and part[0] in topics for part in parsed)


def _is_log_directory(entries: Sequence[fs.FileInfo]) -> bool:
    names = {entry.base_name for entry in entries}
    if "meta.properties" in names or "log-start-offset-checkpoint" in names:
        return True
    return any(name.startswith("__") and parse_partition_folder(name) is not None for name in names)


def _similar(filesystem: fs.FileSystem, root: str) -> str | None:
    """A sibling of a missing folder with a similar name."""
    parent = posixpath.dirname(root)
    names = [entry.base_name for entry in _listed(filesystem, parent) or [] if entry.type == fs.FileType.Directory]
    close = difflib.get_close_matches(posixpath.basename(root), names, n=1)
    return posixpath.join(parent, close[0]) if close else None


def _as_named(uri: str, root: str, folder: str) -> str:
    """A folder in the form that the user used: with the scheme, or as a relative path."""
    named = uri.rstrip("/") or "/"
    if folder.startswith(f"{root}/"):
        return f"{named.rstrip('/')}{folder[len(root) :]}"
    if "://" in named:
        prefix = named[: len(named) - len(root)] if named.endswith(root) else ""
        return f"{prefix}{folder}" if prefix else folder
    return folder if posixpath.isabs(named) else posixpath.relpath(folder)
