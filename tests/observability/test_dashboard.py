"""Every query of the dashboard, asked of a real Prometheus that scraped two real short runs: one
of `vtrace` by two learners that gossip, and one of `dqn` with its replay on two shards.

Only the API server behind the cost meter is a fake one; `make e2e` has a real one.
"""

from __future__ import annotations

import json
import shutil
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from seedbed.runtime.http import MetricsServer
from seedbed.services.cost.learners import read_learner
from seedbed.services.cost.meter import CostMeter, Goal
from seedbed.services.cost.prices import PriceList, Settings
from tests.services.cost.test_meter import FakeCluster
from tests.support.processes import START_S, Process, free_port
from tests.support.prometheus import Prometheus, ask, assert_layout, queries_of
from tests.support.shard_process import ALPHA, ShardProcess
from tests.support.source_imports import ROOT
from tests.support.waiting import wait_for

pytestmark = pytest.mark.skipif(
    shutil.which("prometheus") is None, reason="prometheus is not installed"
)
FILES = ROOT / "helm" / "seedbed-platform" / "files"
DASHBOARD = json.loads((FILES / "dashboard.json").read_text())
QUERIES = queries_of(DASHBOARD)
LABELS = {"namespace": "rl", "experiment": "short"}
KEPT = {"namespace": "rl", "experiment": "kept"}


class Kept:
    """A run with two replay shards.

    Attributes:
        targets: what is to be scraped of it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port, *metrics = (free_port() for _ in range(3))
        self._shards = [ShardProcess(folder / f"shard{i}", 5_000) for i in range(2)]
        for shard, its in zip(self._shards, metrics, strict=True):
            shard.metrics_port = its
        self.targets: list[Any] = [
            {"targets": [f"127.0.0.1:{self._port}"], "labels": {**KEPT, "role": "learner"}},
            *(
                {"targets": [f"127.0.0.1:{its}"],
                 "labels": {**KEPT, "role": "replay", "pod": f"kept-replay-{i}"}}
                for i, its in enumerate(metrics)
            ),
        ]  # fmt: skip

    @contextmanager
    def training(self) -> Iterator[Process]:
        try:
            for shard in self._shards:
                shard.start()
            shards = [shard.address for shard in self._shards]
            (self._folder / "experiment.yaml").write_text(
                "name: kept\nenvironment: {id: CartPole-v1}\nagent: dqn\n"
                "actor: {envs_per_group: 4}\n"
                "learner: {network: mlp, frame_stack: 1, unroll_length: 1, batch_size: 8, "
                f"metrics_port: {self._port}, replay: {{storage: remote, min_size: 50, ratio: 1, "
                f"priority_exponent: {ALPHA}, shards: {shards}}}}}\n"
                "logging: {interval_s: 0.5}\n"
            )
            train = Process(
                self._folder / "train", "train", str(self._folder / "experiment.yaml"),
                "--run-dir", str(self._folder / "run"),
            )  # fmt: skip
            try:
                yield train
            finally:
                train.popen.terminate()
                train.wait()
        finally:
            for shard in self._shards:
                shard.end()


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Its address, once it has scraped runs with actors, updates, episodes and an evaluation."""
    folder = tmp_path_factory.mktemp("prometheus")
    kept = Kept(tmp_path_factory.mktemp("kept"))
    learner, actor, cost = free_port_pair(), free_port_pair(), free_port()
    (folder / "experiment.yaml").write_text(
        "name: short\nenvironment: {id: CartPole-v1}\n"
        f"actor: {{envs_per_group: 4, metrics_port: {actor}}}\n"
        f"learner: {{network: mlp, frame_stack: 1, unroll_length: 8, batch_size: 8, metrics_port: "
        f"{learner}, checkpoint: {{every_s: 1}}}}\n"
        "gossip: {distance_every: 10}\n"
        "stop: {dollars: 1000}\n"
        "evaluation: {every_frames: 500, episodes: 2, at_end: false}\n"
        "logging: {interval_s: 0.5}\n"
    )
    train = Process(
        folder / "train", "train", str(folder / "experiment.yaml"), "--learners", "2",
        "--run-dir", str(folder / "run"),
    )  # fmt: skip
    meter = CostMeter(
        FakeCluster(),
        PriceList(Settings()),
        [partial(read_learner, f"http://127.0.0.1:{learner + i}/status") for i in range(2)],
        Goal(budget=1000.0),
    )
    stopping = threading.Event()
    looking = threading.Thread(target=meter.run, args=(stopping,))
    looking.start()
    http = MetricsServer(cost, meter.registry)
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(FILES / "rules.yaml")],
        "scrape_configs": [
            {
                "job_name": role,
                "static_configs": [
                    {
                        "targets": [f"127.0.0.1:{port + i}"],
                        "labels": {**LABELS, "role": role, "pod": f"short-{role}-{i}"},
                    }
                    for i in range(count)
                ],
            }
            for role, port, count in (
                ("learner", learner, 2),
                ("actor", actor, 2),
                ("cost", cost, 1),
            )
        ]
        + [{"job_name": "kept", "static_configs": kept.targets}],
    }
    server = Prometheus(folder, config)
    address = server.address
    try:
        _wait(lambda: ask(address, "increase(seedbed_env_frames_total[5s]) > 0"), train, "frames")
        distances = "count(seedbed_gossip_distance) == 2"
        _wait(lambda: ask(address, distances), train, "distances")
        _wait(lambda: ask(address, "seedbed_evaluations_total > 0"), train, "an evaluation")
        drawn = "min(increase(seedbed_replay_shard_samples_total[5s])) > 0"
        # Begun only now: two runs that start at once starve the evaluation of the first.
        with kept.training() as beside:
            _wait(lambda: ask(address, drawn), beside, "both shards are drawn from")
            yield address
    finally:
        stopping.set()
        looking.join()
        http.close()
        server.close()
        train.popen.terminate()
        train.wait()


