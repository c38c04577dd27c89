"""Counts with their nouns, and texts of peers in logs."""

from __future__ import annotations

import pytest

from seedbed.runtime.text import LONGEST, counted, printable


@pytest.mark.parametrize("text", ["host/17/0", "Pong über alles", ""])
def test_plain_text_stays(text: str) -> None:
    assert printable(text) == text


@pytest.mark.parametrize("text", ["x\n2026 FORGED", "\x1b[2J", "a\u202eb", "\r", "\x00", "\ud800"])
def test_no_control_character_is_left(text: str) -> None:
    escaped = printable(text)
    assert escaped.isprintable()
    assert escaped.isascii()


@pytest.mark.parametrize("text", ["x" * 10**6, "\n" * 10**6, "é\n" * 300])
def test_a_long_text_is_cut(text: str) -> None:
    assert len(printable(text)) <= LONGEST
    assert printable(text).endswith("...")


def test_a_text_of_the_longest_length_is_whole() -> None:
    assert printable("x" * LONGEST) == "x" * LONGEST


@pytest.mark.parametrize(
    ("number", "noun", "expected"),
    [
        (0, "update", "0 updates"),
        (1, "episode", "1 episode"),
        (2000, "batch", "2,000 batches"),
        ("1", "process", "1 process"),
        ("1.20M", "frame", "1.20M frames"),
    ],
)
def test_a_noun_agrees_with_its_number(number: int | str, noun: str, expected: str) -> None:
    assert counted(number, noun) == expected
