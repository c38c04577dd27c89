"""`seedbed bench --quick` measures each part and says what it measured. No speed is asserted."""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench import main
from bench.arithmetic import mflop_a_step
from bench.child import tree
from bench.command import Command, TrainingRun
from bench.figures import beside, in_turn, series, series_of, slope
from seedbed.config import load_experiment
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from tests.bench.quick import bench, check_series, quick
from tests.support.waiting import wait_for

ROOT = Path(__file__).parents[2]


def check_actor(results: dict[str, Any]) -> None:
    result = results["actor_efficiency"]
    assert result["value"] > 0
    cases = [(case["environments"], case["transport"]) for case in result["cases"]]
    assert cases == [(2, "shared memory"), (2, "tcp")]
    for case in result["cases"]:
        for name in ("efficiency", "steps_per_s", "bare_steps_per_s", "learner_cpu_us_a_step"):
            check_series(case[name])


def check_wire(results: dict[str, Any]) -> None:
    result = results["wire_efficiency"]
    assert result["value"] > 0
    (case,) = result["cases"]
    assert (case["environments"], case["streams"]) == (2, 2)
    for name in ("efficiency", "of_alike", "messages_per_s", "bare_messages_per_s"):
        check_series(case[name])


def check_system(results: dict[str, Any]) -> None:
    (case,) = results["system_efficiency"]["cases"]
    assert case["network"] == "nature"
    for name in (
        "efficiency",
        "env_fps",
        "steps_per_s",
        "limit_steps_per_s",
        "limit_alone_steps_per_s",
        "arithmetic_steps_per_s",
        "round_trip_ms_p50",
        "round_trip_ms_p99",
    ):
        check_series(case[name])
    for part in ("env", "infer", "train"):
        check_series(case[f"{part}_cpu_us"])
    # One frame count everywhere: frames are steps times the action repeat.
    assert case["env_fps"]["median"] == pytest.approx(4 * case["steps_per_s"]["median"])
    assert results["env_fps"]["nature"] == case["env_fps"]


def check_memory(results: dict[str, Any]) -> None:
    slot = results["memory"]
    # 3 frames of the stack in the device's table; 4 + 5 rows of a frame in the unroll, at least.
    assert slot["computed_table_bytes"] >= 3 * 84 * 84
    assert slot["computed_unroll_bytes"] >= 9 * 84 * 84
    assert min(slot["rss_bytes"]) > 0


def check_replay(results: dict[str, Any]) -> None:
    result = results["replay"]
    for home in ("host", "device"):
        for name in ("insert_of_copy", "sample_of_copy", "priorities_per_s"):
            check_series(result["homes"][home][name])
    cases = result["service"]["cases"]
    assert [case["way"] for case in cases] == ["shared memory", "tcp"] * 4
    assert {case["content"] for case in cases} == {
        "sequences", "sequences, stack 1", "transitions",
    }  # fmt: skip
    for case in result["service"]["cases"]:
        check_series(case["insert_of_bare_stream"])
        check_series(case["sample_of_bare_stream"])
    (case,) = result["training"]["steps"]
    assert (case["batch_size"], case["paper_percent"]) == (16, 30.54)
    for name in ("host_ms", "prefetched_ms", "device_ms"):
        check_series(case[name])
    assert [case["at_a_time"] for case in result["training"]["insertion"]["cases"]] == [1, 100]


def check_baseline(results: dict[str, Any]) -> None:
    cases = {case["system"]: case for case in results["baseline"]["cases"]}
    assert list(cases) == ["seed", "grouped", "single"]
    for case in cases.values():
        for name in ("env_fps", "dollars", "seed_faster", "wait_ms_p50", "received_bytes"):
            check_series(case[name])
        assert len(case["policy_lag_by_step"]) == results["baseline"]["unroll_length"]
    # An action of four bytes for four frames; parameters for an unroll.
    # A window of a moment cuts some steps in two.
    assert cases["seed"]["sent_bytes"]["median"] == pytest.approx(1, rel=0.1)
    assert cases["single"]["sent_bytes"]["median"] > 1000
    # Frames of 84 x 84 bytes, one for four of the emulator, whoever acts. An unroll of the baseline
    # arrives whole, and a window of a moment has few of them.
    assert cases["seed"]["received_bytes"]["median"] == pytest.approx(84 * 84 / 4, rel=0.1)
    for case in cases.values():
        assert 84 * 84 / 8 < case["received_bytes"]["median"] < 84 * 84 / 2


