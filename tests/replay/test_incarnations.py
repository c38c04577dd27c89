"""Keys of earlier incarnations."""

from __future__ import annotations

from seedbed.replay.incarnations import key_limit, new_incarnation


def test_a_key_is_valid_while_no_later_incarnation_began_below_it() -> None:
    # The crash before the third one took keys 30 .. 49, and more.
    made = [new_incarnation(first_key) for first_key in (0, 50, 30, 80)]
    a, b, c, d = (one.number for one in made)
    assert key_limit(made[:1], a) is None
    assert [key_limit(made[:2], one) for one in (a, b)] == [50, None]
    assert [key_limit(made[:3], one) for one in (a, b, c)] == [30, 30, None]
    assert [key_limit(made, one) for one in (a, b, c, d)] == [30, 30, 80, None]
    assert key_limit(made, 12345) == 0
    assert len({a, b, c, d}) == 4
