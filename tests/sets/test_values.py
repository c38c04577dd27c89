"""Values to try: how a text is split into them, and what is drawn from a range."""

from __future__ import annotations

import math
from typing import Any

import pytest

from seedbed.sets.ranges import Range, is_range, read_range
from seedbed.sets.values import read_values, split_values


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("1e-3,3e-3,1e-2", [1e-3, 3e-3, 1e-2]),
        ("[64,64],[256,256]", [[64, 64], [256, 256]]),
        ("[64,64]", [[64, 64]]),
        ("{a: 1, b: 2},{a: 3}", [{"a": 1, "b": 2}, {"a": 3}]),
        ('"a,b"', ["a,b"]),
        ("'it''s, so',x", ["it's, so", "x"]),
        (r'"a \" , b",c', ['a " , b', "c"]),
        ("true,false,null,~", [True, False, None, None]),
        ("a,b", ["a", "b"]),
        ("it's,that's", ["it's", "that's"]),  # a quote within a word is a letter
        ("a[0],b", ["a[0]", "b"]),
        ("{a: [1, 2], b: '}'},{}", [{"a": [1, 2], "b": "}"}, {}]),
        ("010,1_000,0x10", [10, 1000, 16]),
        ("", [None]),
    ],
)
def test_commas_outside_brackets_and_quotes_separate_values(text: str, values: list[Any]) -> None:
    found = read_values(text)
    assert found == values
    assert [type(one) for one in found] == [type(one) for one in values]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[1,2", "lacks ']'"),
        ("{a: [1,2}", "lacks ']"),
        ("'a,b", "is not closed"),
        ("1,,2", "nothing between two commas"),
        ("1,2,", "nothing between two commas"),
        ("[1]2,3", "is not YAML"),
    ],
)
def test_a_text_that_cannot_be_split_is_refused(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said.replace("[", r"\[")):
        read_values(text)


def test_a_split_loses_no_letter() -> None:
    text = "a, b ,[c, d],'e,f'"
    assert ",".join(split_values(text)) == text


def test_draws_lie_within_the_values_of_a_range() -> None:
    log = read_range({"log_uniform": [1e-5, 1e-2]})
    draws = [log.draw("lr", 0, number) for number in range(2000)]
    assert all(1e-5 <= one <= 1e-2 for one in draws)
    # Half of the logarithms lie below the middle, within five standard deviations.
    below = sum(one < math.sqrt(1e-5 * 1e-2) for one in draws)
    assert abs(below - 1000) < 5 * math.sqrt(2000) / 2
    even = read_range({"uniform": [2, 4]})
    numbers = [even.draw("x", 0, number) for number in range(2000)]
    assert abs(sum(numbers) / 2000 - 3) < 5 * (2 / math.sqrt(12)) / math.sqrt(2000)
    whole = read_range({"int_uniform": [1, 3]})
    assert {whole.draw("n", 0, number) for number in range(100)} == {1, 2, 3}
    some = read_range({"choice": [[64], "a", None]})
    assert all(some.draw("c", 0, number) in ([64], "a", None) for number in range(20))


def test_a_draw_follows_from_its_key_its_seed_and_its_number() -> None:
    one = Range("uniform", (0.0, 1.0))
    draws = [one.draw("a", 0, number) for number in range(5)]
    # Kept numbers: another release, Python or NumPy draws the same.
    assert draws == [0.5253, 0.4918, 0.07878, 0.4714, 0.03491]
    assert [one.draw("b", 0, number) for number in range(5)] != draws
    assert [one.draw("a", 1, number) for number in range(5)] != draws


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"log_uniform": [0, 1]}, r"above 0, given \[0, 1\]"),
        ({"log_uniform": [-1, 1]}, r"above 0, given \[-1, 1\]"),
        ({"uniform": [1, 1]}, r"lower end first, given \[1, 1\]"),
        ({"uniform": [2, 1]}, r"lower end first, given \[2, 1\]"),
        ({"uniform": [0, math.inf]}, r"finite, given \[0, inf\]"),
        ({"uniform": [math.nan, 1]}, r"finite, given \[nan, 1\]"),
        ({"uniform": ["1e-5", 1]}, "are numbers"),
        ({"int_uniform": [1.5, 3]}, "are integers"),
        ({"int_uniform": [True, 3]}, "are integers"),
        ({"uniform": [1]}, "takes two ends"),
        ({"uniform": 1}, "takes two ends"),
        ({"choice": []}, "takes a list of values"),
    ],
)
def test_a_range_that_is_none_is_refused_with_both_ends(given: dict[str, Any], said: str) -> None:
    assert is_range(given)
    with pytest.raises(ValueError, match=said):
        read_range(given)


@pytest.mark.parametrize("value", [{"a": [1, 2]}, {"uniform": [1, 2], "b": 1}, [1, 2], None, {}])
def test_other_values_are_no_range(value: Any) -> None:
    assert not is_range(value)
