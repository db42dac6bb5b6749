"""How many examples hypothesis tries in a test: few before each change, five times as many in the slow tests."""

from __future__ import annotations

from hypothesis import settings

__all__ = ["FAST", "SLOW", "examples"]

FAST, SLOW = 40, 200
"""Examples of a test without settings of its own, in the profiles `gate` and `explore`."""


def examples(fast: int) -> settings:
    """Settings of a test that tries `fast` examples in the profile `gate`, and in proportion in any other.

    The cheaper an example is and the rarer the defect, the more of them a test tries.
    """
    return settings(max_examples=-(-fast * settings().max_examples // FAST))
