"""A cluster in memory for the controller of a set: meters, learners and actors as they behave.

A call can show pods of an earlier time, or refuse.
"""

from __future__ import annotations

import copy
import gzip
import hashlib
import json
import shutil
from base64 import b64decode
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

from seedbed.config import Experiment
from seedbed.config.load import dump_experiment, parse_experiment
from seedbed.runs.evaluations import append_evaluation
from seedbed.runs.served_files import BEST_FILE
from seedbed.services.cost.meter import STRAGGLER_TIMEOUT_S
from seedbed.services.sets.api import Pod, Refused
from seedbed.services.sets.controller import SetController
from seedbed.services.sets.spec import Spec
from seedbed.sets.needs import Limits
from seedbed.sets.resolve import resolve
from seedbed.sets.run_objects import PLACEHOLDER, shape_of
from seedbed.sets.sweep import read_sweep
from seedbed.telemetry.counters import Counters

STEP_S = 5.0  # of one round
FRAMES_A_STEP = 50_000
RATE = 3.6  # dollars an hour of an awake run: a tenth of a cent a second


def _labels(run: str, component: str) -> dict[str, str]:
    keys = {"instance": run, "component": component, "name": "seedbed"}
    return {f"app.kubernetes.io/{key}": value for key, value in keys.items()}


def _workload(kind: str, component: str, replicas: int, args: list[str]) -> dict[str, Any]:
    labels = _labels(PLACEHOLDER, component)
    container = {"name": component, "args": args, "resources": {}}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    return {
        "kind": kind,
        "metadata": {"name": f"{PLACEHOLDER}-{component}", "labels": labels},
        "spec": {"replicas": replicas, "template": template},
    }


def template(actors: int = 2, learners: int = 1) -> list[dict[str, Any]]:
    """Objects of a run, as few as there may be."""
    urls = [
        f"--learner=http://{PLACEHOLDER}-learner-{rank}.{PLACEHOLDER}-learner:9090/status"
        for rank in range(learners)
    ]
    meter = [*urls, "--budget=0", "--pending-s=3600", "--goal=x"]
    text = f"gossip: {{replicas: {learners}}}\n"
    maps = [
        {
            "kind": "ConfigMap",
            "metadata": {"name": f"{PLACEHOLDER}-{what}", "labels": _labels(PLACEHOLDER, what)},
            **({"data": {"experiment.yaml": text}} if what == "experiment" else {}),
        }
        for what in ("experiment", "state")
    ]
    return [
        *maps,
        _workload("StatefulSet", "learner", learners, []),
        _workload("Deployment", "actor", actors, []),
        _workload("Deployment", "cost", 1, meter),
    ]


def spec(
    *settings: str, seeds: int = 1, limits: Limits | None = None, actors: int = 2, **options: Any
) -> Spec:
    """A set of CartPoles."""
    wanted = resolve(
        read_sweep("cartpole-vtrace", ["stop.mean_return=null", *settings],
                   {"seeds": seeds, **options}),
        "a sweep",
    )  # fmt: skip
    shapes = {
        shape_of(run.experiment): template(actors, run.experiment.gossip.replicas)
        for run in wanted.runs
    }
    return Spec(wanted, limits or Limits(learners=2), shapes)


