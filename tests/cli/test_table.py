"""`seedbed table`: as printed, by the formula, by other prices, and what was measured here."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from seedbed.cli import table
from seedbed.papers.seed_tables import TABLES
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.services.cost.price_table import tables
from seedbed.telemetry import Counters
from tests.support.pages import blocks
from tests.support.source_imports import ROOT
from tests.support.telemetry_runs import Clock, make

GIB_A_CPU = 3.75
EXPERIMENT = "name: small\nenvironment: {id: CartPole-v1}\nlearner: {network: mlp}\n"
HOURS = 1e9 / 3600


@pytest.fixture
def page(capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs the command; its text."""

    def run(*words: str) -> str:
        parser = argparse.ArgumentParser()
        table.add_arguments(parser)
        table.run(parser.parse_args(words))
        return capsys.readouterr().out

    return run


@pytest.fixture
def result(page: Any) -> Any:
    """Runs the command; its JSON."""
    return lambda *words: json.loads(page(*words, "--json"))


@pytest.fixture
def bench(tmp_path: Path) -> Path:
    """The JSON of a `seedbed bench system`: 100 + 100 + 200 microseconds of CPU a step."""
    cpu = {f"{part}_cpu_us": {"median": us} for part, us in (("env", 100), ("infer", 100))}
    case = {
        "network": "nature",
        "env_fps": {"median": 5000.0},
        **cpu,
        "train_cpu_us": {"median": 200},
        "numbers": {"environments": 64},
        "round_trip_ms_p50": {"median": 20.5},
        "round_trip_ms_p99": {"median": 81.0},
    }
    path = tmp_path / "bench.json"
    path.write_text(json.dumps({"machine": {"cores": 8}, "system_efficiency": {"cases": [case]}}))
    return path


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """A run that charges 4 CPUs; its learner uses half of one."""
    path = tmp_path / "run"
    path.mkdir()
    telemetry, _ = make(path, Clock(), Counters(env_frames=6000, seconds=25.0), cost={"cpus": 4})
    telemetry.tick()
    (path / "experiment.yaml").write_text(EXPERIMENT)
    columns = "env_frames,updates,environments,learner_cores"
    (path / "progress.csv").write_text(f"{columns}\n3000,0,4,3.0\n6000,9,6,0.5\n")
    return path


def change(run_dir: Path, **parts: Any) -> None:
    file = run_dir / "status.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **parts}))


@pytest.mark.parametrize("number", TABLES)
@pytest.mark.parametrize("more", [(), ("--actors", "spot", "--learner", "2xh100,spot")])
def test_a_page_fits_a_terminal(
    number: int, more: tuple[str, ...], page: Any, bench: Path, run_dir: Path
) -> None:
    more = () if number in (3, 13) else more
    text = page(str(number), *more, "--bench", str(bench), "--run", str(run_dir))
    assert max(map(len, text.splitlines())) <= 120
    assert f"Table {number} of the SEED paper" in text
    assert "None" not in text
    if number != 3:
        assert "bench.json: nature" in text
        assert str(run_dir)[-20:] in text


def test_misprints_are_marked_and_named(page: Any) -> None:
    for number, marked, named in (
        ("4", "$25     $26.1 *", "* SEED, Default, $: a misprint. Table 11 has $28"),
        ("5", "2.70      2.43 *", "* SEED, Large, ratio: a misprint. $899 over $369"),
        ("11", "$28     $26.1 *", "* SEED, Default, $ actors, $ learner, $: a misprint."),
    ):
        text = page(number)
        assert marked in text
        assert named in text
    assert "*" not in page("12")


def test_table_3_is_beside_every_price_table(result: Any) -> None:
    cpu, p100, tpu = result("3")["paper"]
    assert cpu["printed"] == {"dollars_an_hour": "$0.0475"}
    newest = tables()["us-central1-aug-2026"]
    n1 = newest.families["n1"]
    price = n1.cpu + GIB_A_CPU * n1.memory_gib
    assert cpu["tables"] == {
        "sep-2019": {"on-demand": 0.0475, "spot": None},
        "us-central1-aug-2026": {
            "on-demand": pytest.approx(price), "spot": pytest.approx(price * n1.spot),
        },
    }  # fmt: skip
    assert p100["tables"]["us-central1-aug-2026"] == {"on-demand": 1.46, "spot": 0.6699}
    assert tpu["tables"]["sep-2019"]["on-demand"] == 1.0, "a core, not a chip"


