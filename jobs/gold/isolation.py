"""Which groups cannot be judged, where a fault shows only in what is done for many of them at once."""

from collections.abc import Callable, Iterator, Sequence, Set


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
