"""Every query of the dashboard of sets, asked of a Prometheus that scraped the controller of one.

The cluster behind the controller is the one in memory of its tests.
"""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from seedbed.runtime.http import MetricsServer
from seedbed.runtime.metrics import StatsRegistry
from seedbed.services.sets.metrics import SetMetrics
from tests.support.processes import START_S, free_port
from tests.support.prometheus import Prometheus, ask, assert_layout, queries_of
from tests.support.set_cluster import SetCluster, controller, spec
from tests.support.source_imports import ROOT
from tests.support.waiting import wait_for

FILES = ROOT / "helm" / "seedbed-platform" / "files"
DASHBOARD = json.loads((FILES / "dashboard-sets.json").read_text())
QUERIES = queries_of(DASHBOARD)
COLUMNS = ("score", "state", "failures", "preemptions")  # of the table of runs
LABELS = {"namespace": "rl", "experiment": "lab", "role": "controller", "pod": "lab-set-0"}


class Lab:
    """A set whose first runs end, whose next ones train, and whose last one waits."""

    def __init__(self, folder: Any) -> None:
        self.cluster = SetCluster(folder)
        rates = "learner.optimizer.learning_rate=1e-3,2e-3,3e-3"
        wanted = spec(
            rates, "stop.env_frames=900000", seeds=2, budget={"dollars": 100.0, "frames": 10**9}
        )
        self.one = controller(self.cluster, wanted, folder / "set")
        self.port = free_port()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._drive)
        self._http = MetricsServer(self.port, StatsRegistry(SetMetrics("lab", self.one)))
        self._thread.start()

    def _drive(self) -> None:
        while not self._stopping.is_set():
            self.one.reconcile()
            # From when some have ended and others train, the runs are as they are.
            if not {"finished", "training"} <= set(self.cluster.states().values()):
                self.cluster.step()
            self._stopping.wait(0.1)

    def close(self) -> None:
        self._stopping.set()
        self._thread.join()
        self._http.close()


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Lab]]:
    """Its address, once it has scraped a set with a score, a forecast and runs of all kinds."""
    if shutil.which("prometheus") is None:
        pytest.skip("prometheus is not installed")
    folder = tmp_path_factory.mktemp("prometheus")
    lab = Lab(folder)
    scraped = {"targets": [f"127.0.0.1:{lab.port}"], "labels": LABELS}
    server = Prometheus(folder, {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(FILES / "rules.yaml")],
        "scrape_configs": [{"job_name": "lab", "static_configs": [scraped]}],
    })  # fmt: skip
    try:
        ready = (
            "seedbed_set_run_score and on (set) rate(seedbed_set_calls_total[10s]) > 0 "
            'and on (set) seedbed_set_runs{state="training"} > 0'
        )
        wait_for(_asked(server.address, ready), "a run that has ended", START_S, every_s=0.5)
        yield server.address, lab
    finally:
        lab.close()
        server.close()


def _asked(address: str, query: str) -> Callable[[], Any]:
    def asked() -> Any:
        with suppress(OSError):  # Prometheus is not up yet
            return ask(address, query)

    return asked


def as_grafana(query: str) -> str:
    """With the variables' values for All."""
    values = {"$cluster": ".*", "$namespace": ".+", "$set": ".+", "$__rate_interval": "10s"}
    for name, value in values.items():
        query = query.replace(name, value)
    assert "$" not in query, query
    return query


@pytest.mark.slow
def test_every_query_returns_data(prometheus: tuple[str, Lab]) -> None:
    address, lab = prometheus
    empty = [title for title, query in QUERIES.items() if not ask(address, as_grafana(query))]
    # Nothing holds the runs, and there is no limit of actors or GPUs.
    assert [title.partition(" / ")[0] for title in empty] == [
        "Held by", "Actors awake", "GPUs and TPU chips awake",
    ]  # fmt: skip
    lab.cluster.data["set"]["paused"] = "for a talk"
    (held,) = (query for title, query in QUERIES.items() if title.startswith("Held by"))
    (found,) = wait_for(lambda: ask(address, as_grafana(held)), "a pause", 60, every_s=0.5)
    assert found["metric"]["by"] == "pause"


@pytest.mark.slow
def test_no_alert_fires(prometheus: tuple[str, Lab]) -> None:
    address, _ = prometheus
    wait_for(_asked(address, "experiment:seedbed_env_fps:60s or vector(1)"), "rules", 60)
    assert ask(address, 'ALERTS{alertstate="firing"}') == []


def test_panels_do_not_overlap_and_say_where_data_comes_from() -> None:
    assert_layout(DASHBOARD)


def test_sets_of_one_name_have_a_line_each() -> None:
    for title, query in QUERIES.items():
        assert query.count('{cluster=~"$cluster",namespace=~"$namespace",set=~"$set"') > 0, title
        assert query.count("by (cluster, namespace, set") > 0, title
        legend = title.partition(" / ")[2]
        assert "{{cluster}} {{namespace}}/{{set}}" in title or legend in COLUMNS
    names = [variable["name"] for variable in DASHBOARD["templating"]["list"]]
    assert names == ["datasource", "cluster", "namespace", "set"]


def test_every_metric_of_a_set_is_on_the_dashboard_or_in_an_alert() -> None:
    from seedbed.services.sets.metrics import METRICS

    rules = (FILES / "rules.yaml").read_text()
    shown = " ".join(QUERIES.values()) + rules
    assert [metric.name for metric in METRICS if f"{metric.name}{{" not in shown] == []


def test_tables_hide_the_columns_that_mean_nothing() -> None:
    """Grafana calls the values of several queries `Value #A` and so on, and of one `Value`."""
    tables = {one["title"]: one for one in DASHBOARD["panels"] if one["type"] == "table"}
    finals = tables["Finals"]["transformations"]
    assert [one["id"] for one in finals] == ["merge", "organize", "sortBy"]
    assert finals[1]["options"] == {
        "excludeByName": {"Time": True, "Value #B": True},
        "renameByName": {f"Value #{key}": COLUMNS["ABCD".index(key)] for key in "ACD"},
    }
    assert finals[2]["options"]["sort"] == [{"field": "score", "desc": True}]
    (organize,) = tables["Not training"]["transformations"]
    assert organize["options"]["excludeByName"] == {"Time": True, "Value": True}
    uid = json.loads((FILES / "dashboard.json").read_text())["uid"]
    assert f"/d/{uid}?" in json.dumps(tables["Finals"]["fieldConfig"])
