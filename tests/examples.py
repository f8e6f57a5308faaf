"""How many examples a property test tries: more of them where `--hypothesis-profile` asks for more."""

from hypothesis import settings


def examples(times: int) -> settings:
    """`times` as many as the profile has, for what has many ways to be odd."""
    return settings(max_examples=times * settings().max_examples, deadline=None)
