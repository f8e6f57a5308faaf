"""What cannot be judged keeps nothing else from gold: groups, log partitions, and inputs of the whole cluster."""

from collections.abc import Callable, Iterator, Sequence, Set
from typing import NamedTuple, TypeVar

from coordinator_core.inference.log_anomalies import LogAnomalyRow, input_not_read
from schemas.cluster_metadata import TOPIC as METADATA_TOPIC


class Lack(NamedTuple):
    """What gold was made without: a row of gold.log_anomalies."""

    log_topic: str
    row: LogAnomalyRow


Read = TypeVar("Read")


def read_or(nothing: Read, what: str, read: Callable[[], Read], lacks: list[Lack]) -> Read:
    """An input of the audit, or `nothing` where our code fails to read it: that is added to `lacks`."""
    try:
        return read()
    except (MemoryError, OSError):
        raise
    except Exception as error:
        lacks.append(Lack(METADATA_TOPIC, input_not_read(error, what)))
        return nothing


def failing(group_ids: Sequence[str], attempt: Callable[[Set[str]], object]) -> Iterator[tuple[str, Exception]]:
    """Each group for which `attempt` fails, and how: all are tried, then halves of those that fail together."""
    if not group_ids:
        return
    try:
        attempt(frozenset(group_ids))
    except (MemoryError, OSError):
        raise
    except Exception as error:
        if len(group_ids) == 1:
            yield group_ids[0], error
            return
        middle = len(group_ids) // 2
        yield from failing(group_ids[:middle], attempt)
        yield from failing(group_ids[middle:], attempt)
