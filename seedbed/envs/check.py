"""Checks and measurements of an environment, for `seedbed check env`.

The environment is stepped as an actor steps it: several in one process, in another thread than the
main one (with `actor.workers` in the main one, as a worker does).
"""

import os
import re
import threading
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.utils.env_checker import check_env
from numpy.typing import NDArray

from seedbed.config.environment import Actor, Environment
from seedbed.envs import watchdog
from seedbed.envs.advice import advise
from seedbed.envs.check_groups import Groups
from seedbed.envs.check_report import Report
from seedbed.envs.factory import make_environment
from seedbed.envs.failures import ENDED, in_words, raise_ours
from seedbed.envs.gymnasium_env import GymnasiumVectorEnv, draw_without_screen
from seedbed.envs.measure import Measured, measure
from seedbed.packed import random_actions
from seedbed.rpc.step_codec import Step, write_actor_message
from seedbed.runtime import calls
from seedbed.runtime.calls import CHECKER, CLOSE, CONSTRUCTION, Call
from seedbed.runtime.clock import monotonic
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.runtime.text import counted
from seedbed.spec import TimeStep, VectorEnv

REPRODUCED_STEPS = 50
_LONG_S = 5.0  # of a stage without a line
_DARK = 1.5 / 255  # of what networks see
_MANY = 3  # failures that are no accident
_LONGEST = 500  # characters of a line of Gymnasium's
# Of its checker: what wrappers are there, and bounds, on which no agent here depends.
_NOT_OURS = ("different from the unwrapped", "probably too", "we recommend using a symmetric")
Progress = Callable[[str], None]


def check_environment(
    environment: Environment,
    num_envs: int,
    seconds: float,
    report_progress: Progress = lambda _: None,
    actor: Actor | None = None,
    needs_lives: bool = False,
    on_late: Callable[[Report], None] = lambda _: None,
) -> Report:
    """Make an environment, compare two runs of one seed, measure it, and give advice.

    Args:
        environment: the experiment's section.
        num_envs: environments that step together.
        seconds: duration of the measurement, for each number of threads.
        report_progress: receives a line for each stage.
        actor: the experiment's section, for its limits; with workers the environment is stepped in
            this thread. None: the defaults.
        needs_lives: as of `make_vector_env`.
        on_late: called with the report so far when a call takes longer than the limit; then the
            process ends.
    """
    report = Report(environment.id)
    groups = Groups(environment, actor or Actor(), needs_lives)

    def late(sentence: str, call: Call) -> ExitCode | None:
        if call.kind == CLOSE and not groups.actor.workers:
            if groups.leave():
                report.warn("hangs", sentence)
            return None
        # An actor neither waits for `close` nor draws.
        is_needed = call.kind != CLOSE and not report.is_whole
        report.add("hangs", sentence, "failed" if is_needed else "warning")
        if not report.is_whole:
            report.add("hangs", "the rest has not been tried", "failed")
        on_late(report)
        return ExitCode.OK if report.ok else ExitCode.ENVIRONMENT

    def check() -> None:
        try:
            _check(report, groups, num_envs, seconds, report_progress)
        except BaseException as error:
            failed.append(error)

    failed: list[BaseException] = []
    before, watchdog.on_late = watchdog.on_late, late
    try:
        if groups.actor.workers:
            check()
        else:
            thread = threading.Thread(target=check, name="environments", daemon=True)
            thread.start()
            thread.join()
    finally:
        watchdog.on_late = before
    if failed:
        raise failed[0]
    return report


def _check(
    report: Report, groups: Groups, num_envs: int, seconds: float, report_progress: Progress
) -> None:
    environment = groups.environment
    group: VectorEnv | None = None
    report_progress(f"making {counted(num_envs, 'environment')} of {environment.id}")
    try:
        with groups.closing(groups.make(min(num_envs, 2))) as first:
            _check_spaces(report, first)
            has_checker = isinstance(first, GymnasiumVectorEnv)
            draws = isinstance(first, GymnasiumVectorEnv) and first.draws
    except SeedbedError as error:
        report.add("make", str(error), "failed")
        return
    stage = "step"
    try:
        if has_checker:
            report_progress("asking Gymnasium's checker")
            _check_api(report, groups)
        report_progress("comparing runs of the same and of other seeds")
        reset_s, played = _check_seeds(report, groups, min(num_envs, 4))
        if isinstance(first, GymnasiumVectorEnv):
            _check_range(report, first, played)
        # After all others, because `close` of one may end a library for its process.
        before = _resident_bytes()
        stage = "make"
        group = groups.make(num_envs)
        stage = "step"
        if num_envs * reset_s >= _LONG_S:
            report_progress(
                f"resetting {counted(num_envs, 'environment')}, about {num_envs * reset_s:.0f} s: "
                "--num-envs takes fewer"
            )
        report_progress(f"stepping for {seconds:g} s")
        start = group.reset()
        memory = max(0, _resident_bytes() - before) / num_envs
        measured = measure(group, start, seconds)
        _check_steps(report, measured)
        _check_failures(report, groups)
        _check_bounds(report, measured, environment)
        speedup = None
        fast = environment.id.startswith("atari:") and environment.atari.preprocessing == "fast"
        if fast and len(os.sched_getaffinity(0)) >= 2:
            report_progress(f"stepping with two threads for {seconds:g} s")
            speedup = _two_threads(report, groups, num_envs, seconds, measured)
        _add_speed(report, measured, start, memory, speedup)
        report.is_whole = True
        if draws and not environment.family:  # those of a family always have pictures
            _check_render(report, groups)
    except SeedbedError as error:
        report.add(stage, str(error), "failed")
    finally:
        if group is not None:
            groups.close(group)


