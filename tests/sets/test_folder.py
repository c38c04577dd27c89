"""The folder of a set: a run is found by its digest, and nothing that is there is lost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from seedbed.cli.main import main
from seedbed.config import load_experiment
from seedbed.config.load import dump_experiment
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.sets.folder import Written, as_in_folder, read_members, sweep_file, write_set
from seedbed.sets.resolve import describe, resolve
from seedbed.sets.sweep import read_sweep

LR = "learner.optimizer.learning_rate"
CARTPOLE = "cartpole-vtrace"


def write(folder: Path, *settings: str, target: str | Path = CARTPOLE, **options: Any) -> Written:
    return write_set(folder, resolve(read_sweep(target, settings, options), str(target)))


def names(folder: Path) -> list[str]:
    return [member.name for member in read_members(folder)]


def begin(folder: Path, name: str, **changed: str) -> None:
    """Leave what a run has written as it began, with all its settings."""
    run = folder / "runs" / name
    run.mkdir(parents=True)
    text = dump_experiment(load_experiment(folder / f"{name}.yaml"))
    for before, after in changed.items():
        assert before in text
        text = text.replace(before, after)
    (run / "experiment.yaml").write_text(text)
    (run / "status.json").write_text("{}")


def test_the_same_command_writes_nothing_anew(tmp_path: Path) -> None:
    first = write(tmp_path, f"{LR}=1e-3,1e-2", seeds=2)
    assert len(first.added) == 4
    assert set(first.added) == set(names(tmp_path))
    file = tmp_path / f"{first.added[0]}.yaml"
    file.write_text(f"# a note of mine\n{file.read_text()}")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.yaml")}
    assert write(tmp_path, f"{LR}=1e-3,1e-2", seeds=2) == Written([], [], [])
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.yaml")} == before


def test_what_is_added_comes_last_and_leaves_the_names(tmp_path: Path) -> None:
    write(tmp_path, f"{LR}=1e-3,1e-2", name="a")
    before = names(tmp_path)
    write(tmp_path, f"{LR}=1e-4,1e-3,1e-2", name="a", seeds=2)
    assert names(tmp_path)[:2] == before
    assert len(names(tmp_path)) == 6
    size = load_experiment(CARTPOLE).learner.batch_size
    added = write(tmp_path, f"{LR}=1e-4,1e-3,1e-2", f"learner.batch_size={size},64", name="a",
                  seeds=2).added  # fmt: skip
    assert len(added) == 6
    assert names(tmp_path)[:2] == before
    assert read_members(tmp_path)[0].values == {LR: 1e-3, "learner.batch_size": size}
    # A plan tells the names of the folder, whatever the set is called now.
    wanted = resolve(read_sweep(CARTPOLE, [f"{LR}=1e-3,1e-2"], {"name": "b"}), CARTPOLE)
    assert [run.name for run in as_in_folder(tmp_path, wanted)] == before
    # Fewer of them leave what is there.
    assert len(write(tmp_path, f"{LR}=1e-3", name="a").left) == 11
    assert len(names(tmp_path)) == 12


def test_the_folder_alone_makes_the_set(tmp_path: Path) -> None:
    source, folder = tmp_path / "mine.yaml", tmp_path / "set-of-mine"
    source.write_text(dump_experiment(load_experiment(CARTPOLE)).replace(CARTPOLE, "mine"))
    write(folder, f"{LR}=1e-3,1e-2", "vtrace.discount=0.9", target=source, seeds=2)
    source.unlink()
    moved = folder.rename(tmp_path / "moved")
    wanted = resolve(read_sweep(sweep_file(moved)), "moved")
    assert [run.name for run in wanted.runs] == names(moved)
    assert {run.experiment.vtrace.discount for run in wanted.runs} == {0.9}
    assert write_set(moved, wanted) == Written([], [], [])


def test_a_later_stop_reaches_every_file_and_another_setting_is_refused(tmp_path: Path) -> None:
    write(tmp_path, f"{LR}=1e-3,1e-2", "stop.env_frames=1000")
    assert len(write(tmp_path, f"{LR}=1e-3,1e-2", "stop.env_frames=2000").changed) == 2
    assert all(x.experiment.stop.env_frames == 2000 for x in read_members(tmp_path))
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(SeedbedError) as caught:
        write(tmp_path, f"{LR}=1e-3,1e-2,1e-1", "stop.env_frames=2000", "vtrace.discount=0.9")
    assert caught.value.code == ExitCode.RESUME_REFUSED
    assert "vtrace.discount: 0.99 -> 0.9" in str(caught.value)
    words = ["sweep", "cartpole-vtrace", "--out", str(tmp_path), "--set", f"{LR}=1e-3,1e-2"]
    other = ["--set", "vtrace.discount=0.9", "--dry-run"]
    assert main([*words, *other]) == ExitCode.RESUME_REFUSED, "a dry run refuses it too"
    assert sorted(tmp_path.rglob("*")) == before


def test_a_run_whose_default_has_changed_since_stays_apart(tmp_path: Path) -> None:
    write(tmp_path, f"{LR}=1e-3,1e-2", name="a")
    first, second = names(tmp_path)
    # The older release had another default of a key that no one has named.
    begin(tmp_path, first, **{"baseline_cost: 0.5": "baseline_cost: 0.25"})
    begin(tmp_path, second)
    index = json.loads((tmp_path / "set/runs.json").read_text())
    index["defaults"] = "of an older release"
    (tmp_path / "set/runs.json").write_text(json.dumps(index))
    (added,) = write(tmp_path, f"{LR}=1e-3,1e-2", name="a").added
    assert added not in (first, second)
    assert names(tmp_path) == [first, second, added]
    assert write(tmp_path, f"{LR}=1e-3,1e-2", name="a") == Written([], [], [first])


def test_a_new_key_with_a_default_is_the_same_run(tmp_path: Path) -> None:
    write(tmp_path, f"{LR}=1e-3,1e-2")
    for name in names(tmp_path):
        begin(tmp_path, name, **{"  baseline_cost: 0.5\n": ""})  # not yet there
    index = json.loads((tmp_path / "set/runs.json").read_text())
    index["defaults"] = "of an older release"
    (tmp_path / "set/runs.json").write_text(json.dumps(index))
    assert write(tmp_path, f"{LR}=1e-3,1e-2") == Written([], [], [])


def test_a_foreign_run_is_not_taken(tmp_path: Path) -> None:
    write(tmp_path / "elsewhere", f"{LR}=1e-3", name="a")
    (name,) = names(tmp_path / "elsewhere")
    (tmp_path / "here" / "set").mkdir(parents=True)
    (tmp_path / "here/runs" / name).mkdir(parents=True)
    (added,) = write(tmp_path / "here", f"{LR}=1e-3", name="a").added
    assert added != name


@pytest.mark.parametrize("file", ["seedbed.lock", "notes.txt"])
@pytest.mark.parametrize("option", ["--dry-run", "--print"])
def test_a_run_directory_or_a_foreign_folder_takes_no_set(
    file: str, option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / file).touch()
    words = ["sweep", "cartpole-vtrace", "--seeds", "2", "--out", str(tmp_path), option]
    assert main(words) == ExitCode.RUN_DIRECTORY
    assert f"not empty (it has '{file}')" in capsys.readouterr().err
    assert [one.name for one in tmp_path.iterdir()] == [file]


def test_each_run_has_folders_of_its_own(tmp_path: Path) -> None:
    words = [f"{LR}=1e-3,1e-2", "learner.checkpoint.directory=gs://bucket/a/"]
    write(tmp_path, *words)
    found = {x.experiment.learner.checkpoint.directory for x in read_members(tmp_path)}
    assert found == {f"gs://bucket/a/{name}" for name in names(tmp_path)}
    assert write(tmp_path, *words) == Written([], [], [])


def test_a_damaged_index_is_named(tmp_path: Path) -> None:
    write(tmp_path, f"{LR}=1e-3,1e-2")
    (tmp_path / "set/runs.json").write_text('{"runs": [{}]}')
    with pytest.raises(SeedbedError, match=r"runs\.json cannot be read"):
        read_members(tmp_path)


def test_experiments_alone_are_a_set(tmp_path: Path) -> None:
    text = "name: {}\nseed: {}\nenvironment: {{id: CartPole-v1}}\nstop: {{env_frames: 10}}\n"
    for name, seed in (("b", 1), ("a", 2), ("c", 1)):
        (tmp_path / f"{name}.yaml").write_text(text.format(name, seed))
    assert names(tmp_path) == ["b", "c", "a"]
    (tmp_path / "copy.yaml").write_text(text.format("a", 2))
    with pytest.raises(SeedbedError, match=r"copy\.yaml has the name a"):
        read_members(tmp_path)


def test_lists_and_mappings_as_values_leave_experiments_that_can_be_read(tmp_path: Path) -> None:
    write(tmp_path, "learner.network_options={units: [128]},{units: [64, 64]}")
    found = read_members(tmp_path)
    units = [member.experiment.learner.network_options for member in found]
    assert units == [{"units": [128]}, {"units": [64, 64]}]
    assert describe(found[1].values) == "learner.network_options={units: [64, 64]}"
