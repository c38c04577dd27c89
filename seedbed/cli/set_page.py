"""The runs of a set with their states, as `seedbed status DIR` prints them."""

from collections import Counter
from pathlib import Path
from typing import Any

from seedbed.cli.list import row
from seedbed.runtime.formats import columns, duration, money, percent, si_number, significant
from seedbed.runtime.text import counted
from seedbed.sets.budget import Spending
from seedbed.sets.ends import code_name, read_ends
from seedbed.sets.folder import Member, sweep_file
from seedbed.sets.halving import describe_decision, members_at_rungs, read_decisions
from seedbed.sets.resolve import describe
from seedbed.sets.states import LOST, run_state
from seedbed.sets.stopped import is_stopped
from seedbed.sets.sweep import read_sweep

_HEAD = ("run", "state", "frames", "done", "evaluation", "time", "cost", "values")


def set_status(folder: Path) -> dict[str, Any]:
    """Return the state of every run of a set, and of the whole.

    Raises:
        SeedbedError: As `read_members`.
    """
    members = members_at_rungs(folder)
    rows = [_row(member, folder) for member in members]
    budget = read_sweep(sweep_file(folder)).budget
    spending = Spending(folder, budget)
    spent = spending.spent(members, ())
    ended_by = spending.exceeded(spent)
    states = {one["state"] for one in rows}
    if not ended_by and spending.has_bound and "training" not in states:
        waiting = [m for m, of in zip(members, rows, strict=True) if of["state"] == "to begin"]
        ended_by = next((spending.refusal(one, (), spent) for one in waiting), "")
    return {
        "budget": budget.model_dump(),
        "ended_by": ended_by or None,
        "halving": read_decisions(folder),
        "runs": rows,
        "states": dict(Counter(one["state"] for one in rows)),
        "env_frames": sum(one["env_frames"] or 0 for one in rows),
        "seconds": sum(one["seconds"] or 0.0 for one in rows),
        "dollars": sum(one["dollars"] or 0.0 for one in rows),
    }


def _row(member: Member, folder: Path) -> dict[str, Any]:
    found = row(member.run, folder / "runs")
    found |= {"run": member.name, "values": dict(member.values), "ends": read_ends(member)}
    stop = member.rung.stop if member.rung is not None else 0
    if found["done"] == 1.0 and not stop:  # of a stop that a later command may have raised
        stop = member.experiment.stop.env_frames
    if stop and found["env_frames"]:
        found["done"] = min(1.0, found["env_frames"] / stop)
    state = run_state(member, member.summary(), member.status())
    if state in LOST and found["ends"]:
        found["state"] = f"FAILED, {code_name(found['ends'][-1]['code'])}"
    elif state == "stopped" and is_stopped(member):
        found["state"] = "stopped by a person"
    elif state == "finished" and not member.is_finished:  # a later stop, or no last evaluation
        found["state"] = "to go on"
    elif state in ("finished", "pruned", "at its rung", "to begin"):
        found["state"] = state
    return found


def set_page(status: dict[str, Any]) -> str:
    """Return the page of a result of `set_status`."""
    rows = [_HEAD, *map(_cells, status["runs"])]
    states = ", ".join(f"{count} {state}" for state, count in status["states"].items())
    total = (
        f"{counted(len(status['runs']), 'run')}: {states}; {si_number(status['env_frames'])} "
        f"frames, {duration(status['seconds'])} of training, {money(status['dollars'])}"
    )
    by = status["ended_by"]
    lines = [*map(describe_decision, status["halving"]), total]
    lines += [f"ended by {by}"] if by else []
    return f"{columns(rows, '<<>>>>><')}\n\n" + "\n".join(lines)


def _cells(of: dict[str, Any]) -> tuple[str, ...]:
    return (
        of["run"], of["state"], si_number(of["env_frames"]), percent(of["done"]),
        significant(of["evaluation_mean"]), duration(of["seconds"]), money(of["dollars"]),
        describe(of["values"]) if of["values"] else "",
    )  # fmt: skip
