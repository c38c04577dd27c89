"""Table 10 of the SEED paper with the scores of a suite, in at most 120 columns."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from seedbed.cli.table_page import wrapped
from seedbed.evaluation.aggregates import CONFIDENCE, RESAMPLES, Aggregates, aggregate, intervals
from seedbed.evaluation.atari57 import find, scores
from seedbed.papers.printed import value_of
from seedbed.papers.seed_atari import STATED_MEDIAN, table_10
from seedbed.runtime.formats import NOTHING, columns, si_number
from seedbed.runtime.install import how_to_install
from seedbed.sets.folder import Member

_OFF = 0.01  # by which a stated figure may differ from its rows


def table(members: Sequence[Member]) -> dict[str, Any]:
    """Return the games, the aggregates of each column, and remarks.

    Scores of a game are human-normalised: 0 is random play, 1 is a human. Ours is the mean over
    seeds of each run's newest evaluation.
    """
    remarks: list[str] = []
    ours = _ours(members, remarks)
    games = [_row(game, ours.get(game, [])) for game in table_10()]
    played = {
        row["game"]: [run["human_normalised"] for run in ours[row["game"]]]
        for row in games
        if row["ours"] is not None
    }
    blocks = [_aggregates(games, played if len(played) == len(games) else None, remarks)]
    if played and len(played) < len(games):
        some = [row for row in games if row["game"] in played]
        blocks.append(_aggregates(some, played, remarks))
    return {
        "games": games,
        "aggregates": blocks,
        "runs": len(members),
        "finished": sum(member.is_finished for member in members),
        "remarks": [*remarks, *_remarks(games, blocks)],
    }


def _ours(members: Sequence[Member], remarks: list[str]) -> dict[str, list[dict[str, Any]]]:
    """Return the newest evaluation of each run that has one, by the game's name in Table 10."""
    names = {score: name for name, score in scores().items()}
    ours: dict[str, list[dict[str, Any]]] = {}
    for member in members:
        environment = member.experiment.environment.id
        score = find(environment)
        if score is None:
            remarks.append(f"{member.name} plays {environment}, none of the 57 games: left out.")
            continue
        evaluation = member.last_evaluation()
        if evaluation is None:
            continue
        if evaluation["human_normalised"] in (None, ""):
            text = "was not evaluated by Table 9, whose scores alone compare: left out."
            remarks.append(f"{member.name} {text}")
            continue
        run = {
            "run": member.name,
            "seed": member.experiment.seed,
            "env_frames": int(float(evaluation["env_frames"])),
            "mean": float(evaluation["mean"]),
            "human_normalised": score.normalise(float(evaluation["mean"])),
        }
        ours.setdefault(names[score], []).append(run)
    return ours