def test_what_if_by_hand(result: Any) -> None:
    what_if = result("1", "--actors", "n2d,spot", "--learner", "l4")["what_if"]
    newest = tables()["us-central1-aug-2026"]
    n2d = newest.families["n2d"]
    core = n2d.spot * (n2d.cpu + GIB_A_CPU * n2d.memory_gib)
    row = next(row for row in what_if["rows"] if row["cpus"] == 213)
    assert row["actors_dollars"] == pytest.approx(213 * core * HOURS / 260e3)
    learner = newest.machines["g2-standard-4"].on_demand
    assert row["learner_dollars"] == pytest.approx(learner * HOURS / 260e3)
    # There a frame costs what it costs by the paper's formula.
    even = row["even_at_frames_per_s"]
    paper = (213 * 0.0475 + 8) / 260e3
    assert (213 * core + learner) / even == pytest.approx(paper)
    assert "Nothing here knows that of yours" in " ".join(what_if["remarks"])


def test_what_if_of_actors_alone_keeps_table_3_for_what_is_sold_no_more(result: Any) -> None:
    what_if = result("12", "--actors", "spot")["what_if"]
    assert [row["learner_dollars_an_hour"] for row in what_if["rows"]] == [1.46, 1.46]
    what_if = result("4", "--actors", "spot")["what_if"]
    assert what_if["rows"][-1]["learner_dollars_an_hour"] == 2.0
    assert "no price of tpu-v3-slice: Table 3's stands there" in " ".join(what_if["remarks"])


def test_what_if_at_a_speed_of_ones_own(result: Any) -> None:
    words = ("--fps", "20000", "--actors", "64,spot", "--learner", "2xg2-standard-8,spot")
    (row,) = result("1", *words)["what_if"]["rows"]
    newest = tables()["us-central1-aug-2026"]
    n1 = newest.families["n1"]
    core = n1.spot * (n1.cpu + GIB_A_CPU * n1.memory_gib)
    actors = 64 * core * HOURS / 20e3
    learner = 2 * newest.machines["g2-standard-8"].spot * HOURS / 20e3
    assert row["actors_dollars"] == pytest.approx(actors)
    assert row["learner_dollars"] == pytest.approx(learner)
    assert row["dollars"] == pytest.approx(actors + learner)


