"""Learning curves: seeds of one experiment together, restarts, and the picture."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from seedbed.analysis.curves import Group, read_curve, read_groups
from seedbed.cli.main import main
from seedbed.config import parse_experiment
from seedbed.config.load import dump_experiment
from seedbed.runs.evaluations import append_evaluation

RESULTS = Path(__file__).parents[2] / "docs" / "results"
HEADER = ["run_seconds", "env_frames", "mean_return"]


def write_run(path: Path, rows: list[tuple[float, int, float | None]], *overrides: str) -> Path:
    path.mkdir(parents=True)
    with (path / "progress.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(HEADER)
        writer.writerows([s, f, "" if r is None else r] for s, f, r in rows)
    text = "name: x\nenvironment: {id: CartPole-v1}\nlearner: {network: mlp}\n"
    experiment = parse_experiment(text, list(overrides))
    (path / "experiment.yaml").write_text(dump_experiment(experiment))
    return path


def test_frames_that_were_lost_and_played_again_count_once(tmp_path: Path) -> None:
    rows = [(0, 0, None), (60, 100, 1.0), (120, 200, 2.0), (180, 150, 1.5), (240, 300, 3.0)]
    curve = read_curve(write_run(tmp_path / "run", rows))
    assert curve.frames.tolist() == [100, 150, 300]
    assert curve.minutes.tolist() == [1, 3, 4]
    assert curve.returns.tolist() == [1.0, 1.5, 3.0]


@pytest.mark.parametrize("kept", ["cartpole-vtrace", "pong-r2d2", "pong-vtrace"])
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
    assert read_curve(run).evaluations.shape == (0, 4)
    for frames, mean, error in ((200, 7.0, None), (100, 5.0, 0.5), (100, 6.0, 0.25)):
        result = {"env_frames": frames, "updates": frames, "training_seconds": frames, "mean": mean}
        append_evaluation(run, {**result, "standard_error": error, "checkpoint": f"c-{frames}"})
    table = tmp_path / "run.csv"
    assert main(["plot", str(run), "--csv", str(table)]) == 0
    assert table.read_text().splitlines()[1:] == [
        "run,100,1,1,,",
        "run,100,1.6666667,,6,0.25",
        "run,200,2,2,,",
        "run,200,3.3333333,,7,",
    ]
    assert json.loads(capsys.readouterr().out)["runs"][0]["evaluation_mean"] == 7
    points = read_curve(run).evaluations
    np.testing.assert_allclose(points, [[100, 100 / 60, 6, 0.25], [200, 200 / 60, 7, np.nan]])
    assert main(["plot", str(run)]) == 0


def test_seeds_are_one_group_and_other_settings_are_another(tmp_path: Path) -> None:
    rows = [(60, 100, 0.0), (120, 300, 2.0)]
    higher = [(60, 100, 4.0), (180, 500, 4.0)]
    runs = [
        write_run(tmp_path / "a", rows, "seed=1"),
        write_run(tmp_path / "b", higher, "seed=2", "stop.updates=7"),
        write_run(tmp_path / "c", rows, "learner.batch_size=3"),
        write_run(tmp_path / "d", [(60, 100, 2.0), (120, 400, 5.0)], "seed=3"),
    ]
    seeds, other = read_groups(runs)
    assert (seeds.label, len(seeds.curves)) == ("a … d", 3)
    assert (other.label, len(other.curves)) == ("c", 1)
    x, mean, half = seeds.mean("frames")
    assert (x[0], x[-1]) == (100, 300)  # where all have been
    assert (mean[0], mean[-1]) == pytest.approx((2.0, (2 + 4 + 4) / 3))
    # t of two degrees of freedom, from a printed table.
    assert half[0] == pytest.approx(4.302653 * np.std([0.0, 4.0, 2.0], ddof=1) / 3**0.5)
    assert np.isnan(Group("two", seeds.curves[:2]).mean("frames")[2]).all(), "too few for one"


def test_learners_of_a_run_are_drawn_as_its_spread(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", [(1, 1, 1.0)], "gossip.replicas=2")
    for rank in (0, 1):
        write_run(run / f"learner-{rank}", [(60, 100, float(rank)), (90, 200, 5.0)])
    (group,) = read_groups([run])
    assert [curve.returns[0] for curve in group.curves] == [0.0, 1.0]


def test_the_command_draws_and_tells(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [write_run(tmp_path / f"s{n}", [(9, 10, n), (60, 99, 2.0)], f"seed={n}") for n in (1, 2)]
    picture, table = tmp_path / "all.png", tmp_path / "all.csv"
    assert main(["plot", *map(str, runs), "--out", str(picture), "--csv", str(table)]) == 0
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert table.read_text().splitlines()[1:3] == ["s1,10,0.15,1,,", "s1,99,1,2,,"]
    shown = capsys.readouterr()
    assert [row["mean_return"] for row in json.loads(shown.out)["runs"]] == [2.0, 2.0]
    assert "s2" in shown.err
    assert main(["plot", str(runs[0])]) == 0
    assert (runs[0] / "curve.png").exists()


def test_what_cannot_be_drawn_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    empty = write_run(tmp_path / "run", [(1, 1, None)])
    assert main(["plot", str(empty)]) == 22
    assert "no episode has ended yet" in capsys.readouterr().err
    assert main(["plot", str(tmp_path / "none")]) == 22
    run = write_run(tmp_path / "good", [(1, 1, 1.0)])
    assert main(["plot", str(run), "--out", str(tmp_path / "no" / "such.png")]) == 25
    for name in ("x.nonsense", "x"):
        assert main(["plot", str(run), "--out", str(tmp_path / name)]) == 2
    assert "nonsense" in capsys.readouterr().err
