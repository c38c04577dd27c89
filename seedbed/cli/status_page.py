"""The page that `seedbed status` prints."""

from __future__ import annotations

from typing import Any

from seedbed.telemetry.progress_line import duration, money, number, si_number

_INDENT = 12


def status_page(status: dict[str, Any]) -> str:
    """The page, without a line feed at its end."""
    sections = (
        _head(status),
        _progress(status),
        _time(status),
        _learning(status),
        _cost(status),
        _safety(status),
    )
    return "\n\n".join("\n".join(lines) for lines in sections)


def _head(status: dict[str, Any]) -> list[str]:
    limit = status["bottleneck"]
    source, process = status["source"], status["process"]
    who = f"process {process['pid']} on {process['host']}"
    lines = [f"{status['name']}: {status['environment']}, agent {status['agent']}"]
    finished = status["stop_reason"] is not None
    stale = source["age_s"] > max(60.0, 5 * status["interval_s"])
    if finished:
        lines.append(_line("finished", f"{status['stop_reason']} ({_ago(source['age_s'])})"))
    elif source["alive"] is False:
        lines.append(
            _line("DEAD", f"{who} ended without a word, {_ago(source['age_s'])}; run the same ")
            + "command again to resume"
        )
    elif stale:
        lines.append(
            _line("SILENT", f"{who} wrote its status {_ago(source['age_s'])}; is it stuck or gone?")
        )
    else:
        lines.append(_line(status["state"], f"{who}, seen {_ago(source['age_s'])}"))
    if not finished and status["waiting_for"]:
        lines.append(_line("now", status["waiting_for"]))
    lines.append(_line("bottleneck", f"{limit['part']}: {limit['sentence']}"))
    return lines


def _progress(status: dict[str, Any]) -> list[str]:
    counters, numbers, stop = status["counters"], status["numbers"], status["stop"]
    frames = si_number(counters["env_frames"])
    team = status.get("learners")  # an older learner does not say it
    together = team["env_frames"] if team else counters["env_frames"]
    if team:
        frames += f" here, {si_number(together)} by all {team['count']} learners"
    if stop["env_frames"]:
        done = 100 * together / stop["env_frames"]
        frames += f" of {si_number(stop['env_frames'])} ({done:.0f} %)"
    frames += f"; {si_number(counters['trained_frames'])} trained on"
    frames += f", {si_number(counters['discarded_frames'])} discarded"
    replay: tuple[str, ...] = ()
    if numbers.get("replay_capacity"):
        held, capacity = numbers["replay_sequences"], numbers["replay_capacity"]
        replay = (
            _line(
                "replay",
                f"{held:,.0f} of {capacity:,.0f} sequences, "
                f"{numbers['replay_bytes'] / 2**30:.3g} GiB when full; "
                f"{numbers['replay_sampled']:,.0f} drawn, "
                f"{duration(numbers.get('replay_sample_age_s_p50') or 0)} old (p50)"
                + (
                    f"; {numbers['replay_healthy_shards']:.0f} of {numbers['replay_shards']:.0f} "
                    "shards"
                    if numbers["replay_shards"]
                    else ""
                ),
            ),
        )
    fps = " / ".join(number(numbers.get(f"env_fps_{window}s")) for window in (10, 60, 300))
    updates = f"{counters['updates']:,}, {number(numbers.get('updates_per_s'), 1)} a second"
    end = status["eta"]
    left = (
        f"; about {duration(end['seconds'])} to go ({end['condition']}), for "
        f"{money(end['dollars'])} more"
        if end and status["stop_reason"] is None
        else ""
    )
    return [
        "PROGRESS",
        _line("frames", frames),
        _line("speed", f"{fps} frames a second over 10 / 60 / 300 s"),
        _line("updates", updates),
        *replay,
        *_peers(status),
        _line("time", f"{duration(counters['seconds'])}{left}"),
    ]


def _peers(status: dict[str, Any]) -> list[str]:
    """What a learner exchanges with others; nothing of a single one."""
    team, numbers = status.get("learners"), status["numbers"]
    if not team or not numbers.get("gossip_peers"):
        return []
    alive = f"{numbers['gossip_peers_alive']:.0f} of {numbers['gossip_peers']:.0f} learners alive"
    said = f"rank {team['rank']}, {team['topology']}: {alive}; {numbers['gossip_mixes']:,.0f} mixes"
    if team["topology"] == "gossip":
        said += (
            f", {numbers['gossip_superseded']:,.0f} messages superseded; the furthest in-peer is "
            f"{numbers['gossip_distance']:.3g} away (2-norm)"
        )
    if numbers["gossip_bound_void"]:
        said += "; THE GRAPH HAS COME APART: nothing bounds how far they drift"
    return [_line("peers", said)]