class SetCluster:
    """The cluster, with the calls that `SetApi` has.

    Attributes:
        objects: Every object by kind and name.
        data: Data of the runs' states and of the set's state, by name of the ConfigMap.
        calls: Calls so far.
        watch: Takes each call before it is done, and one that changes something after it, too.
        refuses: Returns why an object is refused; "" takes it.
        makes_pods: Returns why a pod, or those of a workload, are not made; "" makes them.
        fails: Runs whose learner ends with an exit code and a cause.
        stale_s: Age of the view of pods.
        begun: Names of the runs in the order in which their first learners have begun.
        most: Most learners at the same time.
        now: Unix time, which may jump.
        clock: Monotonic time.
        claims_of: Names of the volumes' claims, by run.
        pending: Names of claims that have no volume, by run.
        freed: Takes the name of a run whose claim is about to be deleted.
        restarts: Restarts of the present pod of a learner, by run.
        loses: Runs whose learners' files do not come home to the end.
        score: Mean return of the evaluation of a run's first learner; each other has one more.
        away: Pods of learners that neither train nor answer.
        frames_to_score: Frames at which a run ends at a score; 0 is not before its stop.env_frames.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.objects: dict[tuple[str, str], dict[str, Any]] = {}
        self.data: dict[str, dict[str, str]] = {"set": {}}
        self.volumes = folder / "volumes"
        self.calls = 0
        self.log: list[str] = []
        self.watch: Callable[[str], None] = lambda _: None
        self.refuses: Callable[[Mapping[str, Any]], str] = lambda _: ""
        self.makes_pods: Callable[[str], str] = lambda _: ""
        self.fails: dict[str, tuple[int, str]] = {}
        self.stale_s = 0.0
        self.begun: list[str] = []
        self.most = 0
        self.now, self.clock = 1_000_000.0, 0.0
        self.runs_text = ""
        self.claims_of: dict[str, set[str]] = {}
        self.pending: dict[str, set[str]] = {}
        self.freed: Callable[[str], None] = lambda _: None
        self.loses: set[str] = set()
        self.score: Callable[[Experiment], float] = lambda _: 100.0
        self.away: set[str] = set()
        self.frames_to_score: Callable[[str], int] = lambda _: 0
        self._views: list[tuple[float, list[Pod]]] = []
        self._events: list[dict[str, Any]] = []
        self._saves: set[Path] = set()
        self._waited: dict[str, float] = {}
        self._bills: dict[str, float] = {}
        self.restarts: dict[str, int] = {}
        self._learners: dict[str, str] = {}  # when the learner's pod was made

    def copied(self, folder: Path) -> SetCluster:
        """The same cluster at the same moment, with its volumes in another folder."""
        found = copy.deepcopy(self)
        found.folder, found.volumes, found.watch = folder, folder / "volumes", lambda _: None
        found._saves = {found.volumes / one.relative_to(self.volumes) for one in self._saves}
        shutil.copytree(self.folder, folder)
        return found

    # --- the calls ---------------------------------------------------------------------------

    def _call(self, what: str, do: Callable[[], Any]) -> Any:
        self.calls += 1
        self.log.append(what)
        self.watch(f"before {what}")
        result = do()
        if what.startswith(("APPLY", "PATCH", "DELETE")):
            self.watch(f"after {what}")
        return result

    def state(self) -> dict[str, str]:
        return dict(self._call("GET set", lambda: dict(self.data["set"])))

    def save_state(self, data: Mapping[str, str | None], runs: str) -> None:
        def save() -> None:
            _merge(self.data["set"], data)
            self.runs_text = runs

        self._call("PATCH set", save)

    def owner(self) -> dict[str, Any]:
        return {"kind": "ConfigMap", "name": "a-set"}

    def run_state(self, run: str) -> dict[str, str] | None:
        def read() -> dict[str, str] | None:
            found = self.data.get(run)
            return None if found is None else dict(found)

        found: dict[str, str] | None = self._call(f"GET {run}-state", read)
        return found

    def save_run_state(self, run: str, data: Mapping[str, str | None]) -> None:
        def save() -> None:
            if run in self.data:
                _merge(self.data[run], data)

        self._call(f"PATCH {run}-state", save)

    def apply(self, item: Mapping[str, Any], dry_run: bool = False) -> None:
        def make() -> None:
            if reason := self.refuses(item):
                raise Refused(reason)
            if dry_run:
                return
            key = item["kind"], item["metadata"]["name"]
            self.objects[key] = json.loads(json.dumps(item))
            if key[1].endswith("-state"):
                self.data.setdefault(key[1].removesuffix("-state"), {})

        verb = "TRY" if dry_run else "APPLY"
        self._call(f"{verb} {item['kind']} {item['metadata']['name']}", make)

    def delete(self, kind: str, name: str) -> None:
        def remove() -> None:
            self.objects.pop((kind, name), None)
            run, _, rank = name.removeprefix("runs-").rpartition("-learner-")
            if kind == "PersistentVolumeClaim" and name in self.claims_of.get(run, ()):
                self.freed(run)
                self.claims_of[run].discard(name)
                shutil.rmtree(self.volume(run, int(rank)))

        self._call(f"DELETE {kind} {name}", remove)

    def claims(self, run: str, without_volume: bool = False) -> list[str]:
        there = self.pending if without_volume else self.claims_of
        found: list[str] = self._call(f"LIST claims of {run}", lambda: sorted(there.get(run, ())))
        return found

    def pods(self) -> list[Pod]:
        def read() -> list[Pod]:
            old = [pods for at, pods in self._views if at <= self.now - self.stale_s]
            return self._pods() if not self.stale_s else old[-1] if old else []

        found: list[Pod] = self._call("LIST pods", read)
        return found

    def refusals(self) -> list[dict[str, Any]]:
        return list(self._call("LIST events", lambda: list(self._events)))

    # --- what the cluster does -----------------------------------------------------------------

    def _replicas(self, kind: str, run: str, component: str) -> int:
        item = self.objects.get((kind, f"{run}-{component}"))
        return 0 if item is None else int(item["spec"]["replicas"])

    def _runs(self) -> list[str]:
        return sorted(
            {
                item["metadata"]["labels"]["app.kubernetes.io/instance"]
                for item in self.objects.values()
            }
        )

    def volume(self, run: str, rank: int = 0) -> Path:
        """Run directory of a learner on its volume."""
        return self.volumes / run / f"learner-{rank}"

    def _pods(self) -> list[Pod]:
        found = []
        for run in self._runs():
            for kind, component in (("StatefulSet", "learner"), ("Deployment", "actor"),
                                    ("Deployment", "cost")):  # fmt: skip
                number = self._replicas(kind, run, component)
                if self.makes_pods(f"{run}-{component}"):
                    number = 0
                names = [f"{run}-{component}-{index}" for index in range(number)]
                names = [name for name in names if not self.makes_pods(name)]
                if component == "learner":
                    found += self._learner_pods(run, names)
                else:
                    found += [Pod(run, component, name) for name in names]
        return found

    def _learner_pods(self, run: str, names: list[str]) -> list[Pod]:
        if not names:
            self._learners.pop(run, None)
            self.restarts.pop(run, None)
            return []
        made = self._learners.setdefault(run, _text(self.now))
        restarts = self.restarts.get(run, 0)
        return [
            Pod(run, "learner", name, uid=f"{name} {made}", created=made, restarts=restarts)
            for name in names
        ]

    def step(self) -> None:
        """Let five seconds go by."""
        self.now, self.clock = self.now + STEP_S, self.clock + STEP_S
        pods = self._pods()
        learners = Counter(pod.run for pod in pods if pod.component == "learner")
        self.most = max(self.most, learners.total())
        for run, number in learners.items():
            self._bills[run] = self._bills.get(run, 0.0) + number * RATE / 3600 * STEP_S
        for run in self._runs():
            for kind, component in (("StatefulSet", "learner"), ("Deployment", "actor"),
                                    ("Deployment", "cost")):  # fmt: skip
                replicas = self._replicas(kind, run, component)
                names = [f"{run}-{component}", f"{run}-{component}-{replicas - 1}"]
                reason = next(filter(None, map(self.makes_pods, names)), "")
                if reason and replicas:
                    event = {"involvedObject": {"name": f"{run}-{component}"}, "message": reason,
                             "lastTimestamp": _text(self.now)}  # fmt: skip
                    self._events.append(event)
            if not learners[run]:
                for file in self.volumes.glob(f"{run}/learner-*/up"):
                    file.unlink()
            for rank in range(learners[run]):
                if f"{run}-learner-{rank}" not in self.away:
                    self._train(run, rank, learners[run])
            if any(pod.run == run and pod.component == "cost" for pod in pods):
                self._meter(run, learners[run])
        self._views.append((self.now, pods))

    def _train(self, run: str, rank: int, learners: int) -> None:
        volume = self.volume(run, rank)
        volume.mkdir(parents=True, exist_ok=True)
        self.claims_of.setdefault(run, set()).add(f"runs-{run}-learner-{rank}")
        if not (volume / "up").exists():
            self.begun += [run] * (not rank)
            (volume / "up").touch()
        text = self.objects["ConfigMap", f"{run}-experiment"]["data"]["experiment.yaml"]
        experiment, dumped = _read_experiment(text)
        counters = _read(volume / "counters.json") or {"env_frames": 0, "seconds": 0.0}
        if run in self.fails:
            return
        # Each learner counts a part of the frames that end all of them.
        early = self.frames_to_score(run)
        stop = (early or experiment.stop.env_frames) // learners
        frames = min(counters["env_frames"] + FRAMES_A_STEP, stop)
        counters = dict.fromkeys((one.name for one in fields(Counters)), 0) | {
            "env_frames": frames, "seconds": counters["seconds"] + STEP_S,
            "dollars": float(self.data[run].get("dollars", 0)),
        }  # fmt: skip
        (volume / "counters.json").write_text(json.dumps(counters))
        (volume / "experiment.yaml").write_text(dumped)
        if frames == stop and volume not in self._saves:
            self._saves.add(volume)
            evaluation = {"env_frames": frames, "updates": frames, "episodes": 20,
                          "mean": self.score(experiment) + rank, "policy": "sample",
                          "checkpoint": f"checkpoint-{frames}"}  # fmt: skip
            append_evaluation(volume, evaluation)
            end = {"updates": frames,
                   "stop_reason": f"stop.{'mean_return' if early else 'env_frames'}: {frames}",
                   "mean_return": 90.0, "mean_return_episodes": 10,
                   "evaluation": evaluation}  # fmt: skip
            (volume / "best.safetensors").write_text(f"{run} {rank} {frames}")
            (volume / "summary.json").write_text(json.dumps({**counters, **end}))
        elif frames < stop:
            self._saves.discard(volume)
            (volume / "summary.json").unlink(missing_ok=True)

    def _meter(self, run: str, learners: int) -> None:
        state = self.data[run]
        args = self.objects["Deployment", f"{run}-cost"]["spec"]["template"]["spec"]["containers"][
            0
        ]["args"]
        goal = next(arg for arg in args if arg.startswith("--goal="))
        if state.get("finished") and state.get("goal") != goal:
            _merge(state, {"finished": None, "goal": None})
        budget = float(next(a for a in args if a.startswith("--budget=")).partition("=")[2])
        if run in self._bills:  # from the starts of the pods
            _merge(state, {"dollars": f"{self._bills[run]:.6f}"})
        rate = RATE * learners
        _merge(state, {"unixTime": f"{self.now:.0f}", "dollarsPerHour": f"{rate:g}"})
        if run in self.fails and "paused" not in state:
            code, cause = self.fails[run]
            words = f"exit code {code} (CONFIG) of {run}-learner-0, after 3 restarts: {cause}"
            _merge(state, {"paused": words})
        answer = [
            self.volume(run, rank)
            for rank in range(learners)
            if f"{run}-learner-{rank}" not in self.away
        ]
        ended = [(one / "summary.json").exists() and (one / "read").exists() for one in answer]
        if answer and all(ended):
            waited = self._waited[run] = self._waited.get(run, -STEP_S) + STEP_S
            if len(answer) == learners or waited >= STRAGGLER_TIMEOUT_S:
                summary = _read(answer[0] / "summary.json") or {}
                _merge(state, {"finished": summary["stop_reason"], "goal": goal})
        else:
            self._waited.pop(run, None)
        if budget and float(state.get("dollars", 0)) >= 1.02 * budget:
            _merge(state, {"finished": f"stop.dollars: of {budget:g}", "goal": goal})
        if state.get("finished") or state.get("paused"):
            for kind, component in (("StatefulSet", "learner"), ("Deployment", "actor")):
                if item := self.objects.get((kind, f"{run}-{component}")):
                    item["spec"]["replicas"] = 0

    @property
    def rows(self) -> dict[str, dict[str, Any]]:
        """What the set's state tells of each run."""
        found: dict[str, dict[str, Any]] = json.loads(gzip.decompress(b64decode(self.runs_text)))
        return found

    def states(self) -> dict[str, str]:
        """State of each run."""
        return {name: row["state"] for name, row in self.rows.items()}


