"""The text of `seedbed table`, in at most 120 columns."""

from collections.abc import Iterable, Iterator
from textwrap import wrap
from typing import Any, NamedTuple

from seedbed.runtime.formats import NOTHING, columns, fill, money

WIDTH = 118


class _Column(NamedTuple):
    """A column: its head, where the value is (`printed[ratio]`), and its format."""

    head: str
    path: str
    form: str = ""


_ROW = _Column("", "row")
_SIZES = (_Column("CPUs", "cpus", "n"), _Column("envs", "envs", "n"))
_SPEED = _Column("frames/s", "printed[frames_per_s]")
_SPLIT = (
    _Column("$ actors", "recomputed[actors_dollars]", "$3"),
    _Column("$ learner", "recomputed[learner_dollars]", "$3"),
)
_RATIO = (
    _Column("ratio", "printed[ratio]"),
    _Column("recomputed", "recomputed[ratio]", ".2f"),
)
_BILL = (
    _ROW, _Column("actors", "actors", "n"), *_SIZES, _SPEED,
    _Column("$", "printed[dollars]"), _Column("recomputed", "recomputed[dollars]", "$3"),
    *_SPLIT, *_RATIO,
)  # fmt: skip
_PAPER = {
    1: (
        _ROW, _Column("accelerators", "accelerators"), *_SIZES,
        _Column("batch", "batch_size", "n"), _SPEED,
        *_RATIO, *_SPLIT, _Column("$", "recomputed[dollars]", "$3"),
    ),
    **dict.fromkeys((4, 5, 12), _BILL),
    11: (
        _ROW, _SPEED,
        _Column("$ actors", "printed[actors_dollars]"),
        _Column("recomputed", "recomputed[actors_dollars]", "$3"),
        _Column("$ learner", "printed[learner_dollars]"),
        _Column("recomputed", "recomputed[learner_dollars]", "$3"),
        _Column("$", "printed[dollars]"), _Column("recomputed", "recomputed[dollars]", "$3"),
    ),
    13: (
        _ROW, _Column("IMPALA", "printed[impala_ms]"),
        _Column("a step takes", "recomputed[impala_step_ms]", "ms"),
        _Column("SEED", "printed[seed_ms]"),
        _Column("a step takes", "recomputed[seed_step_ms]", "ms"),
        _Column("IMPALA / SEED", "recomputed[ratio]", ".2f"),
    ),
}  # fmt: skip
_REPRICED = (
    _ROW, _Column("instead of", "accelerators"), _Column("CPUs", "cpus", "n"),
    _Column("actors/h", "actors_dollars_an_hour", "$3"),
    _Column("learner/h", "learner_dollars_an_hour", "$3"),
    _Column("even at", "even_at_frames_per_s", "si"),
    _Column("at frames/s", "frames_per_s", "si"),
    _Column("$ actors", "actors_dollars", "$3"),
    _Column("$ learner", "learner_dollars", "$3"), _Column("$", "dollars", "$3"),
)  # fmt: skip
_OURS = (
    _Column("", "source", "end26"), _Column("", "architecture"),
    _Column("environment", "environment", "end20"), _Column("agent", "model", "end20"),
    _Column("CPUs", "cpus", "n"), _Column("envs", "envs", "n"),
    _Column("frames/s", "frames_per_s", "n"),
)  # fmt: skip
_OUR_DOLLARS = (
    _Column("$ actors", "actors_dollars", "$3"),
    _Column("$ learner", "learner_dollars", "$3"), _Column("$", "dollars", "$3"),
)  # fmt: skip
_OUR_LATENCY = (
    _Column("round trip p50", "round_trip_ms_p50", "ms"),
    _Column("p99", "round_trip_ms_p99", "ms"),
)
# What stands to the left: names.
_LEFT = ("row", "source", "architecture", "accelerators", "environment", "model")

HEADINGS = {
    1: "Table 1 of the SEED paper: speed, and by Table 3 the dollars of 1e9 frames, which it lacks",
    3: "Table 3 of the SEED paper: dollars an hour in September 2019",
    4: "Table 4 of the SEED paper: dollars of 1e9 frames of DeepMind Lab",
    5: "Table 5 of the SEED paper: dollars of 1e9 frames of Google Research Football",
    11: "Table 11 of the SEED paper: dollars of 1e9 frames, of the actors and of the learner",
    12: "Table 12 of the SEED paper: dollars of 1e9 frames of DeepMind Lab, both on one P100",
    13: "Table 13 of the SEED paper: end-to-end inference latency",
}


