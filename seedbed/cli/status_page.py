"""The page that `seedbed status` prints: a table of labels and formats."""

from __future__ import annotations

import string
from collections.abc import Callable
from typing import Any

from seedbed.telemetry.progress_line import duration, money, number, si_number
from seedbed.telemetry.status import RunStatus

_INDENT = 12


def _percent(fraction: float | None) -> str:
    return "-" if fraction is None else f"{100 * fraction:.0f} %"


_FORMATS: dict[str, Callable[[Any], str]] = {
    "n": number,
    "n1": lambda value: number(value, 1),
    "n2": lambda value: number(value, 2),
    "si": si_number,
    "%": _percent,
    "%5": lambda value: f"{_percent(value):>5}",
    "ms": lambda value: "-" if value is None else f"{value:,.1f} ms",
    "$": money,
    "time": duration,
    "g": lambda value: "-" if value is None else f"{value:.4g}",
}


class _Format(string.Formatter):
    """Formats values by the names of `_FORMATS`; a value that is missing becomes "-"."""

    def get_value(self, key: int | str, args: Any, kwargs: Any) -> Any:
        return kwargs.get(key)

    def format_field(self, value: Any, format_spec: str) -> str:
        known = _FORMATS.get(format_spec)
        return known(value) if known else format(value, format_spec)


def _fill(template: str, *values: Any) -> str:
    merged = {name: value for part in values for name, value in part.items()}
    return _Format().vformat(template, (), merged)


def status_page(status: RunStatus) -> str:
    """Return the page of a status with its `source`, without a line feed at the end."""
    pages = ["\n".join(_head(status))]
    for title, *rows in _SECTIONS:
        lines = [title] if title else _threads(status)
        for label, value in rows:
            text = _fill(value, status["numbers"]) if isinstance(value, str) else value(status)
            lines += _wrapped(label, [text] if isinstance(text, str) else text)
        pages.append("\n".join(lines))
    return "\n\n".join(pages)


def _head(status: RunStatus) -> list[str]:
    source, process, limit = status["source"], status["process"], status["bottleneck"]
    name, ago = f"process {process['pid']} on {process['host']}", _ago(source["age_s"])
    finished = status["stop_reason"] is not None
    if finished:
        state, text = "finished", f"{status['stop_reason']} ({ago})"
    elif source["alive"] is False:
        state = "DEAD"
        text = f"{name} ended without a word, {ago}; run the same command again to resume"
    elif source["age_s"] > max(60.0, 5 * status["interval_s"]):
        state, text = "SILENT", f"{name} wrote its status {ago}; is it stuck or gone?"
    else:
        state, text = status["state"], f"{name}, seen {ago}"
    now = [] if finished or not status["waiting_for"] else [_line("now", status["waiting_for"])]
    return [
        f"{status['name']}: {status['environment']}, agent {status['agent']}",
        _line(state, text),
        *now,
        _line("bottleneck", f"{limit['part']}: {limit['sentence']}"),
    ]


def _threads(status: RunStatus) -> list[str]:
    lines = ["WHERE THE TIME GOES (last 30 s)", f"  {'':<{_INDENT}}  busy   blocked  now"]
    for name, thread in status["threads"].items():
        now = "ended"
        if status["stop_reason"] is None:
            now = thread["state"]
            now += f" for {duration(thread['state_s'])}" if thread["state_s"] >= 1 else ""
            now += f": {thread['waiting_for']}" if thread["waiting_for"] else ""
        busy, blocked = _percent(thread["busy"]), _percent(thread["blocked"])
        lines.append(_line(name, f"{busy:>5}  {blocked:>7}   {now}"))
    return lines


def _frames(status: RunStatus) -> str:
    # An older learner's status has no part "learners".
    learners, counters = status.get("learners"), status["counters"]
    total = learners["env_frames"] if learners else counters["env_frames"]
    text = si_number(counters["env_frames"])
    if learners:
        text += f" here, {si_number(total)} by all {learners['count']} learners"
    if goal := status["stop"]["env_frames"]:
        text += f" of {si_number(goal)} ({100 * total / goal:.0f} %)"
    return text + _fill(
        "; {trained_frames:si} trained on, {discarded_frames:si} discarded", counters
    )


def _replay(status: RunStatus) -> str | list[str]:
    numbers = status["numbers"]
    if not numbers.get("replay_capacity"):
        return []
    text = _fill(
        "{replay_sequences:n} of {replay_capacity:n} sequences, {gib:.3g} GiB when full; "
        "{replay_sampled:n} drawn, {age_s:time} old (p50)",
        numbers,
        {
            "gib": numbers["replay_bytes"] / 2**30,
            "age_s": numbers.get("replay_sample_age_s_p50") or 0,
        },
    )
    shards = "; {replay_healthy_shards:n} of {replay_shards:n} shards"
    return text + (_fill(shards, numbers) if numbers["replay_shards"] else "")


def _peers(status: RunStatus) -> str | list[str]:
    learners, numbers = status.get("learners"), status["numbers"]
    if not learners or not numbers.get("gossip_peers"):
        return []
    text = _fill(
        "rank {rank}, {topology}: {gossip_peers_alive:n} of {gossip_peers:n} learners alive; "
        "{gossip_mixes:n} mixes",
        numbers,
        learners,
    )
    if learners["topology"] == "gossip":
        text += _fill(
            ", {gossip_superseded:n} messages superseded; the furthest in-peer is "
            "{gossip_distance:.3g} away (2-norm)",
            numbers,
        )
    if numbers["gossip_bound_void"]:
        text += "; THE GRAPH HAS COME APART: nothing bounds how far they drift"
    return text