class FakeLearner:
    """A learner of a run on the volumes of the cluster."""

    def __init__(self, cluster: SetCluster, url: str, keeps_best: bool = False) -> None:
        host = url.removeprefix("http://").partition(".")[0]
        self._cluster, self._host, self._keeps_best = cluster, host, keeps_best
        self._run, _, rank = host.rpartition("-learner-")
        self._volume = cluster.volume(self._run, int(rank))

    def status(self) -> dict[str, Any]:
        volume = self._volume
        counters = _read(volume / "counters.json")
        if counters is None or self._host in self._cluster.away:
            raise OSError("it does not answer")
        experiment, _ = _read_experiment((volume / "experiment.yaml").read_text())
        over = (volume / "summary.json").exists()
        return {
            "state": "finished" if over else "training",
            "counters": counters,
            "stop": experiment.stop.model_dump(),
            "stop_reason": None,
            "eta": None,
            "time": self._cluster.now,
            "charged": {"metered": True},
            "numbers": {},
        }

    def copy(self, folder: Path) -> bool:
        volume = self._volume
        folder.mkdir(parents=True, exist_ok=True)
        over = (volume / "summary.json").exists()
        for name in ("evaluations.csv", "experiment.yaml", "summary.json"):
            (folder / name).unlink(missing_ok=True)
            if (volume / name).exists():
                shutil.copy(volume / name, folder / name)
        best = folder / BEST_FILE
        best.unlink(missing_ok=True)
        if over and self._keeps_best:
            best.parent.mkdir(exist_ok=True)
            shutil.copy(volume / "best.safetensors", best)
        if over:
            (volume / "read").touch()
        else:
            (volume / "read").unlink(missing_ok=True)
        return over and self._run not in self._cluster.loses


