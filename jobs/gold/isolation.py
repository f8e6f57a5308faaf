"""Isolation of faults: a group, log partition or input that fails does not keep other results from gold."""

from collections.abc import Callable, Iterable, Iterator, Set
from typing import NamedTuple, TypeVar

from coordinator_core.inference.audit.log_anomalies import LogAnomalyRow, input_not_read
from jobs.errors import OUTSIDE
from schemas.cluster_metadata import TOPIC as METADATA_TOPIC


class Lack(NamedTuple):
    """An input that gold was made without, as a row of gold.log_anomalies."""

    log_topic: str
    row: LogAnomalyRow


Read = TypeVar("Read")


def read_or(nothing: Read, what: str, read: Callable[[], Read], lacks: list[Lack]) -> Read:
    """Read an input of the audit. If our code fails to read it, add that to `lacks` and return `nothing`."""
    try:
        return read()
    except OUTSIDE:
        raise
    except Exception as error:
        lacks.append(Lack(METADATA_TOPIC, input_not_read(error, what)))
        return nothing


def failing(group_ids: Iterable[str], attempt: Callable[[Set[str]], object]) -> Iterator[tuple[str, Exception]]:
    """Yield each group for which `attempt` fails, and its error."""
    for group_id in group_ids:
        try:
            attempt(frozenset((group_id,)))
        except OUTSIDE:
            raise
        except Exception as error:
            yield group_id, error