def check_growth(results: dict[str, Any]) -> None:
    rows = results["growth"]["cases"]
    assert len(rows) == 6
    for row in rows:
        assert len(row["sizes"]) == len(row["costs"]) == 2
        assert all(cost > 0 for cost in row["costs"])


def check_workers(results: dict[str, Any]) -> None:
    cases = results["workers"]["cases"]
    assert [case["environment"] for case in cases][-1] == "Pong, exact"
    for case in cases:
        for name in ("workers_0", "workers_1", "workers_2", "workers_4", "gymnasium"):
            check_series(case[name])


def check_start(results: dict[str, Any]) -> None:
    for case in results["start"]["cases"]:
        check_series(case["first_update_s"])
        check_series(case["resumed_s"])
    check_series(results["start"]["actor_import_cpu_s"])


CHECKS = {
    "baseline": check_baseline,
    "replay": check_replay,
    "actor": check_actor,
    "wire": check_wire,
    "system": check_system,
    "memory": check_memory,
    "workers": check_workers,
    "growth": check_growth,
    "start": check_start,
}


@pytest.mark.slow
@pytest.mark.parametrize("part", CHECKS)
def test_quick(part: str, tmp_path: Path) -> None:
    CHECKS[part](quick(part, tmp_path))


def test_unknown_part_is_refused_by_name() -> None:
    answer = bench("wires")
    assert answer.returncode == 2
    assert "wires" in answer.stderr


def test_median_and_extremes() -> None:
    assert series([3.0, 1.0, 8.0]) == {
        "median": 3.0, "min": 1.0, "max": 8.0, "values": [3.0, 1.0, 8.0],
    }  # fmt: skip


def test_series_of_each_figure_of_the_turns() -> None:
    turns = [{"ours": 1.0, "bare": 2.0}, {"ours": 5.0, "bare": 10.0}]
    assert series_of(turns) == {"ours": series([1.0, 5.0]), "bare": series([2.0, 10.0])}


def test_sides_are_measured_in_turn_and_compared_turn_by_turn() -> None:
    order: list[str] = []

    def side(name: str, rates: list[float]) -> Callable[[], dict[str, float]]:
        def measure() -> dict[str, float]:
            order.append(name)
            return {"rate": rates.pop(0)}

        return measure

    found = in_turn(
        2,
        {"": side("ours", [3.0, 8.0]), "bare_": side("bare", [6.0, 8.0])},
        efficiency=("rate", "bare_rate"),
    )
    assert order == ["ours", "bare"] * 2
    assert found == {
        "efficiency": series([0.5, 1.0]),
        "rate": series([3.0, 8.0]),
        "bare_rate": series([6.0, 8.0]),
    }


def test_a_side_that_fails_is_left_out_of_its_turn() -> None:
    turns = iter([1, 2, 3])

    def fails_first() -> dict[str, float]:
        if (turn := next(turns)) == 1:
            raise SeedbedError(ExitCode.INTERNAL, "a busy machine")
        return {"rate": float(turn)}

    found = beside(
        3,
        {"seed": fails_first, "other": lambda: {"rate": 6.0}},
        lambda own, turn: {"faster": turn["seed"]["rate"] / own["rate"]},
    )
    assert found["seed"]["rate"] == series([2.0, 3.0])
    assert found["other"]["faster"]["values"] == [2 / 6, 3 / 6]


def test_operations_of_a_step() -> None:
    """Nature on 84 x 84 x 4, multiplied out by hand: 20 x 20, 9 x 9 and 7 x 7 outputs."""
    first = 20 * 20 * 32 * 8 * 8 * 4
    forward = first + 9 * 9 * 64 * 4 * 4 * 32 + 7 * 7 * 64 * 3 * 3 * 64 + 7 * 7 * 64 * 512
    training = (3 * forward - first) * 21 / 20
    assert mflop_a_step("nature", 4, 20) == pytest.approx(2 * (forward + training) / 1e6)


