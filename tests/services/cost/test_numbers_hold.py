"""Bill, frames and numbers of replicas over anything that a person does to a release.

The meter, the learner's count of its cost, its view of the other learners and the chart's decision
about each number are the real ones; the cluster, the frames and the time are not.
"""

from __future__ import annotations

import random
import threading
from datetime import UTC, datetime
from typing import Any, NamedTuple

import pytest

from seedbed.config import parse_experiment
from seedbed.gossip.membership import Membership
from seedbed.services.cost.meter import CostMeter, Goal
from seedbed.services.cost.prices import PriceList, Settings
from seedbed.telemetry import Counters
from seedbed.telemetry.cost import RunCost
from seedbed.telemetry.cost_meter import Reading
from seedbed.v1.gossip_pb2 import Member
from tests.services.cost.test_meter import DOLLAR_AN_HOUR, FakeCluster
from tests.services.cost.test_usage import container, pod
from tests.support.scale_decisions import MOST, Case, scale_decisions

MOST_LEARNERS = 3
# From the start of a learner to its first answer; a look at an event comes within `_SOON_S`.
START_S, _SOON_S = 1800.0, 5.0
EXPERIMENT = "name: a\nenvironment: {id: x}\ncost: {cpus: 1, meter: 'http://meter/status'}"
OVER = "stop.env_frames: 9 of 9"


class Volume(NamedTuple):
    """A learner's run directory: counters and bill of its newest status, and its checkpoint."""

    dollars: float
    bill: dict[str, Any]
    frames: int
    peers: dict[str, Any]


class Process:
    """A learner's process on its volume, by the parts of the real one that count."""

    def __init__(self, world: World, rank: int) -> None:
        self.world, self.rank, self.began = world, rank, world.now
        self.counters = Counters()
        self.cost = RunCost(world.experiment, self.counters, lambda: world.now)
        self.count = world.learners
        self.members: Membership | None = None
        saved = world.volumes.get(rank)
        if self.count > 1 or (saved and saved.peers):
            self.members = Membership(rank, self.count, 1e9, True, lambda: world.now)
        if saved:
            self.counters.env_frames, self.counters.dollars = saved.frames, saved.dollars
            self.cost.resume(saved.bill)
            if self.members:
                self.members.restore(saved.peers)

    @property
    def answers(self) -> bool:
        return self.world.now >= self.began + START_S

    @property
    def total(self) -> Counters:
        return self.members.total(self.counters) if self.members else self.counters

    def save(self, checkpoint: bool) -> None:
        before = self.world.volumes.get(self.rank)
        frames, peers = self.counters.env_frames, self.members.to_json() if self.members else {}
        if before and not checkpoint:
            frames, peers = before.frames, before.peers
        self.world.volumes[self.rank] = Volume(
            self.counters.dollars, self.cost.to_json(), frames, peers
        )

    def heartbeat(self) -> Member:
        return Member(env_frames=self.counters.env_frames, dollars=self.counters.dollars)

    def status(self) -> dict[str, Any]:
        learners = {"env_frames": self.total.env_frames} if self.members else {}
        return {
            "state": "finished" if self.world.is_over else "training",
            "over": OVER if self.world.is_over else None,
            "run_dir": "/runs/a", "resumed_dollars": self.cost.resumed_dollars,
            **self.cost.to_json(), "learners": learners, "counters": self.counters.to_json(),
        }  # fmt: skip


class Live(FakeCluster):
    """The cluster while the release is installed: pods follow the numbers at once."""

    def __init__(self, world: World, name: int) -> None:
        super().__init__()
        self.world, self.bill, self.items = world, f"uid-{name}", []
        self.wanted = {"actor": 0, "learner": 0}
        self.chosen = dict.fromkeys(self.wanted, -1)
        self.before: dict[str, int | None] = dict.fromkeys(self.wanted)

    def scale(self, component: str, replicas: int) -> None:
        if component not in self.wanted:
            return
        super().scale(component, replicas)
        have = [p for p in self.items if self.component(p) == component]
        for item in have[replicas:]:
            self.items.remove(item)
        for _ in range(replicas - len(have)):
            item = pod([container({"cpu": "1"})])
            item.metadata.labels["app.kubernetes.io/component"] = component
            item.status.start_time = datetime.fromtimestamp(self.world.now, UTC)
            self.items.append(item)
        self.world.follow_pods()

    @staticmethod
    def component(item: Any) -> str:
        return str(item.metadata.labels["app.kubernetes.io/component"])