def controller(
    cluster: SetCluster, wanted: Spec, folder: Path, frees: bool = False
) -> SetController:
    """A controller of the cluster, with the cluster's clock."""
    return SetController(
        cluster,  # type: ignore[arg-type]
        wanted,
        folder,
        lambda url: FakeLearner(cluster, url, frees),
        now=lambda: cluster.now,
        clock=lambda: cluster.clock,
        frees_volumes=frees,
    )


def kills(cluster: SetCluster, run: Callable[[], object], folder: Path) -> list[SetCluster]:
    """Return the cluster as a kill of the controller at each of its calls leaves it.

    Args:
        cluster: The cluster, whose folder has the set's.
        run: Reconciles until the end.
        folder: Where the copies are. Two kills that leave the same have one.
    """
    found: dict[str, SetCluster] = {}

    def watch(call: str) -> None:
        state = _state(cluster)
        if state not in found:
            found[state] = cluster.copied(folder / f"{len(found)} {call}")

    cluster.watch = watch
    run()
    return list(found.values())


def _state(cluster: SetCluster) -> str:
    """What a controller finds after the one before it was killed."""
    left_out = ("log", "calls", "folder", "volumes", "most")
    own = {name: one for name, one in vars(cluster).items() if not callable(one)}
    files = {
        str(file): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(cluster.folder.rglob("*"))
        if file.is_file()
    }
    return repr(({name: own[name] for name in own if name not in left_out}, files))


def until(
    cluster: SetCluster, one: SetController, what: Callable[[], bool], rounds: int = 400
) -> None:
    """Reconcile until something is true."""
    for _ in range(rounds):
        one.reconcile()
        cluster.step()
        if what():
            return
    raise AssertionError(f"after {rounds} rounds: {cluster.rows}, {one.errors}, {one.holds}")


def _merge(data: dict[str, str], changes: Mapping[str, str | None]) -> None:
    for key, value in changes.items():
        data.pop(key, None)
        if value is not None:
            data[key] = value


@cache
def _read_experiment(text: str) -> tuple[Experiment, str]:
    """The experiment of a text, and the text with all its settings."""
    experiment = parse_experiment(text, ())
    return experiment, dump_experiment(experiment)


def _read(file: Path) -> dict[str, Any] | None:
    return json.loads(file.read_text()) if file.exists() else None


def _text(now: float) -> str:
    import time

    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now))