def _time(status: dict[str, Any]) -> list[str]:
    numbers = status["numbers"]
    lines = ["WHERE THE TIME GOES (last 30 s)", f"  {'':<{_INDENT}}  busy   blocked  now"]
    for name, thread in status["threads"].items():
        now = str(thread["state"]) if status["stop_reason"] is None else "ended"
        if thread["state_s"] >= 1 and now != "ended":
            now += f" for {duration(thread['state_s'])}"
        if thread["waiting_for"] and now != "ended":
            now += f": {thread['waiting_for']}"
        lines.append(
            _line(name, f"{_percent(thread['busy']):>5}  {_percent(thread['blocked']):>7}   {now}")
        )
    lines.append(_line("wire", f"{_percent(numbers.get('wire_cpu')):>5}            of a core"))
    machine, learner = numbers.get("machine_cores"), numbers.get("learner_cores")
    cpu = f"{number(learner, 1)} cores by the learner, {number(machine, 1)} by the whole machine"
    stepping = numbers.get("actor_stepping")
    actors = f"{number(numbers.get('sessions'))} sessions, "
    actors += f"{number(numbers.get('environments'))} environments"
    if stepping is not None:
        actors += f"; {_percent(stepping)} of their time stepping"
        actors += f", {_percent(numbers.get('actor_held_up'))} held up by the full queue"
        actors += f", {_percent(numbers.get('actor_network'))} on the way"
    batch = f"{number(numbers.get('batch_envs'), 1)} environments, "
    batch += f"{_percent(numbers.get('batch_padding'))} padding; answered in "
    batch += f"{_ms(numbers.get('inference_ms_p50'))} (p50), "
    batch += f"{_ms(numbers.get('inference_ms_p99'))} (p99), of which "
    batch += f"{_ms(numbers.get('batch_wait_ms'))} for others to join and "
    batch += f"{_ms(numbers.get('inference_run_ms'))} to compute"
    if numbers.get("batch_envs") is None:
        batch = "none in the last 30 s"
    queues = f"{number(numbers.get('inference_queue_requests'))} requests for inference, "
    queues += f"{number(numbers.get('unroll_queue_columns'))} of "
    queues += f"{number(numbers.get('unroll_queue_capacity'))} columns for training"
    return [
        *lines,
        _line("CPU", cpu),
        _line("actors", actors),
        _line("batches", batch),
        _line("queues", queues),
    ]


def _learning(status: dict[str, Any]) -> list[str]:
    counters, numbers = status["counters"], status["numbers"]
    lines = ["LEARNING"]
    if numbers.get("return_episodes"):
        lines.append(
            _line(
                "return",
                f"{number(numbers['return_mean'], 2)} mean of the last "
                f"{numbers['return_episodes']} episodes, from {number(numbers['return_min'], 2)} "
                f"to {number(numbers['return_max'], 2)}; "
                f"{number(numbers['episode_steps_mean'])} steps each",
            )
        )
    else:
        lines.append(_line("return", "no episode has ended yet"))
    lines.append(
        _line(
            "episodes",
            f"{counters['episodes']:,} ended, {counters['abandoned_episodes']:,} abandoned",
        )
    )
    if counters["updates"]:
        lag = f"{number(numbers.get('policy_lag_mean'), 1)} updates on average, at most "
        lines.append(_line("policy lag", lag + number(numbers.get("policy_lag_max"), 1)))
        lines.append(_line("train step", _ms(numbers.get("train_step_ms_p50"))))
    scalars = {**status["scalars"], **status["user_scalars"]}
    if scalars:
        shown = [f"{name} {_short(value)}" for name, value in scalars.items()]
        lines += _wrapped("scalars", shown)
    if status["evaluation"]:
        shown = [
            f"{name} {_short(value) if isinstance(value, float) else value}"
            for name, value in status["evaluation"].items()
            if isinstance(value, int | float | str)
        ]
        lines += _wrapped("evaluation", shown)
    return lines


def _cost(status: dict[str, Any]) -> list[str]:
    counters, numbers = status["counters"], status["numbers"]
    cap = status["stop"]["dollars"]
    spent = f"{money(counters['dollars'])} so far" + (f" of {money(cap)}" if cap else "")
    rate = f"{money(numbers.get('dollars_per_hour'))} an hour"
    price = f"{money(numbers.get('dollars_per_billion_frames'))} a billion frames"
    return ["COST", _line("dollars", f"{spent}; {rate}, {price}")]


def _safety(status: dict[str, Any]) -> list[str]:
    checkpoint = status["checkpoint"]
    every = f"one each {duration(checkpoint['every_s'])}"
    if checkpoint["age_s"] is None:
        newest = f"none written by this process yet; {every}"
    else:
        size = number(checkpoint["bytes"] / 1e6, 1) if checkpoint["bytes"] is not None else "-"
        newest = f"{_ago(checkpoint['age_s'] + status['source']['age_s'])}, {size} MB in "
        newest += f"{number(checkpoint['seconds'], 1)} s; {every}"
    if checkpoint["failed"]:
        newest += f"; {checkpoint['failed']} FAILED"
    lines = ["SAFETY", _line("checkpoint", newest)]
    for name, key in (("discarded", "discarded_by_reason"), ("bad streams", "stream_errors")):
        if status[key]:
            lines += _wrapped(name, [f"{reason} {n:,}" for reason, n in status[key].items()])
    if status["failing_outputs"]:
        lines.append(_line("NOT WRITTEN", ", ".join(status["failing_outputs"])))
    return lines


def _line(name: str, text: str) -> str:
    return f"  {name:<{_INDENT}}{text}"


def _wrapped(name: str, items: list[str], columns: int = 100) -> list[str]:
    lines: list[str] = []
    text = ""
    for item in items:
        if text and len(text) + len(item) > columns - _INDENT - 4:
            lines.append(f"{text},")
            text = ""
        text += f", {item}" if text else item
    return [_line("" if i else name, text) for i, text in enumerate([*lines, text])]


def _ago(seconds: float) -> str:
    return "now" if seconds < 1 else f"{duration(seconds)} ago"


def _percent(fraction: float | None) -> str:
    return "-" if fraction is None else f"{100 * fraction:.0f} %"


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f} ms"


def _short(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"
