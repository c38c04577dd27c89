"""From a sweep to its runs: what is combined, what is refused, what each run is called."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest

from seedbed.config import load_experiment
from seedbed.config.load import dump_experiment, parse_experiment
from seedbed.config.shipped import shipped_sweeps
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.sets.budget import check_budget
from seedbed.sets.identity import digest
from seedbed.sets.resolve import ResolvedSet, resolve
from seedbed.sets.sweep import read_sweep

LR = "learner.optimizer.learning_rate"
CARTPOLE = "cartpole-vtrace"


def resolved(*settings: str, target: str | Path = CARTPOLE, **options: Any) -> ResolvedSet:
    return resolve(read_sweep(target, settings, options), str(target))


def refused(*settings: str, target: str | Path = CARTPOLE, **options: Any) -> str:
    with pytest.raises(SeedbedError) as caught:
        resolved(*settings, target=target, **options)
    assert caught.value.code == ExitCode.CONFIG
    return str(caught.value)


def test_every_setting_has_its_first_seed_before_any_has_its_second() -> None:
    found = resolved(f"{LR}=1e-3,1e-2", "learner.batch_size=8,16", seeds=2)
    values = [(run.seed, run.values[LR], run.values["learner.batch_size"]) for run in found.runs]
    assert values == [
        (seed, rate, size) for seed in (1, 2) for rate in (1e-3, 1e-2) for size in (8, 16)
    ]
    for run in found.runs:
        learner = run.experiment.learner
        assert (learner.optimizer.learning_rate, learner.batch_size) == (
            run.values[LR], run.values["learner.batch_size"],
        )  # fmt: skip
        assert (run.experiment.seed, run.experiment.name) == (run.seed, run.name)


def test_a_set_has_the_experiments_own_settings_beside() -> None:
    base = load_experiment(CARTPOLE)
    (run,) = resolved().runs
    assert run.experiment.model_copy(update={"name": base.name}) == base
    assert resolved("stop.env_frames=2000", seeds=[7, 3]).runs[1].experiment.seed == 3


def test_a_value_reaches_a_free_section_with_its_type() -> None:
    settings = "environment.kwargs.sizes=[64,64],[256,256]"
    found = resolved(settings, "environment.kwargs.deep={a: 1, b: true},1,1.0,true,null,'1'")
    sizes = {str(run.experiment.environment.kwargs["sizes"]) for run in found.runs}
    assert sizes == {"[64, 64]", "[256, 256]"}
    deep = [run.experiment.environment.kwargs["deep"] for run in found.runs[:6]]
    assert [repr(one) for one in deep] == ["{'a': 1, 'b': True}", "1", "1.0", "True", "None", "'1'"]
    assert len({run.name for run in found.runs}) == 12


SWEEP = """
name: small
experiment: cartpole-vtrace
set: {stop.env_frames: 1000}
axes:
  learner.optimizer.learning_rate: {log_uniform: [1.0e-4, 1.0e-2]}
  learner.batch_size: [8, 16]
  learner.unroll_length: [20, 10]
  vtrace.entropy_cost: [0.01, 0.02]
