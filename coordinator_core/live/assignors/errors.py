"""Errors of assignors."""

from coordinator_core.errors import CoreError


class AssignorError(CoreError):
    """The assignor has no result (PartitionAssignorException), or Kafka's own fails for the same input."""


class NoMemberLeft(AssignorError):
    """A partition needs a member when all have their share. Kafka's SimpleAssignor throws NoSuchElementException."""