def _row(game: str, runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    printed, score = table_10()[game], scores()[game]
    row: dict[str, Any] = {
        "game": game,
        "random": score.random,
        "human": score.human,
        "printed": printed._asdict(),
        "ours": None,
        "human_normalised": {
            name: score.normalise(_number(text)) for name, text in printed._asdict().items()
        },
    }
    if runs:
        means = [run["mean"] for run in runs]
        error = float(np.std(means, ddof=1) / len(means) ** 0.5) if len(means) > 1 else None
        mean = float(np.mean(means))
        frames = min(run["env_frames"] for run in runs)
        row["ours"] = {
            "mean": mean, "standard_error": error, "env_frames": frames, "runs": list(runs),
        }  # fmt: skip
        row["human_normalised"]["ours"] = score.normalise(mean)
    return row


def _number(text: str) -> float:
    """Return the number of a score as printed, which may be below zero."""
    size = value_of(text.removeprefix("-")) or 0.0
    return -size if text.startswith("-") else size


def _aggregates(
    games: Sequence[Mapping[str, Any]],
    ours: Mapping[str, Sequence[float]] | None,
    remarks: list[str],
) -> dict[str, Any]:
    """Return the aggregates of each column over some games; ours may not have them all."""
    found: dict[str, Any] = {"games": len(games)}
    for name in ("r2d2", "seed"):
        single = {row["game"]: [row["human_normalised"][name]] for row in games}
        found[name] = aggregate(single)._asdict()
    found["ours"] = None if ours is None else aggregate(ours)._asdict()
    found["intervals"] = None
    if ours is not None:
        try:
            bounds = intervals(ours)
        except ImportError:
            bounds = None
            remarks.append(f"Intervals need SciPy: {how_to_install('compare')}.")
        else:
            if bounds is None:
                remarks.append("Ours has no interval: it needs two seeds of each game.")
        if bounds is not None:
            found["intervals"] = dict(zip(Aggregates._fields, bounds, strict=True))
    if ours is not None and len({len(runs) for runs in ours.values()}) > 1:
        remarks.append("In the IQM a game with more seeds has more weight.")
    return found


def _remarks(
    games: Sequence[Mapping[str, Any]], blocks: Sequence[Mapping[str, Any]]
) -> Iterator[str]:
    yield (
        "R2D2 and SEED are single numbers, means of 3 seeds and of 1: they have no interval. "
        "Table 10 has no random play: the DQN Zoo's scores stand there."
    )
    median = blocks[0]["seed"]["median"]
    if abs(median - STATED_MEDIAN) > _OFF * STATED_MEDIAN:
        yield (
            f"* Section 4.3 states {100 * STATED_MEDIAN:.0f} %, beside Figure 6; the rows of "
            f"Table 10 have {100 * median:.1f}."
        )
    if any(block["intervals"] for block in blocks):
        yield (
            f"[]: {CONFIDENCE:.0%} interval over seeds, {RESAMPLES:,} resamples of a stratified "
            "bootstrap (Agarwal et al. 2021)."
        )
    if any(row["ours"] for row in games):
        yield (
            "ours: the newest evaluation of each run, by Table 9; mean over seeds ± standard "
            "error; frames are those of the seed with the fewest."
        )
    else:
        yield "-: no run has an evaluation yet."


def page(result: Mapping[str, Any]) -> str:
    """Return the page of a result of `table`, without a line feed at the end."""
    head = ("game", "random", "human", "R2D2", "SEED", "ours", "", "seeds", "frames")
    rows = [(*head, "R2D2 %", "SEED %", "ours %"), *map(_cells, result["games"])]
    title = "Table 10 of the SEED paper: final scores; %: human-normalised"
    state = f"{result['finished']} of {result['runs']} runs are finished"
    blocks = [title, columns(rows, "<" + ">" * (len(rows[0]) - 1))]
    blocks += [_block(block, is_first=not at) for at, block in enumerate(result["aggregates"])]
    remarks = [f"  {state}.", *(f"  {remark}" for remark in result["remarks"])]
    lines = [line for one in remarks for line in wrapped(one)]
    return "\n\n".join([*blocks, "\n".join(lines)])


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    ours, normalised = row["ours"] or {}, row["human_normalised"]
    error = ours.get("standard_error")
    return (
        row["game"],
        f"{row['random']:.1f}",
        f"{row['human']:.1f}",
        row["printed"]["r2d2"],
        row["printed"]["seed"],
        f"{ours['mean']:.1f}" if ours else NOTHING,
        "" if error is None else f"± {error:.1f}",
        str(len(ours["runs"])) if ours else NOTHING,
        si_number(ours.get("env_frames")),
        *(_percent(normalised.get(name)) for name in ("r2d2", "seed", "ours")),
    )


def _block(block: Mapping[str, Any], is_first: bool) -> str:
    """Return the aggregates over some games as lines."""
    name = f"over {block['games']} games" if is_first else f"over the {block['games']} of ours"
    rows = [(f"human-normalised %, {name}", "R2D2", "SEED", "ours", "")]
    labels = {"median": "median", "mean": "mean", "iqm": "interquartile mean (IQM)"}
    for key, label in labels.items():
        star = " *" if is_first and key == "median" else ""
        bounds = (block["intervals"] or {}).get(key)
        between = "" if bounds is None else f"[{_percent(bounds[0])}, {_percent(bounds[1])}]"
        ours = (block["ours"] or {}).get(key)
        cells = (_percent(block["r2d2"][key]), _percent(block["seed"][key]) + star, _percent(ours))
        rows.append((label, *cells, between))
    return columns(rows, "<>>><")


def _percent(value: float | None) -> str:
    return NOTHING if value is None else f"{100 * value:.1f}"
