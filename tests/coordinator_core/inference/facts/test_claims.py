"""How sure a claim is when something that it rests on may be otherwise."""

import pytest

from coordinator_core.confidence import CERTAIN, CONFIDENCES, GUESS, LIKELY
from coordinator_core.inference.facts.claims import Claim


@pytest.mark.parametrize(("at_most", "expected"), [(LIKELY, (LIKELY, LIKELY, GUESS)), (GUESS, (GUESS, GUESS, GUESS))])
def test_doubt_lowers_a_claim_and_never_raises_it(at_most: str, expected: tuple[str, ...]) -> None:
    claims = [Claim("MEMBER_LEFT", "WITHIN_TIMEOUTS", confidence) for confidence in (CERTAIN, LIKELY, GUESS)]
    assert tuple(claim.weighed(True, at_most=at_most).confidence for claim in claims) == expected
    assert tuple(claim.weighed(False, at_most=at_most).confidence for claim in claims) == CONFIDENCES
