"""Reading one log partition of a broker, over a connection of its own."""

from collections.abc import Iterator

from jobs.sources.broker import TIMEOUT_MS, Broker
from jobs.sources.broker_log import FETCH_BYTES_MAX, BrokerLog, read_ranges
from jobs.sources.segments import SegmentRead


def read_broker_log(
    log: BrokerLog,
    from_offset: int | None = None,
    to_offset: int | None = None,
    *,
    timeout_ms: int = TIMEOUT_MS,
    fetch_bytes_max: int = FETCH_BYTES_MAX,
) -> Iterator[SegmentRead]:
    """Yield the batches of one log partition, over a connection of its own."""
    with Broker.connect(log.address, timeout_ms=timeout_ms) as broker:
        chosen = log.range(from_offset, to_offset)
        for _, read in read_ranges(broker, [chosen], fetch_bytes_max=fetch_bytes_max):
            yield read