def test_slope_of_a_noisy_line() -> None:
    x = [0.0, 1.0, 2.0, 3.0]
    assert slope(x, [5 + 2 * v for v in x]) == pytest.approx(2)
    assert slope(x, [1.0, -1.0, -1.0, 1.0]) == pytest.approx(0)


@pytest.fixture
def measure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """Runs `seedbed bench` with other parts, which ends by an exception; its results."""

    def run(parts: dict[str, Any], ends: type[BaseException], said: str = "") -> dict[str, Any]:
        named = {name: main.Part(part, [], by_name=False) for name, part in parts.items()}
        monkeypatch.setattr(main, "PARTS", named)
        monkeypatch.setattr(main, "markdown", lambda _: "")
        parser = argparse.ArgumentParser()
        main.add_arguments(parser)
        file = tmp_path / "out.json"
        with pytest.raises(ends, match=said):
            main.run(parser.parse_args(["--quick", "--json", str(file)]))
        results: dict[str, Any] = json.loads(file.read_text())
        return results

    return run


def test_a_part_that_fails_loses_no_other(measure: Callable[..., dict[str, Any]]) -> None:
    def fails(_: Any) -> dict[str, Any]:
        raise SeedbedError(ExitCode.THREAD_FAILED, "the machine said no")

    parts = {"wire": fails, "memory": lambda _: {"measured": 7}}
    results = measure(parts, SeedbedError, r"not measured: wire")
    assert results["memory"] == {"measured": 7}
    assert results["failed"] == {"wire": "the machine said no"}


def test_an_interrupt_loses_nothing_that_was_measured(
    measure: Callable[..., dict[str, Any]],
) -> None:
    def interrupted(_: Any) -> dict[str, Any]:
        raise KeyboardInterrupt

    parts = {"memory": lambda _: {"measured": 7}, "wire": interrupted, "actor": interrupted}
    results = measure(parts, KeyboardInterrupt)
    assert results["memory"] == {"measured": 7}
    assert results["failed"] == {"wire": "interrupted", "actor": "interrupted"}


@pytest.mark.parametrize("file", sorted((ROOT / "docs/results").glob("*.json")), ids=str)
def test_results_of_older_versions_are_still_tables(file: Path) -> None:
    """What they lack is left out."""
    assert "|" in main.markdown(json.loads(file.read_text()))


@pytest.mark.slow
def test_a_run_that_is_held_does_nothing(tmp_path: Path) -> None:
    """Guard, learner and actors: while the parts are measured, they have no part of the cores."""
    path = "experiments/cartpole-vtrace.yaml"
    often = ("--set", "logging.interval_s=0.2")
    with TrainingRun(path, tmp_path / "run", *often) as training:
        status = training.wait_for_updates(1)
        training.wait_for_environments(total := load_experiment(ROOT / path).actor.total_envs)
        assert training.status()["numbers"]["environments"] == total > 1
        processes = tree(training.pid)
        assert status["process"]["pid"] in processes[1:]
        training.hold()
        for pid in processes:
            stat = Path(f"/proc/{pid}/stat")
            wait_for(
                lambda stat=stat: stat.read_text().rpartition(")")[2].split()[0] == "T",
                f"{pid} stops",
            )
        training.go_on()
        training.wait_for_updates(training.status()["counters"]["updates"] + 1)


def test_a_process_that_has_ended_keeps_no_command_from_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a learner's `nvidia-smi` that ends between the listing and the signal."""
    with subprocess.Popen(["true"]) as ended:
        pass
    monkeypatch.setattr("bench.command.tree", lambda pid: [ended.pid, pid])
    with Command(tmp_path / "help.log", "train", "--help") as command:
        command.hold()
    assert command.exit_code == -signal.SIGTERM


def test_a_run_that_ends_at_its_start_is_not_waited_for(tmp_path: Path) -> None:
    with (
        TrainingRun("none.yaml", tmp_path / "run") as training,
        pytest.raises(SeedbedError, match=r"(?s)ended with exit code.*none\.yaml"),
    ):
        training.status()
