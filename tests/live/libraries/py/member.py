"""What the Python members share: settings from the command line, commands from standard input, callbacks to a file.

A command is a line: `stop` (leave in order) or `subscribe TOPIC,TOPIC`. Where the input ends the process ends at once,
without leaving, so that nothing outlives the test run.
"""

import json
import os
import queue
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any


class Member:
    """A member's settings, its commands, and the file of its callbacks."""

    def __init__(self) -> None:
        self.settings = json.loads(Path(sys.argv[1]).read_text())
        self.commands: queue.Queue[list[str]] = queue.Queue()
        self._lock = threading.Lock()
        self._out = Path(self.settings["callbacks"])
        threading.Thread(target=self._listen, daemon=True).start()

    def __getitem__(self, name: str) -> Any:
        return self.settings[name]

    def says(self, event: str, partitions: Iterable[tuple[str, int]] = ()) -> None:
        """Note a callback: `assigned` and `revoked` change what it owns, `owns` is all of it, `lost` as `revoked`."""
        line = {
            "at": time.time_ns() // 1_000_000,
            "group": self["group"],
            "member": self["name"],
            "event": event,
            "partitions": sorted([topic, partition] for topic, partition in partitions),
        }
        with self._lock, self._out.open("a") as out:
            out.write(json.dumps(line) + "\n")

    def command(self) -> list[str] | None:
        """The next command, if there is one."""
        try:
            return self.commands.get_nowait()
        except queue.Empty:
            return None

    def _listen(self) -> None:
        for line in sys.stdin:
            self.commands.put(line.split())
        os._exit(1)
