"""Where the tasks of engineers on call are asked: folders with the warehouse of a night."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from schemas.tables import TABLES
from tests.cases.harness import CASES, Ledger
from tests.cases.small_logs import NOON_MS, SmallLog
from tests.recorded import RECORDINGS
from tests.scenarios import lived, text_of

SECOND_MS: Final = 1_000
MINUTE_MS: Final = 60_000
HOUR_MS: Final = 60 * MINUTE_MS


def odd_day(root: Path) -> None:
    """Offsets are reset while nobody is there, a partition stays while others move on, a transaction hangs; the ends of
    the topic were sampled."""
    log = SmallLog()
    log.generation("orders", 1, {"orders-1": (0, 1)}, NOON_MS)
    log.generation("stuck", 1, {"stuck-1": (0,)}, NOON_MS)
    for partition in (0, 1):
        log.commit("orders", partition, 100, NOON_MS + SECOND_MS)
    log.generation("orders", 2, {}, NOON_MS + 2 * SECOND_MS)
    for partition in (0, 1):
        log.commit("orders", partition, 10, NOON_MS + MINUTE_MS)
    log.commit("bank", 0, 10, NOON_MS + 2 * MINUTE_MS, producer_id=7)
    for minute in range(5, 120, 5):
        log.commit("stuck", 0, min(minute, 20), NOON_MS + minute * MINUTE_MS)
    ledger = Ledger(root / "warehouse")
    samples = (
        {"topic": "in", "partition": 0, "sampled_at": (NOON_MS + minute * MINUTE_MS) * 1_000, "end_offset": 3 * minute}
        for minute in range(0, 121, 5)
    )
    ledger.tables.write(TABLES["bronze.end_offsets"], [*samples], app_id="watch/test")
    ledger.night(log.write(root / "logs"), partitions=("__consumer_offsets=1",))


def moved_start(root: Path) -> None:
    """A new leader loads the log behind the records of a group."""
    ledger = Ledger(root / "warehouse")
    for number in (1, 2):
        ledger.night(CASES / "log-start-moved" / f"night{number}", number=number)


def simulated(name: str) -> Callable[[Path], object]:
    """A scenario that comes with the project."""
    return lambda root: lived(text_of(name), root)


NIGHTS: Final[Mapping[str, Callable[[Path], object]]] = {
    "recorded-night": lambda root: Ledger(root / "warehouse", "kafka").night(RECORDINGS / "full-a" / "logs"),
    "scenario-shop": simulated("shop"),
    "scenario-two-applications": simulated("two-applications"),
    "scenario-slow-member": simulated("slow-member"),
    "scenario-dead-letters": simulated("dead-letters"),
    "classic-stories": lambda root: Ledger(root / "warehouse").night(CASES / "classic-stories" / "logs"),
    "moved-start": moved_start,
    "odd-day": odd_day,
}
"""By the names under which a run of the tests makes each once."""
