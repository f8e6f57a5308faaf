"""Play and keep what came of it: `python -m tests.live.libraries FOLDER [--seed N] [--cycles N] [--group ID ...]`.

With --pack FILE its logs and its truth are packed as tests/recordings/clients has them.
With --defaults the groups have the time-outs that the library takes where nothing is set.
"""

import argparse
import tarfile
from pathlib import Path

from tests.live.broker import LiveBroker
from tests.live.kafka_home import kafka_home
from tests.live.libraries.installed import install
from tests.live.libraries.play import GROUPS, LIBRARY_SETTINGS, play, with_defaults


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(prog="python -m tests.live.libraries", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--cycles", type=int, default=1)
    parser.add_argument("--group", action="append", default=[])
    parser.add_argument("--defaults", action="store_true")
    parser.add_argument("--pack", type=Path)
    asked = parser.parse_args()
    groups = [group for group in GROUPS if not asked.group or group.group_id in asked.group]
    if asked.defaults:
        groups = [with_defaults(group) for group in groups if group.protocol in {"classic", "consumer"}]
    home = kafka_home()
    installed = install(home)
    for language, reason in installed.left_out.items():
        print(f"{language}: left out, {reason}")
    with LiveBroker(home, asked.folder / "broker", settings=LIBRARY_SETTINGS) as broker:
        play(broker, installed, asked.folder / "played", groups, seed=asked.seed, cycles=asked.cycles)
    if asked.pack is not None:
        pack(asked.folder / "played", asked.pack)


def pack(played: Path, to: Path) -> None:
    """The logs and the truth of a run in one archive, which says nothing of this machine."""

    def plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid = entry.gid = entry.mtime = 0
        entry.uname = entry.gname = ""
        return entry

    with tarfile.open(to, "w:xz", preset=9) as archive:
        for name in ("logs", "truth"):
            archive.add(played / name, name, filter=plain)


if __name__ == "__main__":
    main()
