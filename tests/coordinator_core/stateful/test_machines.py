"""Random lives of live groups and share partitions: what `*_machine.py` list holds after every step, whatever comes."""

import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine

from tests.coordinator_core.live.share_partition.machine import SharePartitionMachine
from tests.coordinator_core.stateful.classic_machine import ClassicMachine
from tests.coordinator_core.stateful.consumer_machine import ConsumerMachine
from tests.coordinator_core.stateful.group_machine import live_at_random
from tests.coordinator_core.stateful.persisted_machine import PersistedSharePartitionMachine
from tests.coordinator_core.stateful.share_machine import ShareMachine

MACHINES = [ClassicMachine, ConsumerMachine, ShareMachine, SharePartitionMachine, PersistedSharePartitionMachine]


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.__name__)
def test_invariants_hold_at_random(machine: type[RuleBasedStateMachine]) -> None:
    """No sequence of requests, failures and waits breaks an invariant."""
    live_at_random(machine, settings())
