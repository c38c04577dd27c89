"""The page that `seedbed status` prints: a template, and the values that it names."""

import shlex
import textwrap
from collections.abc import Mapping
from typing import Any

from seedbed.runtime.formats import duration, fill
from seedbed.telemetry.busy import THREADS
from seedbed.telemetry.status import RunStatus

_INDENT = 12
# A title, and rows of a label and a text; see `formats.fill`. A row without a text shows the list
# that has its label in `_values`. A row whose text or list turns out empty is left out.
_SECTIONS = """\
PROGRESS
frames      {env_frames:si}\
{learners_count:? here, {total_frames:si} by all {learners_count} learners}\
{learners_left_env_frames:?, {learners_left_env_frames:si} of them by learners that have left}\
{goal:? of {goal:si} ({goal_share:%})}; \
{trained_frames:si} trained on, {discarded_frames:si} discarded
speed       {env_fps_10s:n} / {env_fps_60s:n} / {env_fps_300s:n} frames a second over \
10 / 60 / 300 s
updates     {updates:n}, {updates_per_second:n1} a second\
{skipped_updates:?; {skipped_updates:n} SKIPPED}
replay      {replay_capacity:?{replay_sequences:n} of {replay_capacity:n} sequences, \
{replay_bytes:GiB} when full; {replay_sampled_sequences:n} drawn, {replay_age_s:time} old (p50)}\
{replay_shards:?; {replay_healthy_shards:n} of {replay_shards:n} shards}
peers       {is_peer:?rank {learners_rank}, {learners_topology}: {gossip_peers_alive:n} of \
{gossip_peers:n} learners alive; {gossip_mixes:n} mixes}\
{is_gossip:?, {gossip_superseded:n} messages superseded; the furthest in-peer is \
{gossip_distance_max:.3g} away (2-norm)}\
{is_split:?; THE GRAPH HAS COME APART: nothing bounds how far they drift}
energy      {watts:?{watts:n1} W, {frames_per_kilojoule:n} frames a kilojoule}
time        {seconds:time}\
{eta_condition:?; about {eta_seconds:time} to go ({eta_condition}), for {eta_dollars:$} more}

WHERE THE TIME GOES (last 30 s)
              busy   blocked  now
inference   {busy_fraction_inference:%5}  {blocked_fraction_inference:%7}   {now_inference}
prefetch    {busy_fraction_prefetch:%5}  {blocked_fraction_prefetch:%7}   {now_prefetch}
training    {busy_fraction_training:%5}  {blocked_fraction_training:%7}   {now_training}
grpc        {wire_cpu:%5}            of a core
CPU         {learner_cpu_cores:n1} cores by the learner, {machine_cores:n1} by the whole machine
actors      {sessions:n} sessions, {environments:n} environments\
{is_stepping_known:?; {actor_stepping_fraction:%} of their time stepping, {actor_held_up:%} \
held up by the full queue, {actor_network:%} on the way}
batches     {batch_environments:?{batch_environments:n1} environments, {batch_padding:%} padding; \
answered in {inference_ms_p50:ms} (p50), {inference_ms_p99:ms} (p99), of which {batch_wait_ms:ms} \
for others to join and {inference_run_ms:ms} to compute}\
{batch_environments:!none in the last 30 s}
round trip  {round_trip_ms_p50:?{round_trip_ms_p50:ms} (p50), {round_trip_ms_p99:ms} (p99) from a \
step to its actions, as the actors measure it}
queues      {inference_queue_depth:n} requests for inference, {unroll_queue_depth:n} of \
{unroll_queue_capacity:n} unrolls for training

LEARNING
return      {mean_return_episodes:?{mean_return:n2} mean of the last {mean_return_episodes} \
episodes, from {min_return:n2} to {max_return:n2}; {episode_steps_mean:n} steps each}\
{mean_return_episodes:!no episode has ended yet}
episodes    {episodes:n} ended, {abandoned_episodes:n} abandoned
exploration {exploration_epsilon_highest:?ε from {exploration_epsilon_lowest:.3g} to \
{exploration_epsilon_highest:.3g}}
policy lag  {updates:?{policy_lag_mean:n1} updates on average, at most {policy_lag_max:n1}}
train step  {updates:?{train_step_ms_p50:ms}}
scalars
evaluation

COST
dollars     {dollars:$} so far{budget:? of {budget:$}}; {run_dollars_per_hour:$} an hour, \
{dollars_per_billion_frames:$} a billion frames

ORIGIN
command
made by     {origin_version:?Seedbed {origin_version}}{origin_commit:?, commit {origin_commit}}\
{origin_dirty:? WITH CHANGES}{origin_python:?; Python {origin_python} on {origin_machine}}
starts      {origin_starts:?{origin_starts:n}}
CHANGED

SAFETY
checkpoint  {checkpoints:?{checkpoint_ago_s:ago}, {checkpoint_bytes:MB} in \
{checkpoint_seconds:n1} s}{checkpoints:!none written by this process yet}; \
one each {checkpoint_interval_seconds:time}{checkpoint_failures:?; {checkpoint_failures} FAILED}
discarded
bad streams
NOT WRITTEN"""