def free_port_pair() -> int:
    """A free port whose next one is free too: the learners of a run take one after the other."""
    while True:
        port = free_port()
        with suppress(OSError), socket.create_server(("127.0.0.1", port + 1)):
            return port


def _wait(look: Any, train: Process, what: str) -> None:
    def seen() -> Any:
        train.runs()
        with suppress(OSError):  # Prometheus is not up yet
            return look()

    try:
        wait_for(seen, what, START_S, every_s=0.5)
    except AssertionError as error:
        raise AssertionError(f"{error}: {train.said[-2000:]}") from None


def as_grafana(query: str) -> str:
    """With the variables' values for All."""
    values = {"$cluster": ".*", "$namespace": ".+", "$experiment": ".+", "$__rate_interval": "10s"}
    for name, value in values.items():
        query = query.replace(name, value)
    assert "$" not in query, query
    return query


@pytest.mark.slow
def test_every_query_returns_data(prometheus: str) -> None:
    empty = [title for title, query in QUERIES.items() if not ask(prometheus, as_grafana(query))]
    assert [title.partition(" / ")[0] for title in empty] == ["Exit codes"]  # nothing has ended
    assert len(QUERIES) > 40


@pytest.mark.slow
def test_recording_rules_have_values_and_no_alert_fires(prometheus: str) -> None:
    groups = yaml.safe_load((FILES / "rules.yaml").read_text())["groups"]
    records = [rule["record"] for group in groups for rule in group["rules"] if "record" in rule]
    # They are evaluated every `interval` of their group, at a moment of Prometheus's own.
    for name in records:
        wait_for(lambda name=name: ask(prometheus, name), f"a value of {name}", 60, every_s=0.5)
    assert ask(prometheus, 'ALERTS{alertstate="firing"}') == []


@pytest.mark.slow
def test_variables_find_the_experiment(prometheus: str) -> None:
    for labels in (LABELS, KEPT):
        query = f'seedbed_env_frames_total{{experiment="{labels["experiment"]}"}}'
        for found in ask(prometheus, query):
            assert found["metric"].items() >= labels.items()


@pytest.mark.slow
def test_a_run_without_replay_leaves_those_panels_empty(prometheus: str) -> None:
    """No NaN and no 0 that means nothing; the panel says "No replay"."""
    panels = [p for p in DASHBOARD["panels"] if p["title"].startswith(("Replay: ", "Shards"))]
    assert len(panels) == 12
    for panel in panels:
        assert panel["fieldConfig"]["defaults"]["noValue"] == "No replay"
        for target in panel["targets"]:
            found = ask(prometheus, as_grafana(target["expr"]))
            assert {item["metric"]["experiment"] for item in found} == {"kept"}, panel["title"]
            if "damaged" not in target["expr"]:
                assert not [item for item in found if item["value"][1] == "NaN"], panel["title"]


@pytest.mark.slow
def test_a_learner_that_is_alone_leaves_those_panels_empty(prometheus: str) -> None:
    panels = [p for p in DASHBOARD["panels"] if p["title"].startswith("Gossip: ")]
    assert len(panels) == 6
    for panel in panels:
        assert panel["fieldConfig"]["defaults"]["noValue"] == "One learner"
        for target in panel["targets"]:
            found = ask(prometheus, as_grafana(target["expr"]))
            assert {item["metric"]["experiment"] for item in found} == {"short"}, panel["title"]
            assert not [item for item in found if item["value"][1] == "NaN"], panel["title"]
    (peers,) = ask(prometheus, 'max by (experiment) (seedbed_gossip_peers{experiment="short"})')
    assert peers["value"][1] == "2"


def test_panels_do_not_overlap_and_say_where_data_comes_from() -> None:
    assert_layout(DASHBOARD)


@pytest.mark.slow
def test_a_budget_that_does_not_exist_is_not_drawn(prometheus: str) -> None:
    (query,) = (query for title, query in QUERIES.items() if title.endswith(" budget"))
    found = ask(prometheus, as_grafana(query))
    assert {item["metric"]["experiment"] for item in found} == {"short"}


def test_experiments_of_one_name_have_a_line_each() -> None:
    """Of two namespaces with one release name the frames were added, and the larger bill drawn."""
    for title, query in QUERIES.items():
        assert "by (experiment" not in query, title
        assert "(experiment)" not in query, title
        assert '{cluster=~"$cluster",namespace=~"$namespace",' in query, title
        assert "{{cluster}} {{namespace}}/{{experiment}}" in title
    names = [variable["name"] for variable in DASHBOARD["templating"]["list"]]
    assert names == ["datasource", "cluster", "namespace", "experiment"]