def _check_spaces(report: Report, group: VectorEnv) -> None:
    report.spec = spec = group.spec
    sizes = f"{spec.action}, {counted(spec.action_repeat, 'frame')} a step"
    report.add("spaces", f"observation {spec.observation}, {sizes}")
    if isinstance(group, GymnasiumVectorEnv):
        for line in group.seen:
            report.add("sees", line)
        for line in group.warnings:
            report.warn("spaces", line)


def _check_api(report: Report, groups: Groups) -> None:
    """Ask Gymnasium's own checker. What it finds stops no actor, and is a warning."""
    record = calls.PROCESS.record()
    watch = watchdog.Watchdog(groups.environment.id, groups.actor.environment_timeout_s, record)
    lines = dict[str, None]()  # each once
    try:
        with warnings.catch_warnings(record=True) as caught, record:
            warnings.simplefilter("always")
            record.begin(CONSTRUCTION, 0)
            made = make_environment(groups.environment)
            groups.kept.append(made)
            record.begin(CHECKER, 0)
            try:
                check_env(made, skip_render_check=True)
            except SystemExit as error:
                report.add("API", in_words(error), "failed")
            except BaseException as error:
                raise_ours(error)
                lines[_api_words(error)] = None
        for warning in caught:
            text = _plain(str(warning.message))
            if "gymnasium" in warning.filename and not any(w in text for w in _NOT_OURS):
                lines[text] = None
    finally:
        watch.close()
        calls.PROCESS.release(record)
    for line in lines:
        report.warn("API", line)


def _api_words(error: BaseException) -> str:
    """Return what failed in Gymnasium's checker, with its line where an assertion has no words."""
    if not isinstance(error, AssertionError):
        return _plain(in_words(error))
    if text := _plain(str(error)):
        return text
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{in_words(error)} in `{last.line}`"


