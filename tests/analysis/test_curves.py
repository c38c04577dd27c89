"""Learning curves: seeds of one experiment together, restarts, and the picture."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from seedbed.analysis.curves import CurveGroup, read_curve, read_groups
from seedbed.cli.main import main
from seedbed.config import parse_experiment
from seedbed.config.load import dump_experiment
from seedbed.runs.evaluations import append_evaluation
from seedbed.runtime.exit_codes import ExitCode
from seedbed.sets.runs import load_runs

RESULTS = Path(__file__).parents[2] / "docs" / "results"
HEADER = ["run_seconds", "env_frames", "mean_return", "updates", "run_dollars"]
LR = "learner.optimizer.learning_rate"


def write_run(path: Path, rows: list[tuple[float, int, float | None]], *overrides: str) -> Path:
    path.mkdir(parents=True)
    with (path / "progress.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(HEADER)
        writer.writerows([s, f, "" if r is None else r, f / 10, s / 100] for s, f, r in rows)
    text = "name: x\nenvironment: {id: CartPole-v1}\nlearner: {network: mlp}\n"
    experiment = parse_experiment(text, list(overrides))
    (path / "experiment.yaml").write_text(dump_experiment(experiment))
    return path


def test_frames_that_were_lost_and_played_again_count_once(tmp_path: Path) -> None:
    rows = [(0, 0, None), (60, 100, 1.0), (120, 200, 2.0), (180, 150, 1.5), (240, 300, 3.0)]
    curve = read_curve(write_run(tmp_path / "run", rows))
    assert curve.axes["frames"].tolist() == [100, 150, 300]
    assert curve.axes["minutes"].tolist() == [1, 3, 4]
    assert curve.axes["updates"].tolist() == [10, 15, 30]
    assert curve.axes["dollars"].tolist() == [0.6, 1.8, 2.4]
    assert curve.returns.tolist() == [1.0, 1.5, 3.0]


@pytest.mark.parametrize("kept", ["pong-r2d2", "pong-vtrace"])
def test_a_kept_file_with_earlier_names_still_plots(
    kept: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = write_run(tmp_path / "run", [])
    text = (RESULTS / f"{kept}.csv").read_text()
    head, *rows = csv.reader(text.splitlines())
    assert head[:3] == ["env_frames", "seconds", "return_mean"]
    (run / "progress.csv").write_text(text)
    assert main(["plot", str(run)]) == 0
    (row,) = json.loads(capsys.readouterr().out)["runs"]
    assert [row["env_frames"], row["minutes"] * 60, row["mean_return"]] == pytest.approx(
        [float(cell) for cell in rows[-1][:3]]
    )


def test_evaluations_are_points_of_the_curve(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = write_run(tmp_path / "run", [(60, 100, 1.0), (120, 200, 2.0)])
    assert len(read_curve(run).evaluations["mean"]) == 0
    for frames, mean, error in ((200, 7.0, None), (100, 5.0, 0.5), (100, 6.0, 0.25)):
        result: dict[str, object] = {
            "env_frames": frames,
            "updates": frames,
            "training_seconds": frames,
            "mean": mean,
        }
        result |= {"episodes": 9, "policy": "sample", "checkpoint": f"c-{frames}"}
        append_evaluation(run, {**result, "standard_error": error})
    table = tmp_path / "run.csv"
    assert main(["plot", str(run), "--csv", str(table)]) == 0
    assert table.read_text().splitlines()[1:] == [
        "run,1,100,10,1,0.6,1,,,",
        "run,1,100,100,1.666666667,0.6,,,6,0.25",
        "run,1,200,20,2,1.2,2,,,",
        "run,1,200,200,3.333333333,1.2,,,7,",
    ]
    assert json.loads(capsys.readouterr().out)["runs"][0]["evaluation_mean"] == 7
    points = read_curve(run).evaluations
    np.testing.assert_allclose(points["minutes"], [100 / 60, 200 / 60])
    np.testing.assert_allclose(points["standard_error"], [0.25, np.nan])
    assert main(["plot", str(run)]) == 0


def test_a_run_of_one_row_is_seen(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", [(60, 100, 1.0)])
    picture = tmp_path / "run.svg"
    assert main(["plot", str(run), "--out", str(picture), "--axis", "frames"]) == 0
    lines = [part for part in picture.read_text().split("<g id=") if part.startswith('"line2d')]
    # Of the line itself; others are ticks and the grid, without its colour.
    assert any("stroke: #1f77b4" in part and "<use " in part for part in lines)


def test_seeds_are_one_group_and_other_settings_are_another(tmp_path: Path) -> None:
    rows = [(60, 100, 0.0), (120, 300, 2.0)]
    higher = [(60, 100, 4.0), (180, 500, 4.0)]
    runs = [
        write_run(tmp_path / "a", rows, "seed=1"),
        write_run(tmp_path / "b", higher, "seed=2", "stop.updates=7"),
        write_run(tmp_path / "c", rows, "learner.batch_size=3"),
        write_run(tmp_path / "d", [(60, 100, 2.0), (120, 400, 5.0)], "seed=3"),
    ]
    (seeds, other), notes = read_groups(load_runs(tmp_path).records)
    assert (seeds.label, len(seeds.curves)) == ("bs=32", 3)
    assert (other.label, len(other.curves)) == ("bs=3", 1)
    assert notes == ["differ too, and change nothing that is learned: stop.updates"]
    own = (
        *("gossip.addresses", "learner.coordinator", "learner.replay.shards"),
        *("learner.checkpoint.directory", "learner.replay.directory", "learner.upload"),
    )
    first, *rest = load_runs(tmp_path).records
    settings = {**first.settings, **{key: f"of {key}" for key in own}}
    _, told = read_groups([replace(first, settings=settings), *rest])
    assert told == notes, "each run has its own, which nobody has chosen"
    x, mean, half = seeds.mean("frames")
    assert x.tolist() == [100, 300], "where all have been"
    assert (mean[0], mean[-1]) == pytest.approx((2.0, (2 + 4 + 4) / 3))
    # t of two degrees of freedom, from a printed table.
    assert half[0] == pytest.approx(4.302653 * np.std([0.0, 4.0, 2.0], ddof=1) / 3**0.5)
    two = CurveGroup("two", seeds.runs[:2])
    assert np.isnan(two.mean("frames")[2]).all(), "too few for one"
    assert "95 %" in seeds.legend()
    assert "too few for a band" in two.legend()
    assert other.legend() == "bs=3"
    same, _ = read_groups(load_runs(*runs[::2]).records, ["learner.batch_size"])
    assert [group.label for group in same] == ["bs=32", "bs=3"]


def test_a_mean_has_every_row_and_ends_where_a_seed_ends(tmp_path: Path) -> None:
    rows = [(n, 10 * n, float(n == 37)) for n in range(1, 61)]  # one high row
    write_run(tmp_path / "a", rows, "seed=1")
    write_run(tmp_path / "b", rows[:41], "seed=2")
    (group,), _ = read_groups(load_runs(tmp_path).records)
    x, mean, _ = group.mean("frames")
    assert x.tolist() == [10.0 * n for n in range(1, 42)]
    assert mean.max() == 1.0, "the highest row is kept"


def test_the_points_of_a_group_do_not_depend_on_another(tmp_path: Path) -> None:
    for name, rate in (("a", 1e-3), ("b", 1e-2)):
        for seed in (1, 2, 3):
            run = [(n, 10 * n, float(seed * n)) for n in range(1, 4 + seed)]
            write_run(tmp_path / name / f"{name}{seed}", run, f"{LR}={rate}", f"seed={seed}")
    for name, folder in (("one", tmp_path / "a"), ("both", tmp_path)):
        for ending in ("png", "svg"):
            words = ["--out", str(tmp_path / f"{name}.{ending}")]
            words += ["--csv", str(tmp_path / f"{name}-{ending}.csv")]
            assert main(["plot", str(folder), *words, "--axis", "updates"]) == 0
    one = (tmp_path / "one-png.csv").read_text()
    assert one == (tmp_path / "one-svg.csv").read_text()
    both = (tmp_path / "both-svg.csv").read_text()
    assert both.startswith(one), "the rows of a, first"
    assert len(list(csv.DictReader(both.splitlines()))) == 2 * (15 + 4)
    assert "mean of a1 … a3,3,,2,,,4," in one
    assert "<svg" in (tmp_path / "both.svg").read_text()


def test_runs_that_confirm_others_are_a_group_of_their_own(tmp_path: Path) -> None:
    for seed in (1, 2, 1_000_001):
        write_run(tmp_path / "runs" / f"s{seed}", [(60, 100, float(seed))], f"seed={seed}")
    records = [replace(r, confirms=r.seed > 2) for r in load_runs(tmp_path).records]
    groups, _ = read_groups(records)
    assert [group.label for group in groups] == ["s1 … s2", "s1000001 (fresh seeds)"]


def test_learners_of_a_run_are_drawn_as_its_spread(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", [(1, 1, 1.0)], "gossip.replicas=3")
    for rank in (0, 1, 2):
        write_run(run / f"learner-{rank}", [(60, 100, float(rank)), (90, 200, 5.0)])
    (group,), _ = read_groups(load_runs(run).records)
    assert [curve.returns[0] for curve in group.curves] == [0.0, 1.0, 2.0]
    assert group.legend() == "run: mean of 3 learners, one seed"
    _, mean, half = group.mean("frames")
    assert mean.tolist() == [1.0, 5.0]
    assert np.isnan(half).all(), "the unit is the run"


def test_the_command_draws_and_tells(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [write_run(tmp_path / f"s{n}", [(9, 10, n), (60, 99, 2.0)], f"seed={n}") for n in (1, 2)]
    picture, table = tmp_path / "all.png", tmp_path / "all.csv"
    assert main(["plot", *map(str, runs), "--out", str(picture), "--csv", str(table)]) == 0
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert table.read_text().splitlines()[1:3] == [
        "s1,1,10,1,0.15,0.09,1,,,",
        "s1,1,99,9.9,1,0.6,2,,,",
    ]
    shown = capsys.readouterr()
    assert [row["mean_return"] for row in json.loads(shown.out)["runs"]] == [2.0, 2.0]
    assert "s2" in shown.err
    assert main(["plot", str(runs[0]), "--json"]) == 0
    assert [point["mean_return"] for point in json.loads(capsys.readouterr().out)["points"]] == [
        1,
        2,
    ]
    assert (runs[0] / "curve.png").exists()


def test_what_cannot_be_drawn_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    empty = write_run(tmp_path / "run", [(1, 1, None)])
    assert main(["plot", str(empty)]) == 22
    assert "no episode has ended yet" in capsys.readouterr().err
    assert main(["plot", str(tmp_path / "none")]) == 22
    run = write_run(tmp_path / "good", [(1, 1, 1.0)])
    assert main(["plot", str(run), "--out", str(tmp_path / "no" / "such.png")]) == 25
    (run / "progress.csv").write_text("run_seconds,env_frames,mean_return\n1,1,1\n")
    assert main(["plot", str(run), "--axis", "dollars"]) == ExitCode.RUN_DIRECTORY
    assert "good has no dollars" in capsys.readouterr().err
    for name in ("x.nonsense", "x"):
        assert main(["plot", str(run), "--out", str(tmp_path / name)]) == 2
    assert "nonsense" in capsys.readouterr().err
