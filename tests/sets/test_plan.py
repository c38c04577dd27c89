"""What a set still takes, told before it starts."""

from __future__ import annotations

import json
from pathlib import Path

from seedbed.config.load import dump_experiment
from seedbed.sets.folder import write_set
from seedbed.sets.plan import to_go
from seedbed.sets.resolve import resolve
from seedbed.sets.sweep import read_sweep


def test_time_and_dollars_are_what_the_runs_of_the_set_have_measured(tmp_path: Path) -> None:
    settings = ["stop.env_frames=1000", "stop.mean_return=400", "evaluation.at_end=false"]
    wanted = resolve(read_sweep("cartpole-vtrace", settings, {"seeds": 3}), "cartpole-vtrace")
    write_set(tmp_path, wanted)
    assert to_go(tmp_path, wanted.runs, 1) == (
        "to go: 3 runs, 3.00K frames; time and dollars are measured by the first one that trains"
    )
    for number, (run, frames) in enumerate(zip(wanted.runs, (600, 400), strict=False)):
        path = tmp_path / "runs" / run.name
        path.mkdir(parents=True)
        counters = {"env_frames": frames, "seconds": 10.0, "dollars": frames / 100}
        (path / "status.json").write_text(json.dumps({"counters": counters}))
        (path / "experiment.yaml").write_text(dump_experiment(run.experiment))
        if number == 0:  # at its score, so that it takes no more frames
            (path / "summary.json").write_text(json.dumps({"updates": 9}))
    # 1,000 frames in 20 s for $10; 600 and 1,000 are to go, two runs at once.
    assert to_go(tmp_path, wanted.runs, 2) == (
        "to go: 2 runs, 1.60K frames, 16 s and $16.00 at 50 frames/s a run"
    )
    # Twice the frames: the first one is not finished any more.
    more = resolve(read_sweep("cartpole-vtrace", ["stop.env_frames=2000", *settings[1:]],
                              {"seeds": 3}), "cartpole-vtrace")  # fmt: skip
    assert to_go(tmp_path, more.runs, 1) == (
        "to go: 3 runs, 5.00K frames, 2 min and $50.00 at 50 frames/s a run"
    )
    endless = ["stop.env_frames=0", "stop.seconds=5", *settings[1:]]
    sweep = resolve(read_sweep("cartpole-vtrace", endless), "cartpole-vtrace")
    assert "not every run has stop.env_frames" in to_go(tmp_path, sweep.runs, 1)