def _plain(text: str) -> str:
    """Return a text without colours, in one line."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", text).removeprefix("WARN: ")
    return " ".join(text.split())[:_LONGEST]


def _check_steps(report: Report, measured: Measured) -> None:
    fits = "finished steps, then first steps with reward 0, as the protocol needs them"
    report.add("rows", measured.broken or fits, "failed" if measured.broken else "ok")
    if ended := measured.terminated + measured.truncated:
        detail = f"{measured.terminated} terminated, {measured.truncated} truncated"
        detail = f"{ended} ended in {measured.steps} steps ({detail}), {measured.lives} lives lost"
        report.add("episodes", detail)
    else:
        detail = f"none ended within {measured.steps} steps of random play: long episodes, or is a "
        report.warn("episodes", detail + "time limit missing? --seconds looks for longer")
    if not measured.changed:
        report.warn("observations", "no observation differed from the one before")
    spread = f"from {measured.lowest:g} to {measured.highest:g} in a step, finite"
    if measured.lowest == measured.highest == 0:
        report.warn("rewards", "all 0 in random play: a sparse reward, or none at all?")
    elif max(-measured.lowest, measured.highest) > 1:
        report.add("rewards", spread + "; consider vtrace.reward_clip or vtrace.reward_scale")
    else:
        report.add("rewards", spread)


def _check_failures(report: Report, groups: Groups) -> None:
    """Fail where an actor would give up: it steps longer than this check."""
    failures = sum(sum(group.failures.values()) for group in groups.made)
    if not failures:
        return
    last = next((text for g in groups.made[::-1] if (text := getattr(g, "last_failure", ""))), "")
    times = "once" if failures == 1 else f"{failures} times"
    detail = f"an environment failed {times} and was made anew, at last: {last}"
    most = groups.actor.max_environment_failures
    if failures >= min(most, _MANY) or ENDED in last:
        detail += f"; an actor gives up after {most} within ten minutes"
        report.add("failures", detail, "failed")
    else:
        report.warn("failures", detail)


def _check_bounds(report: Report, measured: Measured, environment: Environment) -> None:
    reward = max(-measured.lowest, measured.highest)
    for name, largest in (("reward", reward), ("observation", measured.largest)):
        bound = getattr(environment.bounds, name)
        if largest > bound:
            detail = f"a {name} of {largest:g}: the learner refuses numbers beyond {bound:g}; "
            detail = f"{detail}scale them, or raise environment.max_abs_{name}"
            report.add("bounds", detail, "failed")


def _check_range(report: Report, group: GymnasiumVectorEnv, played: NDArray[Any]) -> None:
    """Tell what networks see of the pictures that came; `played` is [steps, environments, ...]."""
    for name, low, high in group.sees(played):
        detail = f"{name}: {low:.3g} to {high:.3g} came in {len(played) - 1} steps of random play"
        if high <= _DARK and low >= -_DARK:
            report.warn("came", f"{detail}: all dark; are its numbers those of its space?")
        else:
            report.add("came", detail)


def _check_render(report: Report, groups: Groups) -> None:
    """Draw one picture where the environment can: training does not, and a video does."""
    environment = groups.environment
    kwargs = {**environment.kwargs, "render_mode": "rgb_array"}
    drawn = environment.model_copy(update={"kwargs": kwargs})
    draw_without_screen()
    try:
        with groups.closing(groups.make(1, environment=drawn)) as group:
            assert isinstance(group, GymnasiumVectorEnv)
            group.reset()
            height, width, _ = group.rgb(0).shape
            rate = group.frames_per_second
    except SeedbedError as error:
        report.warn("render", f"{error}: a video fails, and training does not")
    else:
        report.add("render", f"{width} x {height}, {rate:g} pictures a second in a video")


def _check_seeds(report: Report, groups: Groups, num_envs: int) -> tuple[float, NDArray[Any]]:
    """Compare runs; return the seconds of the reset of one environment, and observations."""
    runs, resets_s = zip(
        *(_play(groups, num_envs, run_seed) for run_seed in (1, 1, 2)), strict=True
    )
    steps = len(runs[0]) - 1
    parted = next((t for t in range(steps + 1) if not _same(runs[0][t], runs[1][t])), None)
    if parted is None:
        report.add("seeds", f"the same seeds gave the same {steps} steps")
    else:
        report.warn(
            "seeds",
            f"the same seeds gave other results from step {parted} on: runs cannot be repeated; "
            "does reset(seed=...) pass its seed on (super().reset(seed=seed), self.np_random)?",
        )
    if all(_same(a, b) for a, b in zip(runs[0], runs[2], strict=True)):
        detail = (
            f"other seeds gave the same {steps} steps: if that continues, all environments play "
        )
        report.warn("other seeds", detail + "alike until their actions differ")
    played = np.stack([time_step.observation for time_step in runs[0]])
    return float(np.median(resets_s)) / num_envs, played


def _play(groups: Groups, num_envs: int, run_seed: int) -> tuple[list[TimeStep], float]:
    """Return the steps of a short run, and the seconds of its first reset."""
    with groups.closing(groups.make(num_envs, run_seed=run_seed)) as group:
        random = np.random.default_rng(0)
        begun = monotonic()
        time_steps = [group.reset()]
        reset_s = monotonic() - begun
        for _ in range(REPRODUCED_STEPS):
            action = random_actions(group.spec, time_steps[-1].observation, random)
            time_steps.append(group.step(action))
        return time_steps, reset_s


def _same(one: TimeStep, other: TimeStep) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def _two_threads(
    report: Report, groups: Groups, num_envs: int, seconds: float, one: Measured
) -> float | None:
    """Return steps/s with two threads divided by steps/s with one; None if unknown."""
    with groups.closing(groups.make(num_envs, threads=2)) as group:
        two = measure(group, group.reset(), seconds, threads=2)
    report.speed["steps_per_second_2_threads"] = two.rate
    return None if one.crowded or two.crowded else two.rate / one.rate


def _add_speed(
    report: Report, measured: Measured, time_step: TimeStep, memory: float, speedup: float | None
) -> None:
    num_envs = len(time_step.reward)
    arrays = (time_step.observation.tobytes(), time_step.reward.tobytes(), bytes(num_envs))
    message_bytes = len(write_actor_message(Step(1 << 20, *arrays, 1.0, 1.0)))
    step_s, cpu_s = 1 / measured.rate, measured.cpu_s / measured.steps
    if measured.crowded:
        report.warn(
            "machine",
            f"busy with other processes: the threads waited {measured.queued_s:.1f} s of "
            f"{measured.wall_s:.1f} s for a CPU. The speeds exclude that time, and are rough",
        )
    report.speed.update(
        steps_per_second=measured.rate,
        cpu_seconds_per_step=cpu_s,
        cpus_used=cpu_s / step_s,
        message_bytes=message_bytes,
        megabytes_per_second=message_bytes / num_envs * measured.rate / 1e6,
        mib_per_environment=memory / 2**20,
    )
    if cpu_s > 1.3 * step_s and not report.environment.startswith("atari:"):
        report.warn(
            "threads",
            f"one thread of the actor kept {cpu_s / step_s:.1f} CPUs busy: the environment has "
            "threads of its own; set OMP_NUM_THREADS=1 or give the pod as many CPUs",
        )
    report.advice = advise(step_s, cpu_s, speedup, memory)


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
