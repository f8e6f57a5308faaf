"""What is wrong with a scenario."""

from coordinator_core.errors import CoreError


class ScenarioError(CoreError):
    """A scenario file which cannot be simulated: names the file, the key, and what to do."""
