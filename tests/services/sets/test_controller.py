"""The controller of a set on a cluster in memory: order, limits, ends, pauses, refusals, kills."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from seedbed.runs.evaluations import append_evaluation
from seedbed.runs.served_files import BEST_FILE
from seedbed.runtime.exit_codes import ConfigError
from seedbed.services.sets.spec import Spec
from seedbed.sets.ends import read_ends
from seedbed.sets.folder import read_members
from seedbed.sets.needs import Limits
from tests.support.set_cluster import (
    RATE,
    STEP_S,
    SetCluster,
    controller,
    spec,
    until,
)

LR = "learner.optimizer.learning_rate=1e-3,2e-3,3e-3"
SHORT = "stop.env_frames=200000"


@pytest.fixture
def cluster(tmp_path: Path) -> SetCluster:
    return SetCluster(tmp_path)


def all_are(cluster: SetCluster, *states: str) -> bool:
    return set(cluster.states().values()) <= set(states)


def test_all_runs_end_two_at_once_in_the_laptops_order(cluster: SetCluster, tmp_path: Path) -> None:
    wanted = spec(LR, SHORT, seeds=2)
    one = controller(cluster, wanted, tmp_path / "set")
    until(cluster, one, lambda: all_are(cluster, "finished"))
    assert cluster.most == 2
    applied = [call.split()[2] for call in cluster.log if call.startswith("APPLY StatefulSet")]
    names = [f"{run.name}-learner" for run in wanted.wanted.runs]
    assert applied == names, "the first seeds first"
    # What a run has left: its bill and its volume, which is the cluster's.
    assert {kind for kind, _ in cluster.objects} == {"ConfigMap"}
    assert all(name.endswith("-state") for _, name in cluster.objects)
    members = read_members(tmp_path / "set")
    assert all(member.is_finished for member in members)
    spent = sum(float(cluster.data[one.name]["dollars"]) for one in members)
    assert float(cluster.data["set"]["dollars"]) == pytest.approx(spent, rel=0.01)
    assert not sum(one.errors.values())


def test_a_run_that_waits_has_no_object(cluster: SetCluster, tmp_path: Path) -> None:
    one = controller(cluster, spec(LR, SHORT, seeds=2), tmp_path / "set")
    for _ in range(2):
        one.reconcile()
        cluster.step()
    waiting = [name for name, state in cluster.states().items() if state == "waiting"]
    assert len(waiting) == 4
    assert not [name for _, name in cluster.objects for run in waiting if name.startswith(run)]


def test_actors_and_accelerators_are_limited(cluster: SetCluster, tmp_path: Path) -> None:
    wanted = spec(LR, SHORT, limits=Limits(learners=0, actors=3), actors=2)
    one = controller(cluster, wanted, tmp_path / "set")
    until(cluster, one, lambda: all_are(cluster, "finished"))
    assert cluster.most == 1


def test_a_bound_ends_all_with_checkpoints_and_a_larger_one_goes_on(
    cluster: SetCluster, tmp_path: Path
) -> None:
    long = "stop.env_frames=2000000"
    dollars = 10 * RATE / 3600 * STEP_S
    small = spec(LR, long, budget={"dollars": dollars})
    one = controller(cluster, small, tmp_path / "set")
    until(cluster, one, lambda: bool(one.ended_by) and not one.book.up())
    assert "budget.dollars" in cluster.data["set"]["endedBy"]
    spent = float(cluster.data["set"]["dollars"])
    assert dollars <= spent <= dollars + 3 * RATE / 3600 * STEP_S, "a few rounds"
    assert all_are(cluster, "waiting")
    assert cluster.most == 1, "the second one may take more than is left"
    larger = spec(LR, long, budget={"dollars": 100.0})
    other = controller(cluster, larger, tmp_path / "set")
    until(cluster, other, lambda: all_are(cluster, "finished"))
    assert "endedBy" not in cluster.data["set"]


def test_a_run_has_a_meter_that_ends_it_without_the_controller(
    cluster: SetCluster, tmp_path: Path
) -> None:
    dollars = 10 * RATE / 3600 * STEP_S
    one = controller(
        cluster, spec(LR, "stop.env_frames=20000000", budget={"dollars": dollars}), tmp_path / "set"
    )
    for _ in range(2):  # the learner, and then its meter
        one.reconcile()
        cluster.step()
    for _ in range(40):
        cluster.step()
    assert not [pod for pod in cluster._pods() if pod.component == "learner"]


def test_an_end_by_the_bound_during_the_last_evaluation_hides_no_reason(
    cluster: SetCluster, tmp_path: Path
) -> None:
    """The run has met its stop, and its meter has not seen it: the bound comes between."""
    wanted = spec("learner.optimizer.learning_rate=1e-3", SHORT, budget={"dollars": 1.0})
    one = controller(cluster, wanted, tmp_path / "set")
    (name,) = (run.name for run in wanted.wanted.runs)
    (member,) = read_members(tmp_path / "set")
    until(cluster, one, lambda: bool(member.summary()))
    evaluated = member.summary()
    lower = spec("learner.optimizer.learning_rate=1e-3", SHORT, budget={"dollars": 1e-6})
    one = controller(cluster, lower, tmp_path / "set")
    until(cluster, one, lambda: not one.book.up())
    assert one.ended_by
    assert cluster.states() == {name: "finished"}
    assert cluster.rows[name]["reason"].startswith("stop.env_frames: 200000")
    # And where the evaluation did not come to its end.
    cut = {key: value for key, value in evaluated.items() if key != "evaluation"}
    (member.run / "summary.json").write_text(json.dumps(cut))
    one = controller(cluster, lower, tmp_path / "set")
    one.reconcile()
    told = "for its last evaluation, having met stop.env_frames: 200000"
    assert (cluster.states()[name], cluster.rows[name]["reason"]) == ("waiting", told)
    # Nor did its summary come home.
    (member.run / "summary.json").unlink()
    file = member.run / "status.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "state": "evaluating"}))
    one.reconcile()
    told = "for its last evaluation, which was cut off"
    assert (cluster.states()[name], cluster.rows[name]["reason"]) == ("waiting", told)


def test_a_person_pauses_runs_and_only_a_person_resumes_them(
    cluster: SetCluster, tmp_path: Path
) -> None:
    wanted = spec(LR, "stop.env_frames=800000")
    names = [run.name for run in wanted.wanted.runs]
    one = controller(cluster, wanted, tmp_path / "set")
    until(cluster, one, lambda: "training" in cluster.states().values())
    awake, waits = names[0], names[2]
    cluster.data["set"][f"paused.{awake}"] = "for a talk"
    cluster.data["set"][f"paused.{waits}"] = "not now"
    # Its own meter holds it, too, as `seedbed pause` lets it.
    cluster.data[awake]["paused"] = "for a talk"
    until(cluster, one, lambda: all_are(cluster, "finished", "paused"))
    one = controller(cluster, wanted, tmp_path / "set")  # an upgrade
    for _ in range(5):
        one.reconcile()
        cluster.step()
    assert cluster.states() == {awake: "paused", names[1]: "finished", waits: "paused"}
    assert cluster.rows[awake]["reason"] == "for a talk"
    cluster.away.add(f"{awake}-learner-0")
    for name in (awake, waits):
        del cluster.data["set"][f"paused.{name}"]
        cluster.data.get(name, {}).pop("paused", None)
    until(cluster, one, lambda: one.book.of(awake).phase == "awake")
    assert cluster.states()[awake] == "starting", "what it told before is of an earlier life"
    cluster.away.clear()
    until(cluster, one, lambda: all_are(cluster, "finished"))
    assert cluster.begun.count(awake) == 2


def test_a_run_ends_without_its_meter(cluster: SetCluster, tmp_path: Path) -> None:
    wanted = spec(LR, "stop.env_frames=20000000", limits=Limits(1))
    name = wanted.wanted.runs[0].name
    one = controller(cluster, wanted, tmp_path / "set")
    until(cluster, one, lambda: cluster.states()[name] == "training")
    cluster.makes_pods = lambda workload: "no node" if workload == f"{name}-cost" else ""
    cluster.data["set"]["paused"] = "for a talk"
    until(cluster, one, lambda: not one.book.up(), 40)
    assert not [pod for pod in cluster._pods() if pod.run == name]


def test_a_pause_in_the_runs_own_state_is_kept(cluster: SetCluster, tmp_path: Path) -> None:
    wanted = spec(LR, "stop.env_frames=800000")
    name = wanted.wanted.runs[0].name
    one = controller(cluster, wanted, tmp_path / "set")
    until(cluster, one, lambda: cluster.states()[name] == "training")
    cluster.data[name]["paused"] = "kubectl patch"
    until(cluster, one, lambda: all_are(cluster, "finished", "paused"))
    assert cluster.states()[name] == "paused"
    assert cluster.data["set"][f"paused.{name}"] == "kubectl patch"


def test_a_paused_set_starts_nothing_and_goes_on(cluster: SetCluster, tmp_path: Path) -> None:
    wanted = spec(LR, "stop.env_frames=800000")
    one = controller(cluster, wanted, tmp_path / "set")
    until(cluster, one, lambda: "training" in cluster.states().values())
    cluster.data["set"]["paused"] = "over the weekend"
    until(cluster, one, lambda: not one.book.up())
    for _ in range(5):
        one.reconcile()
        cluster.step()
    assert not one.book.up()
    assert "over the weekend" in cluster.data["set"]["holds"]
    del cluster.data["set"]["paused"]
    until(cluster, one, lambda: all_are(cluster, "finished"))


def test_a_lower_limit_lets_the_newest_wait(cluster: SetCluster, tmp_path: Path) -> None:
    long = "stop.env_frames=1500000"
    one = controller(cluster, spec(LR, long, limits=Limits(3)), tmp_path / "set")
    until(cluster, one, lambda: all_are(cluster, "training"))
    one = controller(cluster, spec(LR, long, limits=Limits(1)), tmp_path / "set")
    until(cluster, one, lambda: len(one.book.up()) == 1)
    assert list(one.book.up()) == [cluster.begun[0]], "the first one goes on"
    until(cluster, one, lambda: all_are(cluster, "finished"))


def test_a_failure_frees_the_slot_and_is_retried_when_asked(
    cluster: SetCluster, tmp_path: Path
) -> None:
    wanted = spec(LR, SHORT, limits=Limits(1))
    bad = wanted.wanted.runs[0].name
    cluster.fails[bad] = (10, "no such level")
    one = controller(cluster, wanted, tmp_path / "set")
    until(cluster, one, lambda: all_are(cluster, "finished", "failed"))
    assert cluster.states()[bad] == "failed"
    assert "no such level" in cluster.rows[bad]["reason"]
    (member,) = (one for one in read_members(tmp_path / "set") if one.name == bad)
    assert [end["code"] for end in read_ends(member)] == [10]
    del cluster.fails[bad]
    cluster.data["set"]["retry"] = "failed"
    until(cluster, one, lambda: all_are(cluster, "finished"))
    assert "retry" not in cluster.data["set"]
    assert [end["code"] for end in read_ends(member)] == [10], "the earlier end stays"


def test_failures_that_are_alike_hold_the_others(cluster: SetCluster, tmp_path: Path) -> None:
    wanted = spec("learner.optimizer.learning_rate=1e-3,2e-3,3e-3,4e-3,5e-3", SHORT)
    for run in wanted.wanted.runs:
        cluster.fails[run.name] = (10, "out of memory")
    one = controller(cluster, wanted, tmp_path / "set")
    until(cluster, one, lambda: not one.book.up() and bool(one.holds))
    assert "3 runs in a row" in cluster.data["set"]["holds"]
    assert len(set(cluster.begun)) <= 4
    cluster.fails.clear()
    cluster.data["set"]["retry"] = "failed"
    until(cluster, one, lambda: all_are(cluster, "finished"))


@pytest.mark.parametrize("how", ["object", "pod"])
def test_what_the_api_server_refuses_waits_and_the_others_go_on(
    cluster: SetCluster, tmp_path: Path, how: str
) -> None:
    wanted = spec(LR, SHORT)
    bad = wanted.wanted.runs[0].name
    reason = "exceeded quota: rl, requested: cpu=2, used: cpu=8, limited: cpu=8"
    full = {"is": True}

    def refuses(item: Any) -> str:
        is_learner = item["metadata"]["name"] == f"{bad}-learner"
        return reason if full["is"] and how == "object" and is_learner else ""

    def makes_pods(workload: str) -> str:
        return reason if full["is"] and how == "pod" and workload == f"{bad}-learner" else ""

    cluster.refuses, cluster.makes_pods = refuses, makes_pods
    one = controller(cluster, wanted, tmp_path / "set")
    others = [run.name for run in wanted.wanted.runs[1:]]
    until(cluster, one, lambda: all(cluster.states()[name] == "finished" for name in others))
    until(cluster, one, lambda: cluster.states()[bad] == "waiting")
    assert reason in cluster.rows[bad]["reason"]
    assert "; tried again from " in cluster.rows[bad]["reason"]
    assert not [name for _, name in cluster.objects if name.startswith(bad)], "nothing is left"
    full["is"] = False
    until(cluster, one, lambda: all_are(cluster, "finished"))


def test_pods_that_have_come_are_not_refused_later(cluster: SetCluster, tmp_path: Path) -> None:
    """Actors end before their learner, and a webhook may have been slow for one of them."""
    wanted = spec(LR, "stop.env_frames=1000000", limits=Limits(1))
    name = wanted.wanted.runs[0].name
    one = controller(cluster, wanted, tmp_path / "set")
    until(cluster, one, lambda: cluster.states()[name] == "training")
    one.reconcile()  # all pods were there once
    cluster.makes_pods = lambda workload: "webhook" if workload == f"{name}-actor" else ""
    for _ in range(5):
        one.reconcile()
        cluster.step()
    assert list(one.book.up()) == [name]


def test_a_score_that_is_no_number_hides_nothing(cluster: SetCluster, tmp_path: Path) -> None:
    wanted = spec(LR, SHORT, limits=Limits(3))
    one = controller(cluster, wanted, tmp_path / "set")
    until(cluster, one, lambda: all_are(cluster, "training"))
    name = wanted.wanted.runs[0].name
    row = {"env_frames": 1, "updates": 1, "mean": "nan", "checkpoint": "checkpoint-1"}
    append_evaluation(cluster.volume(name), row)
    until(cluster, one, lambda: all_are(cluster, "finished"))
    assert not sum(one.errors.values())


def test_a_run_without_a_template_waits_and_the_others_go_on(
    cluster: SetCluster, tmp_path: Path
) -> None:
    wanted = spec(LR, SHORT)
    bad = wanted.wanted.runs[0]

    templates = Spec.template

    def template(self: Spec, experiment: Any) -> Any:
        if experiment.name == bad.name:
            raise ConfigError("no template of the set has it")
        return templates(self, experiment)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Spec, "template", template)
        one = controller(cluster, wanted, tmp_path / "set")
        until(cluster, one, lambda: all_are(cluster, "finished", "waiting"), 60)
        assert "no template" in cluster.rows[bad.name]["reason"]


def test_the_time_between_two_controllers_is_not_counted(
    cluster: SetCluster, tmp_path: Path
) -> None:
    wanted = spec(LR, "stop.env_frames=20000000", budget={"hours": 10.0})
    one = controller(cluster, wanted, tmp_path / "set")
    for _ in range(10):
        one.reconcile()
        cluster.step()
    before = one.admission.spent([])
    assert before.hours == pytest.approx(9 * STEP_S / 3600)
    cluster.now += 3600
    one = controller(cluster, wanted, tmp_path / "set")
    one.reconcile()
    cluster.now -= 1800  # a clock that is set back
    one.reconcile()
    assert one.admission.spent([]).hours == pytest.approx(before.hours)


def test_a_learner_that_is_evicted_again_and_again_is_no_failure(
    cluster: SetCluster, tmp_path: Path
) -> None:
    wanted = spec(LR, "stop.env_frames=1000000", limits=Limits(1))
    name = wanted.wanted.runs[0].name
    one = controller(cluster, wanted, tmp_path / "set")
    until(cluster, one, lambda: cluster.states()[name] == "training")
    for _ in range(10):
        cluster.makes_pods = lambda workload: "evicted" if workload == f"{name}-learner" else ""
        one.reconcile()
        cluster.step()
        cluster.makes_pods = lambda _: ""
        one.reconcile()
        cluster.step()
        one = controller(cluster, wanted, tmp_path / "set")  # killed, and back
    cluster.restarts[name] = 2
    one.reconcile()
    until(cluster, one, lambda: all_are(cluster, "finished"))
    lost = {run: (row["failures"], row["preemptions"]) for run, row in cluster.rows.items()}
    assert lost == {run.name: (0, 0) for run in wanted.wanted.runs} | {name: (2, 10)}
    assert cluster.begun.count(name) == 11
    assert not [end for member in read_members(tmp_path / "set") for end in read_ends(member)]


def test_halving_prunes_by_the_laptops_code(cluster: SetCluster, tmp_path: Path) -> None:
    wanted = spec(LR, "stop.env_frames=900000", halving={"first": 100_000, "factor": 3})
    one = controller(cluster, wanted, tmp_path / "set")
    until(cluster, one, lambda: all_are(cluster, "finished", "pruned"))
    states = list(cluster.states().values())
    assert states.count("finished") == 1


def test_more_seeds_touch_no_awake_run(cluster: SetCluster, tmp_path: Path) -> None:
    long = "stop.env_frames=1000000"
    one = controller(cluster, spec(LR, long), tmp_path / "set")
    until(cluster, one, lambda: list(cluster.states().values()).count("training") == 2)
    awake = list(one.book.up())
    before = len(cluster.log)
    one = controller(cluster, spec(LR, long, seeds=2, limits=Limits(3)), tmp_path / "set")
    one.reconcile()
    touched = [call for call in cluster.log[before:] for run in awake
               if run in call and call.split()[0] in ("APPLY", "DELETE", "PATCH")]  # fmt: skip
    assert not touched
    until(cluster, one, lambda: all_are(cluster, "finished"))
    assert len(cluster.states()) == 6


def is_home(cluster: SetCluster, folder: Path, run: str) -> bool:
    """Whether a folder has all that a run has written at its end, and its best checkpoint."""
    home, volume = folder / "runs" / run, cluster.volume(run)
    status = json.loads((home / "status.json").read_text())
    names = {"summary.json": "summary.json", "evaluations.csv": "evaluations.csv",
             BEST_FILE: "best.safetensors"}  # fmt: skip
    same = all((home / a).read_bytes() == (volume / b).read_bytes() for a, b in names.items())
    return same and status["rows_read"] is True


def claims(cluster: SetCluster) -> set[str]:
    return {run for run, names in cluster.claims_of.items() if names}


def test_volumes_stay_unless_they_are_to_be_freed(cluster: SetCluster, tmp_path: Path) -> None:
    one = controller(cluster, spec(LR, SHORT), tmp_path / "set")
    until(cluster, one, lambda: all_are(cluster, "finished"))
    one.reconcile()
    assert claims(cluster) == set(cluster.states())
    assert not list((tmp_path / "set").rglob("*.safetensors"))


def test_volumes_of_pruned_and_finished_runs_are_freed_once_all_is_home(
    cluster: SetCluster, tmp_path: Path
) -> None:
    wanted = spec(LR, "stop.env_frames=900000", halving={"first": 100_000, "factor": 3})
    folder, freed = tmp_path / "set", []

    def notes(run: str) -> None:
        assert cluster.states()[run] in ("pruned", "finished")
        assert is_home(cluster, folder, run)
        freed.append(run)

    cluster.freed = notes
    one = controller(cluster, wanted, folder, frees=True)
    until(cluster, one, lambda: list(cluster.states().values()).count("at its rung") == 2)
    assert not freed, "a run at its rung goes on"
    until(cluster, one, lambda: all_are(cluster, "finished", "pruned") and not claims(cluster))
    one.reconcile()
    assert sorted(freed) == sorted(cluster.states())
    assert all("its volumes are freed" in row["reason"] for row in cluster.rows.values())
    before = len(cluster.log)
    for _ in range(5):
        one.reconcile()
    assert not [call for call in cluster.log[before:] if "laims" in call], "asked once"


def test_volumes_of_all_other_runs_stay(cluster: SetCluster, tmp_path: Path) -> None:
    wanted = spec("learner.optimizer.learning_rate=1e-3,2e-3,3e-3,4e-3", SHORT, limits=Limits(4))
    failed, paused, lost, finished = (run.name for run in wanted.wanted.runs)
    one = controller(cluster, wanted, tmp_path / "set", frees=True)
    cluster.loses.add(lost)
    until(cluster, one, lambda: cluster.states()[paused] == "training")
    cluster.fails[failed] = (42, "a loss of NaN")
    cluster.data["set"][f"paused.{paused}"] = "for a talk"
    ends = ("diverged", "paused", "finished")
    until(cluster, one, lambda: all_are(cluster, *ends) and finished not in claims(cluster))
    for _ in range(5):
        one.reconcile()
        cluster.step()
    assert claims(cluster) == {failed, paused, lost}
    assert "its volumes are kept: not all" in cluster.rows[lost]["reason"]


def test_a_refused_run_leaves_no_claim_that_never_had_a_volume(
    cluster: SetCluster, tmp_path: Path
) -> None:
    wanted = spec(LR, SHORT)
    bad = wanted.wanted.runs[0].name
    cluster.pending[bad] = {f"runs-{bad}-learner-0"}
    cluster.makes_pods = lambda workload: "no quota" if workload == f"{bad}-learner" else ""
    one = controller(cluster, wanted, tmp_path / "set", frees=True)
    until(cluster, one, lambda: "no quota" in cluster.rows[bad]["reason"])
    assert f"DELETE PersistentVolumeClaim runs-{bad}-learner-0" in cluster.log
    # One that has trained keeps its own, whatever refuses it later.
    cluster.makes_pods = lambda _: ""
    until(cluster, one, lambda: cluster.states()[bad] == "training")
    cluster.data["set"][f"paused.{bad}"] = "for a talk"
    until(cluster, one, lambda: cluster.states()[bad] == "paused")
    cluster.makes_pods = lambda workload: "no quota" if workload == f"{bad}-learner" else ""
    del cluster.data["set"][f"paused.{bad}"]
    cluster.data[bad].pop("paused", None)
    cluster.log.clear()
    until(cluster, one, lambda: "no quota" in cluster.rows[bad]["reason"])
    assert not [call for call in cluster.log if "laim" in call and bad in call]
    assert ("ConfigMap", f"{bad}-state") in cluster.objects, "its bill"


def test_a_finished_run_that_a_person_has_paused_keeps_its_volume(
    cluster: SetCluster, tmp_path: Path
) -> None:
    wanted = spec(LR, SHORT)
    held = wanted.wanted.runs[0].name
    cluster.data["set"]["paused"] = "not yet"
    one = controller(cluster, wanted, tmp_path / "set", frees=True)
    one.reconcile()
    del cluster.data["set"]["paused"]
    until(cluster, one, lambda: cluster.data.get(held, {}).get("finished") is not None)
    cluster.data["set"][f"paused.{held}"] = "look at it"
    until(cluster, one, lambda: all_are(cluster, "finished") and claims(cluster) == {held})
    assert "a person has paused it" in cluster.rows[held]["reason"]
    del cluster.data["set"][f"paused.{held}"]
    until(cluster, one, lambda: not claims(cluster))


def test_a_run_without_its_best_checkpoint_here_keeps_its_volume(
    cluster: SetCluster, tmp_path: Path
) -> None:
    wanted = spec(LR, SHORT)
    one = controller(cluster, wanted, tmp_path / "set")
    until(cluster, one, lambda: all_are(cluster, "finished"))
    one = controller(cluster, wanted, tmp_path / "set", frees=True)  # the option came later
    for _ in range(5):
        one.reconcile()
        cluster.step()
    assert claims(cluster) == set(cluster.states())
    assert all("no best checkpoint" in row["reason"] for row in cluster.rows.values())


def test_checkpoints_at_a_url_are_home(cluster: SetCluster, tmp_path: Path) -> None:
    wanted = spec(LR, SHORT, "learner.checkpoint.directory=gs://lab/runs")
    one = controller(cluster, wanted, tmp_path / "set")
    until(cluster, one, lambda: all_are(cluster, "finished"))
    one = controller(cluster, wanted, tmp_path / "set", frees=True)
    until(cluster, one, lambda: not claims(cluster))


def test_an_end_of_before_ends_no_run_whose_meter_comes_late(
    cluster: SetCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a later stop a run goes on; until its meter is there, its state has the earlier end."""
    one = controller(cluster, spec(LR, SHORT, limits=Limits(1)), tmp_path / "set")
    until(cluster, one, lambda: all_are(cluster, "finished"))
    begun = len(cluster.begun)
    with monkeypatch.context() as late:
        late.setattr(SetCluster, "_meter", lambda *_: None)
        later = spec(LR, "stop.env_frames=400000", limits=Limits(1))
        one = controller(cluster, later, tmp_path / "set")
        until(cluster, one, lambda: one.book.up())
        for _ in range(30):
            one.reconcile()
            cluster.step()
        assert [entry.phase for entry in one.book.up().values()] == ["awake"]
    until(cluster, one, lambda: all_are(cluster, "finished") and not one.book.up())
    assert len(cluster.begun) == 2 * begun
    ends = (tmp_path / "set/runs").glob("*/summary.json")
    assert [json.loads(end.read_text())["env_frames"] for end in ends] == [400_000] * begun


def test_a_run_whose_volume_is_freed_never_begins_anew(cluster: SetCluster, tmp_path: Path) -> None:
    one = controller(cluster, spec(LR, SHORT), tmp_path / "set", frees=True)
    until(cluster, one, lambda: all_are(cluster, "finished") and not claims(cluster))
    later = spec(LR, "stop.env_frames=400000", seeds=2)
    one = controller(cluster, later, tmp_path / "set", frees=True)
    until(cluster, one, lambda: len(cluster.states()) == 6 and not one.book.up())
    until(
        cluster, one,
        lambda: list(cluster.states().values()).count("finished") == 3 and not claims(cluster),
    )  # fmt: skip
    assert len(cluster.begun) == 6
    waiting = [row for row in cluster.rows.values() if row["state"] == "waiting"]
    assert len(waiting) == 3
    assert all("its volumes are freed" in row["reason"] for row in waiting)