def _time(status: RunStatus) -> str:
    left, text = status["eta"], duration(status["counters"]["seconds"])
    if left is None or status["stop_reason"] is not None:
        return text
    return text + _fill("; about {seconds:time} to go ({condition}), for {dollars:$} more", left)


def _actors(status: RunStatus) -> str:
    text = "{sessions:n} sessions, {environments:n} environments"
    if status["numbers"].get("actor_stepping") is not None:
        text += (
            "; {actor_stepping:%} of their time stepping, {actor_held_up:%} held up by the full "
            "queue, {actor_network:%} on the way"
        )
    return _fill(text, status["numbers"])


def _batches(status: RunStatus) -> str:
    if status["numbers"].get("batch_environments") is None:
        return "none in the last 30 s"
    return _fill(
        "{batch_environments:n1} environments, {batch_padding:%} padding; answered in "
        "{inference_ms_p50:ms} (p50), {inference_ms_p99:ms} (p99), of which {batch_wait_ms:ms} for "
        "others to join and {inference_run_ms:ms} to compute",
        status["numbers"],
    )


def _return(status: RunStatus) -> str:
    if not status["numbers"].get("return_episodes"):
        return "no episode has ended yet"
    return _fill(
        "{return_mean:n2} mean of the last {return_episodes} episodes, from {return_min:n2} to "
        "{return_max:n2}; {episode_steps_mean:n} steps each",
        status["numbers"],
    )


def _if_updated(template: str) -> Callable[[RunStatus], str | list[str]]:
    return lambda s: _fill(template, s["numbers"]) if s["counters"]["updates"] else []


def _scalars(status: RunStatus) -> list[str]:
    scalars = status["scalars"] | status["user_scalars"]
    return [_fill("{name} {value:g}", {"name": n, "value": x}) for n, x in scalars.items()]


def _evaluation(status: RunStatus) -> list[str]:
    return [
        f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in (status["evaluation"] or {}).items()
        if isinstance(value, int | float | str)
    ]


def _dollars(status: RunStatus) -> str:
    budget = status["stop"]["dollars"]
    return _fill(
        "{dollars:$} so far{budget}; {dollars_per_hour:$} an hour, "
        "{dollars_per_billion_frames:$} a billion frames",
        status["numbers"],
        status["counters"],
        {"budget": f" of {money(budget)}" if budget else ""},
    )


def _checkpoint(status: RunStatus) -> str:
    checkpoint = status["checkpoint"]
    if checkpoint["age_s"] is None:
        text = "none written by this process yet"
    else:
        size = number(checkpoint["bytes"] / 1e6, 1) if checkpoint["bytes"] is not None else "-"
        ago = _ago(checkpoint["age_s"] + status["source"]["age_s"])
        text = f"{ago}, {size} MB in {number(checkpoint['seconds'], 1)} s"
    text += f"; one each {duration(checkpoint['every_s'])}"
    return text + (f"; {checkpoint['failed']} FAILED" if checkpoint["failed"] else "")


def _counts(key: str) -> Callable[[RunStatus], list[str]]:
    return lambda status: [f"{name} {n:,}" for name, n in status[key].items()]  # type: ignore[literal-required]


_Row = tuple[str, str | Callable[[RunStatus], str | list[str]]]
# A row without items is left out.
_SECTIONS: list[tuple[str, *tuple[_Row, ...]]] = [
    (
        "PROGRESS",
        ("frames", _frames),
        ("speed", "{env_fps_10s:n} / {env_fps_60s:n} / {env_fps_300s:n} frames a second over "
                  "10 / 60 / 300 s"),
        ("updates", lambda s: _fill("{updates:n}, {updates_per_s:n1} a second", s["numbers"],
                                    s["counters"])),
        ("replay", _replay),
        ("peers", _peers),
        ("time", _time),
    ),
    (
        "",
        ("grpc", "{wire_cpu:%5}            of a core"),
        ("CPU", "{learner_cores:n1} cores by the learner, {machine_cores:n1} by the whole machine"),
        ("actors", _actors),
        ("batches", _batches),
        ("queues", "{inference_queue_requests:n} requests for inference, {unroll_queue_columns:n} "
                   "of {unroll_queue_capacity:n} unrolls for training"),
    ),
    (
        "LEARNING",
        ("return", _return),
        ("episodes", lambda s: _fill("{episodes:n} ended, {abandoned_episodes:n} abandoned",
                                     s["counters"])),
        ("policy lag", _if_updated("{policy_lag_mean:n1} updates on average, at most "
                                   "{policy_lag_max:n1}")),
        ("train step", _if_updated("{train_step_ms_p50:ms}")),
        ("scalars", _scalars),
        ("evaluation", _evaluation),
    ),
    ("COST", ("dollars", _dollars)),
    (
        "SAFETY",
        ("checkpoint", _checkpoint),
        ("discarded", _counts("discarded_by_reason")),
        ("bad streams", _counts("stream_errors")),
        ("NOT WRITTEN", lambda s: s["failing_outputs"]),
    ),
]  # fmt: skip


def _line(name: str, text: str) -> str:
    return f"  {name:<{_INDENT}}{text}"


def _wrapped(name: str, items: list[str], columns: int = 100) -> list[str]:
    """Join items with commas into lines of a width; no line without items."""
    lines: list[str] = []
    for item in items:
        if lines and len(lines[-1]) + len(item) <= columns - _INDENT - 4:
            lines[-1] += f", {item}"
        else:
            lines = [*lines[:-1], f"{lines[-1]},", item] if lines else [item]
    return [_line("" if i else name, text) for i, text in enumerate(lines)]


def _ago(seconds: float) -> str:
    return "now" if seconds < 1 else f"{duration(seconds)} ago"