def test_prices_of_ones_own(result: Any, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    mine = {
        "date": "2030-01-01", "source": "the invoice",
        "families": {"m1": {"cpu": 0.02, "memory_gib": 0.004, "spot": 0.5}},
        "accelerators": {"nvidia-tesla-p100": {"on_demand": 1.0, "spot": 0.4}},
    }  # fmt: skip
    file.write_text(yaml.safe_dump(mine))
    got = result("12", "--prices", str(file))
    assert got["prices"] == {"name": str(file), "date": "2030-01-01"}
    hourly = 44 * (0.02 + GIB_A_CPU * 0.004) + 1.0
    assert got["what_if"]["rows"][1]["dollars"] == pytest.approx(hourly * HOURS / 19e3)


def test_a_benchmark_is_split_by_the_cpu_time_of_its_parts(result: Any, bench: Path) -> None:
    (row,) = result("4", "--bench", str(bench))["ours"]
    assert row["actors_dollars"] == pytest.approx(2 * 0.0475 * HOURS / 5000)
    assert row["learner_dollars"] == pytest.approx(6 * 0.0475 * HOURS / 5000)
    assert row["dollars"] == pytest.approx(8 * 0.0475 * HOURS / 5000)
    # Other hardware takes the place of each part.
    words = ("--bench", str(bench), "--actors", "100", "--learner", "l4")
    (row,) = result("4", *words)["ours"]
    l4 = tables()["us-central1-aug-2026"].machines["g2-standard-4"].on_demand
    assert row["learner_dollars"] == pytest.approx(l4 * HOURS / 5000)
    assert row["actors_dollars"] == pytest.approx(100 * 0.0475 * HOURS / 5000, rel=1e-3)


def test_a_quick_benchmark_is_no_figure_to_quote(page: Any, bench: Path) -> None:
    assert "no figures to quote" not in page("4", "--bench", str(bench))
    bench.write_text(json.dumps({**json.loads(bench.read_text()), "quick": True}))
    for number in ("4", "13"):
        assert "no figures to quote" in page(number, "--bench", str(bench))


def test_a_run_pays_its_cpus(result: Any, run_dir: Path) -> None:
    (row,) = result("4", "--run", str(run_dir))["ours"]
    assert (row["environment"], row["model"], row["envs"]) == ("CartPole-v1", "ppo, mlp", 6)
    assert (row["frames_per_s"], row["learner_cpus"]) == (240.0, 0.5)
    a_cpu = 0.0475 * HOURS / row["frames_per_s"]
    assert row["learner_dollars"] == pytest.approx(row["learner_cpus"] * a_cpu)
    assert row["dollars"] == pytest.approx(4 * a_cpu)


def test_what_a_run_does_not_say_is_no_figure(page: Any, result: Any, run_dir: Path) -> None:
    charged = {"cpus": 4, "memory_gib": 8.0, "accelerators": 1, "metered": False}
    change(run_dir, charged=charged)
    (row,) = result("4", "--run", str(run_dir))["ours"]
    assert (row["learner_dollars"], row["dollars"]) == (None, None)
    assert "give --learner NAME" in page("4", "--run", str(run_dir))
    (row,) = result("4", "--run", str(run_dir), "--learner", "l4")["ours"]
    assert row["dollars"] > 0


def test_a_release_costs_what_its_meter_says(result: Any, run_dir: Path) -> None:
    charged = {"cpus": 4, "memory_gib": 8.0, "accelerators": 0, "metered": True}
    change(run_dir, charged=charged, numbers={"dollars_per_billion_frames": 12.5})
    (row,) = result("4", "--run", str(run_dir))["ours"]
    assert (row["actors_dollars"], row["learner_dollars"], row["dollars"]) == (None, None, 12.5)


def test_an_accelerator_pays_its_part_of_its_machine(result: Any, tmp_path: Path) -> None:
    case = {"agent": "r2d2", "environment": "ale", "environments": 64, "env_frames_per_s": 10_000.0}
    machine = {"kinds": ["NVIDIA H100"], "cores": 16}
    parts = {"doctor": {"machine": machine}, "end_to_end": {"r2d2/ale/float32": case}}
    file = tmp_path / "h100.json"
    file.write_text(json.dumps({"machine_type": "a3-highgpu-2g", "parts": parts}))
    words = ("1", "--bench", str(file), "--prices", "us-central1-aug-2026")
    (row,) = result(*words)["ours"]
    hour = tables()["us-central1-aug-2026"].machines["a3-highgpu-2g"].on_demand / 2
    assert row["dollars"] == pytest.approx(hour * HOURS / 10_000)
    assert row["actors_dollars"] is None


def test_both_architectures_of_a_baseline_cost_their_machine(result: Any, tmp_path: Path) -> None:
    common = {"model": "medium", "environments": 64}
    speeds = {"seed": (400.0, 30.0), "single": (100.0, 11.0)}
    cases = [
        {
            **common,
            "system": system,
            "env_fps": {"median": fps},
            "wait_ms_p50": {"median": wait_ms},
            "wait_ms_p99": {"median": 2 * wait_ms},
        }
        for system, (fps, wait_ms) in speeds.items()
    ]
    file = tmp_path / "baseline.json"
    file.write_text(json.dumps({"baseline": {"cases": cases, "cores": 2}}))
    rows = result("12", "--bench", str(file))["ours"]
    assert [
        (row["architecture"], row["round_trip_ms_p50"], row["round_trip_ms_p99"]) for row in rows
    ] == [("SEED", 30.0, 60.0), ("IMPALA", 11.0, 22.0)]
    for row in rows:
        assert row["dollars"] == pytest.approx(2 * 0.0475 * HOURS / row["frames_per_s"])
        assert row["actors_dollars"] is None, "no part was measured apart"


def test_a_run_whose_actors_have_the_network_is_impala(result: Any, run_dir: Path) -> None:
    assert result("4", "--run", str(run_dir))["ours"][0]["architecture"] == "SEED"
    text = EXPERIMENT.replace("}\nlearner: {", "}\nlearner: {inference: {location: actor}, ")
    (run_dir / "experiment.yaml").write_text(text)
    assert result("4", "--run", str(run_dir))["ours"][0]["architecture"] == "IMPALA"


def test_latencies_of_ours(page: Any, result: Any, bench: Path, run_dir: Path) -> None:
    numbers = {"round_trip_ms_p50": 3.25, "round_trip_ms_p99": 9.0}
    change(run_dir, numbers=numbers)
    rows = result("13", "--bench", str(bench), "--run", str(run_dir))["ours"]
    assert [(row["round_trip_ms_p50"], row["round_trip_ms_p99"]) for row in rows] == [
        (3.25, 9.0), (20.5, 81.0),
    ]  # fmt: skip
    old = json.loads(bench.read_text())
    for case in old["system_efficiency"]["cases"]:
        del case["round_trip_ms_p50"], case["round_trip_ms_p99"]
    bench.write_text(json.dumps(old))
    assert "-: measured before Seedbed kept it" in page("13", "--bench", str(bench))


def test_the_lines_of_the_page_run(page: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    (block,) = (
        one
        for one in blocks(ROOT / "docs/benchmarks.md")
        if one.mark == "run by tests/cli/test_table.py"
    )
    for line in block.commands:
        assert "of the SEED paper" in page(*line.split()[2:]), line
    assert len(block.commands) == 5


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("14",), "no table '14' here.*did you mean"),
        (("4", "--prices", "sep2019"), "no price table 'sep2019'.*did you mean sep-2019"),
        (("4", "--prices", "mine.yaml"), "cannot read mine.yaml as a price table"),
        (("4", "--prices", "sep-2019", "--actors", "spot"), "sep-2019 has no Spot price of n1"),
        (("4", "--actors", "n2e"), "no machine family 'n2e'.*did you mean"),
        (("4", "--actors", "64"), "the paper's rows have their own number of CPUs"),
        (("4", "--learner", "g2-standard-5"), "no accelerator or machine type 'g2-standard-5'"),
        (("4", "--learner", "a100"), "ambiguous.*nvidia-tesla-a100, nvidia-a100-80gb"),
        (("4", "--learner", "16xl4"), "has 16 x nvidia-l4, the largest has 8"),
        (("4", "--learner", "l4,cheap"), "'cheap' is no tier"),
        (("4", "--fps", "1000", "--learner", "l4"), "--actors with a number of CPUs"),
        (("4", "--fps", "-1"), "--fps -1: frames a second are a number above 0"),
        (("1", "--fps", "inf", "--actors", "64", "--learner", "l4"), "--fps inf: frames a second"),
        (("4", "--learner", "0xl4"), "--learner 0xl4: 0 of l4; name at least 1"),
        (("4", "--learner", "0xg2-standard-4"), "0 of g2-standard-4"),
        (("1", "--actors", "64,32"), "two numbers of CPUs"),
        (("1", "--actors", "n1,n2d"), "two machine families"),
        (("4", "--bench", str(ROOT)), "cannot be read: Is a directory"),
        (("13", "--learner", "l4"), "table 13 has no cost of frames, so --learner"),
        (("4", "--bench", str(ROOT / "README.md")), "README.md is no JSON of `seedbed bench"),
        (
            ("4", "--bench", str(ROOT / "docs/results/2026-11-21-bench-gossip.json")),
            "has no end-to-end speed: `seedbed bench system",
        ),
    ],
)
def test_what_is_wrong_is_named(words: tuple[str, ...], said: str, page: Any) -> None:
    with pytest.raises(SeedbedError, match=said) as caught:
        page(*words)
    assert caught.value.code is ExitCode.USAGE


def test_no_run_is_named(page: Any, run_dir: Path) -> None:
    with pytest.raises(SeedbedError, match=r"--run: cannot read status\.json") as caught:
        page("4", "--run", "runs/none")
    assert caught.value.code is ExitCode.RUN_DIRECTORY
    (run_dir / "experiment.yaml").write_text(f"{EXPERIMENT}gossip: {{replicas: 2}}\n")
    for rank in range(2):
        (run_dir / f"learner-{rank}").mkdir()
    with pytest.raises(SeedbedError, match=r"of 2 learners: name one of .*learner-0"):
        page("4", "--run", str(run_dir))