def page(result: dict[str, Any]) -> str:
    """Return the page of a result of `seedbed table`, without a line feed at the end."""
    table, blocks = result["table"], [HEADINGS[result["table"]]]
    shown = _prices(result) if table == 3 else _rows(_PAPER[table], result["paper"])
    blocks.append("\n".join([shown, *_footnotes(result)]))
    if what_if := result["what_if"]:
        lines = ["WHAT IF", *wrapped(what_if["text"])]
        lines.append(_rows(_used(_REPRICED, what_if["rows"]), what_if["rows"]))
        blocks.append("\n".join([*lines, *_remarks(what_if["remarks"])]))
    return "\n\n".join([*blocks, "\n".join(["OURS", *_ours(result)])])


def _ours(result: dict[str, Any]) -> Iterator[str]:
    if not result["ours"]:
        yield from _remarks(result["our_remarks"])
        return
    more = {13: _OUR_LATENCY, 3: ()}.get(result["table"], _OUR_DOLLARS)
    yield _rows((*_OURS, *more), result["ours"], grouped=False)
    yield from _remarks(result["our_remarks"])


def _prices(result: dict[str, Any]) -> str:
    names = result["paper"][0]["tables"]
    heads = [head for name in names for head in (name, "its Spot")]
    rows = [
        (
            row["row"],
            row["printed"]["dollars_an_hour"],
            *(_price(price) for tiers in row["tables"].values() for price in tiers.values()),
        )
        for row in result["paper"]
    ]
    return columns([("", "printed", *heads), *rows], "<" + ">" * (1 + len(heads)))


def _price(value: float | None) -> str:
    return (
        NOTHING if value is None else f"${value:.4f}".rstrip("0") if value < 0.1 else money(value)
    )


def _rows(wanted: Iterable[_Column], rows: list[dict[str, Any]], grouped: bool = True) -> str:
    """Return rows, with a line for each environment where there are several."""
    wanted = tuple(wanted)
    environments = {row.get("environment") for row in rows}
    lines: list[tuple[str, ...] | str] = [tuple(column.head for column in wanted)]
    before = None
    for row in rows:
        environment = row.get("environment")
        if grouped and len(environments) > 1 and environment != before:
            lines.append(str(environment))
        before = environment
        cells = [_cell(column, row) for column in wanted]
        cells[0] = f"  {cells[0]}" if grouped and len(environments) > 1 else cells[0]
        lines.append(tuple(cells))
    return columns(lines, "".join("<" if one.path in _LEFT else ">" for one in wanted))


def _cell(column: _Column, row: dict[str, Any]) -> str:
    text = fill(f"{{{column.path}:{column.form}}}", row)
    place, _, name = column.path.rstrip("]").partition("[")
    return f"{text} *" if place == "recomputed" and name in row["misprints"] else text


def _used(wanted: Iterable[_Column], rows: list[dict[str, Any]]) -> list[_Column]:
    """Return the columns that some row has."""
    return [column for column in wanted if any(column.path in row for row in rows)]


def _footnotes(result: dict[str, Any]) -> Iterator[str]:
    names = {"dollars": "$", "actors_dollars": "$ actors", "learner_dollars": "$ learner"}
    for row in result["paper"]:
        reasons: dict[str, list[str]] = {}
        for column, why in row["misprints"].items():
            reasons.setdefault(why, []).append(names.get(column, column))
        for why, of in reasons.items():
            yield from wrapped(f"* {row['row']}, {', '.join(of)}: a misprint. {why}.")
    for row in result["paper"]:
        if row.get("note"):
            yield f"  {row['row']}, {row['printed']['frames_per_s']}: {row['note']}."
    yield from _remarks(result["remarks"])


def _remarks(remarks: Iterable[str]) -> Iterator[str]:
    for remark in remarks:
        yield from wrapped(f"  {remark}")


def wrapped(text: str) -> list[str]:
    """Return a remark as lines of at most `WIDTH`."""
    return wrap(text, WIDTH, subsequent_indent="  ", break_long_words=False)
