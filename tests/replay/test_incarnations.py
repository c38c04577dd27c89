"""Keys of earlier incarnations."""

from __future__ import annotations

from seedbed.replay.incarnations import IncarnationHistory


def test_a_key_is_valid_while_no_later_incarnation_began_below_it() -> None:
    a = IncarnationHistory((), 0)
    assert a.limit(a.now) is None
    b = IncarnationHistory(a.incarnations, 50)
    assert (b.limit(a.now), b.limit(b.now)) == (50, None)
    c = IncarnationHistory(b.incarnations, 30)  # a crash took keys 30 .. 49, and more
    assert (c.limit(a.now), c.limit(b.now), c.limit(c.now)) == (30, 30, None)
    d = IncarnationHistory(c.incarnations, 80)
    assert (d.limit(a.now), d.limit(b.now), d.limit(c.now)) == (30, 30, 80)
    assert d.limit(12345) == 0
    assert len({one.incarnation for one in d.incarnations}) == 4