draws: {number: 3, seed: 5}
together: [[learner.batch_size, learner.unroll_length]]
exclude: [{learner.batch_size: 8, vtrace.entropy_cost: 0.02}]
seeds: [4, 5]
"""


def test_a_file_draws_excludes_and_moves_keys_together(tmp_path: Path) -> None:
    file = tmp_path / "SWEEP.yaml"
    file.write_text(SWEEP)
    found = resolved(target=file)
    assert len(found.runs) == 3 * 3 * 2
    pairs = {
        (run.values["learner.batch_size"], run.values["learner.unroll_length"])
        for run in found.runs
    }
    assert pairs == {(8, 20), (16, 10)}
    assert not any(
        run.values["learner.batch_size"] == 8 and run.values["vtrace.entropy_cost"] == 0.02
        for run in found.runs
    )
    assert {run.experiment.stop.env_frames for run in found.runs} == {1000}
    # The same draws with another axis, and the first ones of more.
    rates = [run.values[LR] for run in found.runs]
    assert [run.values[LR] for run in resolved(target=file).runs] == rates
    file.write_text(SWEEP.replace("axes:\n", "axes:\n  vtrace.discount: [0.9]\n"))
    assert [run.values[LR] for run in resolved(target=file).runs] == rates
    more = resolved(target=file, draws={"number": 4})
    assert {run.values[LR] for run in more.runs} > set(rates)
    # An option takes the place of an axis.
    assert len({run.values[LR] for run in resolved(f"{LR}=1e-3,2e-3", target=file,
                                                   draws=0).runs}) == 2  # fmt: skip


@pytest.mark.parametrize(
    ("settings", "options", "said"),
    [
        ([f"{LR}=1e-3,x"], {}, "must be a number, given \"x\""),
        ([f"{LR}=1e-3,'1e-4'"], {}, "must be a number"),
        ([f"{LR}=1e-3,-1"], {}, "more than 0"),
        ([f"{LR}=1e-3,.nan"], {}, "finite"),
        (["learner.optimizer.lr=1,2"], {}, f"did you mean {LR}"),
        (["lr=1,2"], {}, f"did you mean {LR}"),
        ([f"{LR}=1e-3,0.001"], {}, "two runs would be the same"),
        (["r2d2.discount=0.9,0.99"], {}, "has no effect: the agent is vtrace"),
        (["learner.optimizer.momentum=0,0.9"], {}, "has no effect: the optimizer is adam"),
        (["seed=1,2"], {}, "use seeds"),
        (["name=a,b"], {}, "is no axis"),
        ([f"{LR}={{uniform: [1e-3, 1e-2]}}"], {}, "draws is 0"),
        ([f"{LR}={{log_uniform: [0, 1]}}"], {"draws": 3}, "given [0, 1]"),
        ([f"{LR}=1e-3,{{uniform: [1, 2]}}"], {}, "a range within a list"),
        ([], {"set": {"environment.kwargs.a": {"uniform": [1, 2]}}}, "belongs below axes"),
        ([], {"set": {"environment.kwargs": {"a": [{"choice": [1]}]}}}, "belongs below axes"),
        (["environment.kwargs.a={b: {uniform: [1, 2]}},1"], {}, "a range within a list"),
        (["learner.batch_size=8,16"], {"draws": 3}, "no axis is a range"),
        (["learner.batch_size={int_uniform: [8, 9]}"], {"draws": 3}, "have 2 values that differ"),
        ([], {"budget": {"dolars": 1}}, "budget: dolars: unknown key: did you mean dollars?"),
        ([], {"axes": {LR: {"loguniform": [1, 2]}}, "draws": 3}, "did you mean log_uniform?"),
        ([], {"seeds": 0}, "at least 1, given 0"),
        ([], {"seeds": []}, "at least one seed"),
        ([], {"seeds": [1, 1]}, "1 twice"),
        ([], {"seeds": "five"}, "number of seeds"),
        ([], {"seeds": 1001}, "1,001 runs, and a set has at most 1,000"),
        ([], {"axes": {LR: []}}, "has no values"),
        ([], {"axes": {LR: 1e-3}}, "must be a list of values"),
        ([], {"axes": {"learner": {"batch_size": [1, 2]}}}, "must be a list of values"),
        ([], {"set": {LR: 1}, "axes": {LR: [1, 2]}}, "is below set and below axes"),
        ([], {"exclude": [{LR: 1}]}, "is no axis"),
        ([f"{LR}=1e-3,1e-2"], {"exclude": [{LR: 5}]}, "no setting has"),
        ([f"{LR}=1e-3,1e-2"], {"exclude": [{}]}, "without a key"),
        ([f"{LR}=1e-3,1e-2"], {"together": [[LR, "learner.batch_size"]]}, "is no axis"),
        ([f"{LR}=1e-3,1e-2"], {"together": [[LR]]}, "names 1, and at least two axes"),
        ([f"{LR}=1e-3,1e-2", f"{LR}=1e-4"], {}, f"--set {LR} is given twice"),
        ([f"{LR}=1,2", "learner.batch_size=1,2,3"],
         {"together": [[LR, "learner.batch_size"]]}, "as many values each"),
        ([f"{LR}=1e-3,1e-2"], {"seed": 3}, "did you mean seeds"),
        ([], {"name": "Upper"}, "1 to 23 lower-case letters"),
        ([], {"name": "n" * 24}, "has 24 letters"),
        (["stop={}"], {}, "would never end"),
        ([f"{LR}"], {}, "must have the form"),
    ],
)  # fmt: skip
def test_what_cannot_be_a_set_is_refused_before_any_run(
    settings: list[str], options: dict[str, Any], said: str
) -> None:
    assert said in refused(*settings, **options)


@pytest.mark.parametrize(
    ("settings", "budget", "said"),
    [
        (["stop.env_frames=1000"], {"frames": 999}, "less than stop.env_frames 1,000"),
        (["stop.env_frames=0", "stop.updates=9"], {"frames": 999}, "has no stop.env_frames"),
        (["stop.env_frames=0", "stop.updates=9"], {"dollars": 1}, "neither stop.dollars nor"),
        (["stop.dollars=2"], {"dollars": 1}, "$1.00 is less than stop.dollars $2.00"),
    ],
)
def test_a_bound_below_one_run_is_refused(
    settings: list[str], budget: dict[str, float], said: str
) -> None:
    found = resolved(*settings, budget=budget)
    with pytest.raises(SeedbedError) as caught:
        check_budget(found.sweep.budget, found.runs)
    assert said in str(caught.value)


@pytest.mark.parametrize("axes", ["{}", ""])
def test_a_file_with_axes_of_no_key_is_refused(axes: str, tmp_path: Path) -> None:
    file = tmp_path / "sweep.yaml"
    file.write_text(f"experiment: cartpole-vtrace\naxes: {axes}\n")
    assert "axes: has no key" in refused(target=file)


def test_a_warning_names_an_axis_that_some_runs_ignore() -> None:
    with pytest.raises(SeedbedError, match="would be the same"):
        resolved("learner.optimizer.name=adam,rmsprop", "learner.optimizer.momentum=0,0.9")
    found = resolve(
        read_sweep(
            CARTPOLE,
            ["learner.optimizer.name=adam,rmsprop", "learner.optimizer.momentum=0,0.9"],
            {"exclude": [{"learner.optimizer.name": "adam", "learner.optimizer.momentum": 0.9}]},
        ),
        CARTPOLE,
    )
    assert len(found.runs) == 3
    assert found.warnings == [
        "learner.optimizer.momentum has no effect in 1 of 3 runs: the optimizer is adam"
    ]


def test_draws_that_coincide_are_drawn_again() -> None:
    sizes = "learner.batch_size={int_uniform: [8, 12]}"
    found = [resolved(sizes, draws=number).runs for number in (3, 5)]
    values = [[run.values["learner.batch_size"] for run in runs] for runs in found]
    assert sorted(values[1]) == [8, 9, 10, 11, 12]
    assert values[0] == values[1][:3], "more draws leave the first ones as they are"


def test_names_are_short_legal_and_tell_runs_apart() -> None:
    texts = [f"'{letter} text/with [brackets] and more letters {number}'"
             for letter in "ab" for number in range(3)]  # fmt: skip
    found = resolved(
        f"environment.kwargs.text={','.join(texts)}", f"{LR}=1e-3,2.5e-4",
        "learner.batch_size=8,16", "vtrace.entropy_cost=0.01,0.5", "vtrace.discount=0.9,0.99",
        "learner.unroll_length=5,10", seeds=3,
    )  # fmt: skip
    names = [run.name for run in found.runs]
    assert len(set(names)) == len(names) == 6 * 32 * 3
    assert all(re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,33}[a-z0-9])?", name) for name in names)
    some = resolved(f"{LR}=1e-3,2.5e-4", name="rates", seeds=2)
    assert [run.name for run in some.runs] == [
        *("rates-lr-1e-3-s1", "rates-lr-2p5e-4-s1", "rates-lr-1e-3-s2", "rates-lr-2p5e-4-s2")
    ]


def test_names_and_digests_survive_an_added_axis() -> None:
    before = resolved(f"{LR}=1e-3,1e-2", name="a")
    size = before.base.learner.batch_size
    after = resolved(f"{LR}=1e-3,1e-2", f"learner.batch_size={size},64", name="a")
    assert {(run.name, run.digest) for run in before.runs} < {
        (run.name, run.digest) for run in after.runs
    }
    assert len(after.runs) == 4


def test_a_digest_is_of_what_changes_the_training() -> None:
    text = "name: a\nenvironment: {id: CartPole-v1}\nstop: {env_frames: 10}\n"
    first = digest(parse_experiment(text))
    for same in (
        "name: b\nstop: {env_frames: 20}\nenvironment: {id: CartPole-v1}\n",
        f"{text}learner: {{batch_size: {parse_experiment(text).learner.batch_size}}}\n",
        f"{text}learner: {{checkpoint: {{keep: 9}}}}\nlogging: {{interval_s: 9}}\n",
        f"{text}dqn: {{n_steps: 7}}\n",
    ):
        assert digest(parse_experiment(same)) == first, same
    resolved_text = dump_experiment(parse_experiment(text))
    assert digest(parse_experiment(resolved_text)) == first
    for other in (
        f"{text}seed: 2\n",
        f"{text}learner: {{batch_size: 3}}\n",
        text.replace("CartPole-v1", "CartPole-v0"),
        f"{text}agent: dqn\nlearner: {{unroll_length: 1}}\n",
    ):
        assert digest(parse_experiment(other)) != first, other
    # A free section keeps types apart, and no order.
    kwargs = "name: a\nenvironment: {{id: CartPole-v1, kwargs: {}}}\n"
    one, other = (digest(parse_experiment(kwargs.format(x))) for x in ("{a: 1, b: 2}",
                                                                       "{b: 2, a: 1}"))  # fmt: skip
    assert one == other
    assert digest(parse_experiment(kwargs.format("{a: 1.0, b: 2}"))) != one


def test_a_free_setting_counts_where_it_is_an_axis() -> None:
    found = resolved("stop.env_frames=1000,2000")
    assert len({run.digest for run in found.runs}) == 2


@pytest.mark.parametrize("name", shipped_sweeps())
def test_a_shipped_sweep_resolves(name: str) -> None:
    found = resolved(target=name)
    count = {
        "atari57": 57,
        "cartpole-ten-seeds": 10,
        "catch-24": 48,
        "defaults": 20,
        "football-40x3": 120,
        "gala-cartpole": 40,
        "gala-catch": 40,
        "gala-six-games": 240,
        "lab-24": 24,
        "pong-ten-seeds": 10,
    }
    assert len(found.runs) == count[name]


def test_1000_runs_are_checked_in_seconds() -> None:
    begun = time.perf_counter()
    found = resolved(f"{LR}={{log_uniform: [1e-5, 1e-2]}}", draws=100, seeds=10)
    assert len(found.runs) == 1000
    assert time.perf_counter() - begun < 60  # 3 s here; a plan that takes minutes is a defect