class World:
    """A person's volumes and values, and the release while there is one."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.experiment = parse_experiment(EXPERIMENT)
        self.now, self.releases = 1_000_000.0, 0
        self.volumes: dict[int, Volume] = {}
        self.processes: dict[int, Process] = {}
        self.cluster: Live | None = None
        self.meter: CostMeter | None = None
        self.actors, self.learners, self.paused, self.key = 2, 1, False, 0
        self.is_over = False
        self.said = 0  # the number of actors that the person last said
        self.paid = self.slack = 0.0  # what the pods have cost, and what nobody can have seen
        self.told = 0.0  # the most that anybody was told
        self.played = self.lost = 0  # frames, and those after what a killed process had saved
        self.story: list[str] = []

    # --- what happens by itself ------------------------------------------------------------

    def follow_pods(self) -> None:
        wanted = self.cluster.wanted["learner"] if self.cluster else 0
        for rank in sorted(self.processes):
            if rank >= wanted:
                self.end(rank)
        for rank in range(wanted):
            if rank not in self.processes:
                self.processes[rank] = Process(self, rank)

    def end(self, rank: int) -> None:
        """SIGTERM."""
        process = self.processes.pop(rank)
        process.cost.account()
        process.save(checkpoint=True)

    def passes(self, seconds: float) -> None:
        """Time, and what comes of it; then everybody looks once."""
        self.now += seconds
        pods = self.cluster.items if self.cluster else []
        self.paid += len(pods) * seconds / 3600
        actors = sum(Live.component(p) == "actor" for p in pods)
        for process in self.processes.values():
            if process.answers and actors and not self.is_over:
                frames = self.random.randrange(1, 100)
                process.counters.env_frames += frames
                self.played += frames
            process.cost.account()
        for one in self.processes.values():
            for other in self.processes.values():
                if one is not other and other.members:
                    other.members.update(one.rank, one.heartbeat())
                    other.members.on_proof(one.rank)
        if self.cluster is None:
            return
        if self.meter is None:
            self.meter = self.new_meter()
        self.meter.reconcile()
        for process in self.processes.values():
            process.cost.account()  # takes the newest answer of the meter
            process.save(checkpoint=process.answers and self.random.random() < 0.5)

    def look(self) -> None:
        """Everybody looks at what has just happened."""
        self.passes(self.random.uniform(0, _SOON_S))

    def rest(self, least_s: float, most_s: float) -> None:
        """Leave the release alone, once the meter has done what is due and seen it done."""
        for _ in range(3):
            self.look()
        self.passes(self.random.uniform(least_s, most_s))

    def new_meter(self) -> CostMeter:
        assert self.cluster
        prices = PriceList(
            Settings.model_validate({"prices": DOLLAR_AN_HOUR, "defaultFamily": "x"})
        )
        goal = Goal(run="a", key=str(self.key), paused=self.paused)
        asks = [lambda rank=rank: self.ask(rank) for rank in range(self.learners)]
        clock = lambda: self.now  # noqa: E731
        return CostMeter(self.cluster, prices, asks, goal, None, clock, clock)

    def ask(self, rank: int) -> dict[str, Any] | None:
        process = self.processes.get(rank)
        return process.status() if process and process.answers else None

    def answer(self) -> Reading | None:
        """What the learners read of the meter."""
        if self.meter is None:
            return None
        status = self.meter.status()
        return Reading(status["dollars"], status["dollars_per_hour"], status["bill"])

    # --- what a person does ----------------------------------------------------------------

    def install(self, **values: Any) -> None:
        assert self.cluster is None
        self.releases += 1
        self.cluster = Live(self, self.releases)
        self.said = values.get("actors", self.actors)
        self.apply(values)

    def upgrade(self, **values: Any) -> None:
        if values.get("actors", self.actors) != self.actors:
            self.said = values["actors"]
        assert self.cluster
        if values.get("learners", self.learners) != self.learners or "key" in values:
            for rank in list(self.processes):  # their settings change
                self.end(rank)
        self.apply(values)

    def apply(self, values: dict[str, Any]) -> None:
        for name, value in values.items():
            setattr(self, name, value)
        cluster = self.cluster
        assert cluster
        if "key" in values:
            self.is_over = False
        if self.meter is not None:
            self.stop_meter()
        cluster.chosen_actors = self.actors
        state = {**cluster.kept}
        for component, wanted in (("actor", self.actors), ("learner", self.learners)):
            is_new = cluster.chosen[component] < 0
            kind = "finished" if "finished" in state else ""
            if not kind and "paused" in state:
                kind = "value" if state["paused"] == "value" else "hand"
            live = None if is_new else cluster.wanted[component]
            chosen = None if is_new else cluster.chosen[component]
            is_kept = not is_new and "resumeReplicas" in state
            case = Case(wanted, self.paused, live, chosen, cluster.before[component], kind, is_kept)
            number, cluster.chosen[component], cluster.before[component] = scale_decisions()[case]
            cluster.scale(component, number)
        self.follow_pods()
        self.slack += 0.01
        self.look()

    def uninstall(self) -> None:
        assert self.cluster
        self.stop_meter()
        for rank in list(self.processes):
            self.end(rank)
        self.cluster = None
        self.slack += 0.01

    def stop_meter(self) -> None:
        if self.meter is not None:
            stopping = threading.Event()
            stopping.set()
            self.meter.run(stopping)
            self.meter = None

    def scale(self, number: int) -> None:
        assert self.cluster
        if number != self.cluster.wanted["actor"]:
            self.said = number
        self.cluster.scale("actor", number)
        self.slack += 0.01
        if self.is_held:  # an upgrade within these seconds would hide it
            self.look()

    def patch(self, **state: str | None) -> None:
        assert self.cluster
        self.cluster.save_state(state)

    def kill_meter(self) -> None:
        assert self.cluster
        if self.meter is not None:
            saved = int(self.cluster.kept.get("frames", 0))
            self.lost += self.meter.ledger.frames - saved
        self.meter = None
        self.slack += 0.03

    def kill_learner(self, rank: int) -> None:
        process = self.processes.pop(rank)
        saved = self.volumes.get(rank)
        self.lost += process.counters.env_frames - (saved.frames if saved else 0)
        self.slack += 0.03
        self.processes[rank] = Process(self, rank)

    # --- what must hold --------------------------------------------------------------------

    @property
    def is_held(self) -> bool:
        return bool(self.meter and self.meter.brake.holds)

    def check(self) -> None:
        """The last op was followed by a look of everybody."""
        if self.cluster is None or self.meter is None:
            return
        brake = self.meter.brake
        said = {"actor": self.said if brake.is_off else 0,
                "learner": 0 if brake.holds else self.learners}  # fmt: skip
        for component, wanted in said.items():
            found = self.cluster.wanted[component]
            assert found == wanted, self.why(f"{found} of {component}, not {wanted}")
        ledger, most = self.meter.ledger, self.paid + self.slack
        bills = {"the meter": ledger.dollars} | {
            f"learner {rank}": process.counters.dollars
            for rank, process in self.processes.items()
            if process.answers
        }
        for who, dollars in bills.items():
            assert dollars <= most, self.why(f"paid twice: {dollars} > {most}, by {who}")
        if ledger.asked:  # it has heard of what was before
            dollars, least = ledger.dollars, max(self.paid, self.told) - self.slack
            assert dollars >= least, self.why(f"the bill falls: {dollars} < {least}")
            self.told = max(self.told, dollars)
            # What learners have played that have left, too, as their dollars count.
            totals = [p.total.env_frames for p in self.processes.values() if p.answers]
            frames, had = min([ledger.frames, *totals]), self.played - self.lost
            assert frames >= had, self.why(f"frames fall: {frames} < {had}")

    def why(self, what: str) -> str:
        return "\n".join([what, *self.story[-40:]])


def ops(world: World) -> dict[str, Any]:
    """What a person may do now; the order of a dictionary, so that a seed is a story."""
    draw = world.random
    actors, learners = draw.randrange(MOST + 1), draw.randrange(1, MOST_LEARNERS + 1)
    if world.cluster is None:
        return {
            f"install {actors=} {learners=}": lambda: world.install(
                actors=actors, learners=learners, paused=False, key=world.key
            ),
            "install as before": lambda: world.install(paused=draw.random() < 0.2),
        }
    cluster = world.cluster
    found: dict[str, Any] = {
        f"upgrade {actors=}": lambda: world.upgrade(actors=actors),
        f"upgrade {learners=}": lambda: world.upgrade(learners=learners),
        f"upgrade paused={not world.paused}": lambda: world.upgrade(paused=not world.paused),
        f"upgrade {actors=} paused={not world.paused}": lambda: world.upgrade(
            actors=actors, paused=not world.paused
        ),
        "uninstall": world.uninstall,
        "kill the meter": world.kill_meter,
        "ends": lambda: setattr(world, "is_over", True),
        "rest": lambda: world.rest(60, START_S),
        "rest longer": lambda: world.rest(START_S, 2 * START_S),
    }
    if world.is_over:
        found["raise the stop"] = lambda: world.upgrade(key=world.key + 1)
    if cluster.before["actor"] is None:
        found[f"scale {actors}"] = lambda: world.scale(actors)
    if "paused" in cluster.kept:
        found["resume by hand"] = lambda: world.patch(paused=None)
    else:
        found["pause by hand"] = lambda: world.patch(paused="maintenance")
    if world.processes:
        rank = draw.choice(sorted(world.processes))
        found[f"kill learner {rank}"] = lambda: world.kill_learner(rank)
    return found


class Client:
    """In place of the learner's HTTP client."""

    world: World

    def __init__(self, *_: object) -> None:
        pass

    @property
    def reading(self) -> Reading | None:
        return self.world.answer()


@pytest.fixture(autouse=True)
def client(monkeypatch: pytest.MonkeyPatch) -> type[Client]:
    monkeypatch.setattr("seedbed.telemetry.cost.CostMeterClient", Client)
    return Client


def tell(seed: int, steps: int, client: type[Client]) -> None:
    world = client.world = World(seed)
    for _ in range(steps):
        found = ops(world)
        name = world.random.choice(list(found))
        world.story.append(name)
        found[name]()
        if world.random.random() < 0.7:
            for _ in range(2):
                world.look()
            world.check()


@pytest.mark.parametrize("seed", range(30))
def test_nothing_falls_and_nothing_is_paid_twice(seed: int, client: type[Client]) -> None:
    tell(seed, 40, client)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(4))
def test_nothing_falls_in_long_stories(block: int, client: type[Client]) -> None:
    for seed in range(100 * (block + 1), 100 * (block + 2)):
        tell(seed, 60, client)
