"""What a user is told of a mistake."""

from __future__ import annotations

LONGEST = 1000


def one_sentence(error: BaseException) -> str:
    """What an error says: something, in one line that can be read."""
    said = str(error)
    assert said.strip()
    assert "\n" not in said
    assert len(said) <= LONGEST
    return said