def status_page(status: RunStatus) -> str:
    """Return the page of a status with its `source`, without a line feed at the end."""
    pages, values = ["\n".join(_head(status))], _values(status)
    for section in _SECTIONS.split("\n\n"):
        title, *rows = section.splitlines()
        lines = [title]
        for row in rows:
            label, template = row[:_INDENT].rstrip(), row[_INDENT:]
            text = fill(template, values)
            lines += _wrapped(label, ([text] if text else []) if template else values[label])
        pages.append("\n".join(lines))
    return "\n\n".join(pages)


def _values(status: RunStatus) -> dict[str, Any]:
    """Return everything that the table shows, by name, and the lists by their labels."""
    numbers, counters = status["numbers"], status["counters"]
    learners = status["learners"]
    origin: Mapping[str, Any] = status["provenance"] or {}
    total, goal = learners.get("env_frames", counters["env_frames"]), status["stop"]["env_frames"]
    left = None if status["stop_reason"] is not None else status["eta"]
    is_peer = bool(learners and numbers.get("gossip_peers"))
    return {
        **numbers,
        **counters,
        "total_frames": total,
        "goal": goal,
        "goal_share": total / goal if goal else None,
        "budget": status["stop"]["dollars"],
        "replay_age_s": numbers.get("replay_sample_age_s_p50") or 0,
        "is_stepping_known": numbers.get("actor_stepping_fraction") is not None,
        "is_peer": is_peer,
        "is_gossip": is_peer and learners.get("topology") == "gossip",
        "is_split": is_peer and numbers["gossip_bound_void"],
        **{f"now_{name}": _now(status, name) for name in THREADS},
        **{f"learners_{name}": value for name, value in learners.items()},
        **{f"eta_{name}": value for name, value in (left or {}).items()},
        "checkpoint_ago_s": (numbers.get("checkpoint_age_seconds") or 0.0)
        + status["source"]["age_s"],
        "scalars": _list("{name} {value:g4}", status["scalars"] | status["user_scalars"]),
        "evaluation": [
            f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"
            for name, value in (status["evaluation"] or {}).items()
            if isinstance(value, int | float | str)
        ],
        **{f"origin_{name}": value for name, value in origin.items()},
        "origin_dirty": origin.get("clean") is False,
        "command": [_command(origin["command"])] if origin else [],
        "CHANGED": origin.get("changes", []),
        "discarded": _list("{name} {value:n}", status["discarded_by_reason"]),
        "bad streams": _list("{name} {value:n}", status["stream_errors"]),
        "NOT WRITTEN": status["failing_outputs"],
    }


def _command(words: list[str]) -> str:
    """Return a command line; a call in Python, or an upgrade of a release, is one word."""
    return words[0] if len(words) == 1 else shlex.join(words)


def _list(template: str, values: Mapping[str, Any]) -> list[str]:
    return [fill(template, {"name": name, "value": value}) for name, value in values.items()]


def _now(status: RunStatus, thread: str) -> str:
    """Return what a thread does now, since when, and what it waits for."""
    if status["stop_reason"] is not None:
        return "ended"
    now = status["threads"][thread]
    for_s = f" for {duration(now['state_s'])}" if now["state_s"] >= 1 else ""
    return now["state"] + for_s + (f": {now['waiting_for']}" if now["waiting_for"] else "")


def state_of(status: RunStatus) -> str:
    """Return the state of a run in one word; capitals where a person should look."""
    source, age_s = status["source"], status["source"]["age_s"]
    if (reason := status["stop_reason"]) is not None:
        if reason.startswith("signal "):
            return "stopped"
        if not reason.startswith(("stop.", "learner ")):
            return "FAILED"
        return "finished" if status["counters"]["updates"] else "untrained"
    if source["alive"] is False:
        return "DEAD"
    if age_s > max(60.0, 5 * status["interval_s"]) and not source["alive"]:
        return "SILENT"
    return status["state"]


def _head(status: RunStatus) -> list[str]:
    source, process = status["source"], status["process"]
    name, age_s = f"process {process['pid']} on {process['host']}", source["age_s"]
    ago, waiting = fill("{age_s:ago}", source), status["waiting_for"]
    state = state_of(status)
    if status["stop_reason"] is not None:
        does = "resumes" if status["counters"]["updates"] else "begins anew"
        again = f"; the same command {does}" * (state == "stopped")
        text, waiting = f"{status['stop_reason']} ({ago}){again}", None
    elif state == "DEAD":
        text = f"{name} ended without a word, {ago}; run the same command again to resume"
    elif state == "SILENT":
        text = f"{name} wrote its status {ago}; is it stuck or gone?"
    elif age_s > max(60.0, 5 * status["interval_s"]):
        text = f"{name} runs, and wrote its status {ago}"
    else:
        text = f"{name}, seen {ago}"
    return [
        f"{status['name']}: {status['environment']}, agent {status['agent']}",
        _line(state, text),
        *([_line("now", waiting)] if waiting else []),
        _line("bottleneck", "{part}: {sentence}".format(**status["bottleneck"])),
    ]


def fitted(page: str, columns: int) -> str:
    """Return a page with its long lines broken between words, the rest below the text."""
    indent = " " * min(_INDENT + 2, columns // 2)
    lines = []
    for line in page.split("\n"):
        parts = textwrap.wrap(
            line, columns, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
        )
        lines += parts if len(line) > columns else [line]
    return "\n".join(lines)


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
