"""What may be asked, and what is said where it may not."""

import pytest

from coordinator_core.errors import WhatIfError
from simulator.whatif.settings import Changes, Recorded, question_of


def test_settings_have_kafkas_names() -> None:
    """Each `NAME=VALUE` sets one field; what is not named stays as it was."""
    question = question_of(
        ["session.timeout.ms=60000", " group.instance.id = static "], ["group.initial.rebalance.delay.ms=0"]
    )
    assert question.changed == Changes(session_timeout_ms=60_000, is_static=True)
    assert question.recorded == Recorded(initial_rebalance_delay_ms=0)


def test_what_it_is_about() -> None:
    """Delivery limit and lock duration ask about records, all else about members."""
    limit = question_of(["share.delivery.count.limit=3"]).changed
    assert (limit.is_of_shares, limit.is_of_members) == (True, False)
    assignor = question_of(["assignor=sticky"]).changed
    assert (assignor.is_of_shares, assignor.is_of_members) == (False, True)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("session.timeout.ms", "must be NAME=VALUE"),
        ("session.timeout=5", r"cannot be asked \(did you mean session.timeout.ms\?\); what can: "),
        ("session.timeout.ms=5s", "whole number of ms .* from 6000 to 1800000"),
        ("session.timeout.ms=5999", "whole number of ms .* from 6000"),
        ("session.timeout.ms=٣٠٠٠٠", "whole number"),
        ("group.consumer.session.timeout.ms=60001", "from 45000 to 60000"),
        ("group.instance.id=me", "one of static, dynamic"),
        ("assignor=clever", "one of range"),
        ("group.protocol=share", "one of classic, consumer"),
        ("share.delivery.count.limit=1", "from 2 to 10"),
        ("share.record.lock.duration.ms=14999", "from 15000 to 60000"),
    ],
)
def test_what_cannot_be_asked_is_refused(text: str, words: str) -> None:
    """The error names the setting and what it may be."""
    with pytest.raises(WhatIfError, match=words):
        question_of([text])


def test_a_question_must_ask_something_and_only_once() -> None:
    """No setting is no question; two names of one setting are one too many."""
    with pytest.raises(WhatIfError, match="nothing is to be different"):
        question_of([])
    with pytest.raises(WhatIfError, match="asked twice"):
        question_of(["share.delivery.count.limit=3", "group.share.delivery.count.limit=4"])
    with pytest.raises(WhatIfError, match="cannot be given"):
        question_of(["assignor=range"], ["assignor=sticky"])
