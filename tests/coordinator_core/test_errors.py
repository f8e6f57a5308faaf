"""The errors of the core."""

import copy
import pickle

import pytest

from coordinator_core.errors import CoreError, CrcMismatch, LaterKafka, ReplayFault


@pytest.mark.parametrize(
    "error",
    [
        CrcMismatch("wrong", byte_position=17),
        CrcMismatch("wrong"),
        LaterKafka("later", "g"),
        ReplayFault("failed", group_id="g", log_offset=5),
    ],
)
def test_an_error_comes_from_a_spark_worker_with_all_that_it_says(error: CoreError | ReplayFault) -> None:
    """Pickling keeps the message and the place."""
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))
