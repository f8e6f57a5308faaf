"""What an assignor raises."""

from coordinator_core.errors import CoreError


class AssignorError(CoreError):
    """The assignor cannot answer (PartitionAssignorException), or Kafka's own fails with the same input."""


class NoMemberLeft(AssignorError):
    """A partition wants a member when all have their part. Kafka's SimpleAssignor throws NoSuchElementException."""
