"""Real Java clients of every kind in a process of their own.

    with (
        LiveBroker(home, tmp_path / "broker", settings=CLIENT_SETTINGS) as broker,
        LiveClients(home, tmp_path / "clients", broker.address) as clients,
    ):
        groups = clients.play(seed=7)              # a group of each kind does all it can; then all are at rest
        clients.churn(seed=7, group_count=50)      # groups do whatever they like, until
        groups = clients.calm()

After `play` and `calm` members stay in their groups, and nobody writes to the coordinators' logs: what Admin says then
is the end of the logs. What groups do, and in which order, follows from the seed; times, member ids and who gets which
partition do not. `journal` has every act, and what every transaction came to.

Session fixtures (conftest.py): `played` has a broker and clients which have played, for tests which only look.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.live.kafka_home import KafkaHome
from tests.live.program import JavaProgram, Running, write_properties

START_TIMEOUT_S: Final = 60
PLAY_TIMEOUT_S: Final = 400
CALM_TIMEOUT_S: Final = 240
HEAP_MB: Final = 640
"""Fifty groups have a hundred and fifty clients."""


@dataclass(frozen=True, slots=True)
class PlayedGroup:
    """A group, and what happened to it."""

    group_id: str
    kind: str
    topics: Sequence[str]
    member_count: int
    done: Mapping[str, int]
    """How often, by act."""
    failed: Mapping[str, str]
    """The last error, by act."""


class LiveClients(Running):
    """A running process of clients; leave the `with` block, or call `stop`, to end it: members do not leave then."""

    def __init__(
        self,
        home: KafkaHome,
        folder: Path,
        bootstrap_servers: str,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """Start it in a new folder; `settings` are those of Java clients (TLS, SASL). Raises ProgramError."""
        folder.mkdir(parents=True)
        asked = {"bootstrap.servers": bootstrap_servers, **(settings or {})}
        properties = write_properties(folder / "client.properties", asked)
        self._journal = folder / "journal.jsonl"
        command = home.command("LiveClients", str(properties), str(folder), heap_mb=HEAP_MB)
        self._program = JavaProgram(command, folder, folder / "clients.log")
        self.kinds: Sequence[str] = tuple(self._program.answer(START_TIMEOUT_S))
        """What `play` can be asked for."""

    def play(
        self, seed: int, kinds: Sequence[str] | None = None, acts: Sequence[str] | None = None
    ) -> Mapping[str, PlayedGroup]:
        """A new group of each kind goes through everything its kind can do, at the same time as the others, and rests.

        `acts`, in order, instead of everything (java/*Life.java: `acts`; the last should be "settle"). Gives all groups
        by id. Raises ProgramError which names the acts where any failed.
        """
        asked: dict[str, Any] = {"do": "play", "seed": seed, "kinds": list(kinds if kinds is not None else self.kinds)}
        if acts is not None:
            asked["acts"] = list(acts)
        return _groups(self._program.ask(asked, PLAY_TIMEOUT_S))

    def churn(self, seed: int, group_count: int, pause_ms_max: int = 2_000) -> None:
        """So many new groups, of all kinds in turn, do one thing after another, with pauses, until `calm`.

        What fails (a broker is away, a member was fenced) is noted in the journal, and the group goes on.
        """
        self._program.ask({"do": "churn", "seed": seed, "groups": group_count, "pause_ms_max": pause_ms_max})

    def calm(self) -> Mapping[str, PlayedGroup]:
        """End the churn: groups finish what they do, and rest."""
        return _groups(self._program.ask({"do": "calm"}, CALM_TIMEOUT_S))

    def reported(self) -> Mapping[str, PlayedGroup]:
        """What happened so far."""
        return _groups(self._program.ask({"do": "report"}))

    def journal(self) -> Iterator[Mapping[str, Any]]:
        """What happened, line by line: `ts_ms`, `group`, `what`, `error` where there was one.

        Lines of `transaction` have an `outcome` (committed, aborted, timed out, open) and `offsets` by
        `<topic>-<partition>`; a `fenced` ends what the group has open.
        """
        with self._journal.open(encoding="utf-8") as lines:
            yield from map(json.loads, lines)

    def stop(self) -> None:
        """End the process."""
        self._program.stop()

    def kill(self) -> None:
        """End it at once: all members vanish."""
        self._program.kill()


def _groups(reported: Mapping[str, Mapping[str, Any]]) -> Mapping[str, PlayedGroup]:
    return {
        group: PlayedGroup(
            group, facts["kind"], tuple(facts["topics"]), facts.get("members", 0), facts["done"], facts["failed"]
        )
        for group, facts in reported.items()
    }
