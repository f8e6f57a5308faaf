"""The error of a scenario."""

from coordinator_core.errors import CoreError


class ScenarioError(CoreError):
    """A scenario file that cannot be simulated: the text names the file, the key, and what to do."""
