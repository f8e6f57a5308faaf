"""Answers of client assignors."""

from coordinator_core.live.assignors.client_group import Assignment


def shown(assignment: Assignment) -> str:
    """An answer on one line."""
    return " ".join(
        f"{member_id}=[{', '.join(f'{topic}-{number}' for topic, number in partitions)}]"
        for member_id, partitions in sorted(assignment.items())
    )
