"""Another experiment for a run that has begun: the chart refuses what its learner would refuse."""

from __future__ import annotations

import json
import random
import re
import struct
import subprocess
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
import yaml

from seedbed.config import Experiment, parse_experiment
from seedbed.config.keys import Key, keys
from seedbed.config.load import override
from seedbed.config.yaml_text import load_yaml
from seedbed.runs.resume import Change, canonical, check_resume, compare, digest, result_changes
from seedbed.runs.ways_on import WaysOn
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.settings import RESULT
from tests.support.api_server import ApiServer, api_server, helms
from tests.support.chart import CHART, helm, merged, render, run

each_helm = pytest.mark.parametrize("binary", helms(), ids=lambda path: Path(path).name)

RATE: dict[str, Any] = {"experiment": {"learner": {"optimizer": {"learning_rate": 1e-7}}}}
NETWORK: dict[str, Any] = {"experiment": {"learner": {"lstm_units": 5}}}


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with api_server() as found:
        yield found


def begins(server: ApiServer, values: dict[str, Any] | None = None) -> None:
    """Install, and let the learner be ready."""
    server.upgrade(values)
    server.objects["StatefulSet", "pong-learner"]["status"] = {"readyReplicas": 1}


def refusal(server: ApiServer, values: dict[str, Any], binary: str = "") -> str:
    """What an upgrade to these values says."""
    answer = server.template(values, binary=binary)
    assert answer.returncode != 0, "it was rendered"
    assert "resume refused: " in answer.stderr
    return answer.stderr


def named_digest(said: str) -> str:
    return re.findall(r"--set learner\.acceptChange=(\w+)$", said, re.MULTILINE)[0]


def experiment_of(server: ApiServer, values: dict[str, Any] | None = None) -> Experiment:
    """What a learner reads: of the release that is there, or of these values elsewhere."""
    item = server.objects["ConfigMap", "pong-experiment"]
    if values is not None:
        item = render(values).one("ConfigMap", "pong-experiment")
    return parse_experiment(item["data"]["experiment.yaml"])


def accept(values: dict[str, Any], name: str) -> dict[str, Any]:
    return merged(values, {"learner": {"acceptChange": name}})


@each_helm
def test_what_changes_a_result_is_refused_with_three_ways_on(
    server: ApiServer, binary: str
) -> None:
    begins(server)
    said = refusal(server, RATE, binary)
    assert "/runs/pong is of a run with other settings" in said
    assert "  learner.optimizer.learning_rate: 0.00048 -> 1e-7\n" in said
    assert "  new run       --set learner.run=pong-2, or another release\n" in said
    assert "  old settings  set back: learner.optimizer.learning_rate=0.00048\n" in said
    changes = compare(experiment_of(server), experiment_of(server, RATE))
    assert named_digest(said) == digest(result_changes(changes))
    # Each of the ways is one; nothing was applied meanwhile.
    server.render({}, binary=binary)
    server.render(merged(RATE, {"learner": {"run": "pong-2"}}), binary=binary)
    accepted = accept(RATE, named_digest(said))
    (container,) = server.upgrade(accepted, binary=binary).pods()["pong-learner"]["spec"][
        "containers"
    ]
    assert f"--change={named_digest(said)}" in container["args"]
    # Left in the values it accepts no other change, nor the way back.
    server.objects["StatefulSet", "pong-learner"]["status"] = {"readyReplicas": 1}
    server.render(accepted, binary=binary)
    for other in ({"experiment": {"ppo": {"discount": 0.9}}}, {}):
        said = refusal(server, accept(other, named_digest(said)), binary)
        assert "names another difference" in said
    assert "--change" not in str(server.render(RATE, binary=binary).pods()["pong-learner"])


@pytest.mark.slow
def test_what_a_run_is_cannot_be_accepted(server: ApiServer) -> None:
    begins(server)
    said = refusal(server, merged(NETWORK, RATE))
    assert "  learner.lstm_units: 0 -> 5 (the parameters' shapes follow from it)\n" in said
    assert "--set learner.run=pong-2" in said
    assert "acceptChange" not in said
    server.render(merged(NETWORK, {"learner": {"run": "pong-2", "initFrom": "pong"}}))


FREE: dict[str, Any] = {
    "experiment": {"stop": {"env_frames": 9}, "actor": {"groups": 3}, "dqn": {"n_steps": 2}}
}


@pytest.mark.slow
def test_what_is_free_and_what_is_named_with_its_value_is_no_change(server: ApiServer) -> None:
    begins(server)
    begins(server, merged(FREE, {"experiment": {"ppo": {"discount": 0.99}}}))
    # Back; and what another environment's family and another optimizer read.
    unread = {
        "environment": {"vizdoom": {"height": 5}},
        "learner": {"optimizer": {"momentum": 0.5}},
    }
    server.render({"experiment": unread})


@pytest.mark.slow
def test_the_momentum_of_rmsprop(server: ApiServer) -> None:
    def momentum(value: float) -> dict[str, Any]:
        return {"experiment": {"learner": {"optimizer": {"name": "rmsprop", "momentum": value}}}}

    begins(server, momentum(0.5))
    assert named_digest(refusal(server, momentum(0.25)))
    assert "velocities" in refusal(server, momentum(0))


@pytest.mark.slow_after(1)
@pytest.mark.parametrize(
    ("ready", "started", "replicas", "held"),
    [(0, False, 1, False), (1, True, 1, True), (0, True, 1, True), (0, False, 0, True)],
)
def test_a_run_that_trains_or_is_at_zero_is_held(
    server: ApiServer, ready: int, started: bool, replicas: int, held: bool
) -> None:
    """A learner that starts in vain has measured nothing: wrong settings are corrected freely."""
    begins(server)
    server.objects["StatefulSet", "pong-learner"]["status"] = {"readyReplicas": ready}
    server.scale("StatefulSet", "pong-learner", replicas)
    containers = [{"name": "evaluation", "started": True}, {"name": "learner", "started": started}]
    pod = {"kind": "Pod", "apiVersion": "v1", "status": {"containerStatuses": containers}}
    server.objects["Pod", "pong-learner-0"] = {**pod, "metadata": {"name": "pong-learner-0"}}
    assert (server.template(RATE).returncode != 0) == held


@pytest.mark.slow
def test_learners_and_shards_count(server: ApiServer) -> None:
    """What the chart sets itself is compared as well."""
    dqn = {"experiment": {"agent": "dqn", "learner": {"unroll_length": 1}}}
    begins(server, merged(dqn, {"replay": {"shards": 2, "sequences": 50_000}}))
    said = refusal(server, merged(dqn, {"replay": {"shards": 3, "sequences": 50_000}}))
    assert "learner.replay.capacity: 100000 -> 150000" in said
    server.objects.clear()
    begins(server)
    said = refusal(server, {"learner": {"replicas": 3, "topology": "allreduce"}})
    assert "gossip.replicas: 1 -> 3" in said
    assert 'gossip.topology: "gossip" -> "allreduce"' in said


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("held", [{"ready": 2}, {"ready": 0}], ids=["trains", "suspended"])
def test_hosts_are_not_deleted_in_vain(server: ApiServer, held: dict[str, int]) -> None:
    """The way out of a JobSet's fixed pods is to delete it: a refusal comes before."""
    server.add_group("jobset.x-k8s.io/v1alpha2", ["JobSet"])
    two = {"experiment": {"learner": {"backend": "jax"}}, "learner": {"hosts": 2}}
    server.upgrade(two)
    job_set = server.objects["JobSet", "pong-learner"]
    job_set["status"] = {"replicatedJobsStatus": [{"name": "host", **held}]}
    job_set["spec"]["suspend"] = not held["ready"]
    changed = merged(two, RATE)
    name = named_digest(refusal(server, changed))
    assert "delete jobset" in server.template(accept(changed, name)).stderr


def another(key: Key) -> str:
    """A value in YAML that is not the default of a key."""
    annotation: Any = key.field.annotation
    default = key.field.get_default(call_default_factory=True)
    if get_origin(annotation) is Literal:
        return next(str(each) for each in get_args(annotation) if each != default)
    if isinstance(default, bool):
        return str(not default).lower()
    if isinstance(default, int | float):
        return str(max(2, 3 * default)) if isinstance(default, int) else str(0.7 * default or 0.25)
    special = {
        "gossip.graphs": "[[[0, 1], [1, 0]], exponential]",
        "gossip.staleness": "7",
        "learner.queue_batches": "3",
    }
    return special.get(key.path, "{b: [1, 2.5e-7, true, null, '<é>'], a: {c: 1e30}}")


AGENTS: dict[str, list[str]] = {
    "vtrace": ["environment.id=atari:Pong"],
    "r2d2": ["environment.id=lab:x", "learner.lstm_units=8"],
    "my.agents:Mine": ["environment.id=CartPole-v1"],
}
# They fit no other key of the experiment; the first is refused by the chart in any case.
CANNOT = (
    "learner.deterministic", "optimistic_asymmetric_clip", "learner.epochs_per_batch",
    "learner.minibatches",
    "learner.unroll_length", "learner.inference.location", "learner.batch_size",
    "environment.lab.config", "gossip.replicas", "gossip.topology", "life_loss_ends",
)  # fmt: skip


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("agent", AGENTS)
def test_the_chart_and_the_learner_name_one_digest(server: ApiServer, agent: str) -> None:
    """Of one change of every key whose change a person may accept, as far as they fit."""
    base: dict[str, Any] = {}
    for setting in (f"agent={agent}", *AGENTS[agent]):
        override(base, f"experiment.{setting}")
    begins(server, base)
    before = experiment_of(server)
    changed, wanted = base, set()
    for key in keys():
        fits = not key.path.endswith(CANNOT)
        fits &= ":" in agent or key.path != "agent_options"
        fits &= not before.environment.family or key.path != "environment.kwargs"
        if key.key_class.name == "result" and fits:
            more: dict[str, Any] = {}
            override(more, f"experiment.{key.path}={another(key)}")
            changed = merged(changed, more)
    after = experiment_of(server, changed)
    changes = result_changes(compare(before, after))
    said = refusal(server, changed)
    wanted = {change.key for change in changes}
    assert set(re.findall(r"^  ([\w.]+): .* -> ", said, re.MULTILINE)) == wanted
    assert len(wanted) > 20
    assert named_digest(said) == digest(changes)
    assert check_resume(before, after, "the run", named_digest(said))


@each_helm
def test_both_write_values_alike(binary: str, tmp_path: Path) -> None:
    """Numbers above all: Go and Python have several forms of them."""
    draw = random.Random(1)
    floats = [struct.unpack("<d", draw.randbytes(8))[0] for _ in range(300)]
    floats += [draw.uniform(0, 1) * 10.0 ** draw.randint(-25, 25) for _ in range(300)]
    floats += [10.0**power for power in range(-25, 25)]
    ints = [draw.randint(-(10**size), 10**size) for size in range(1, 19)]
    texts = ["", "é", "<a> & b", "1e3", "yes", 'a"b\\c\n\t', "\U0001f331"]
    texts += ["\u2028", *map(chr, range(32))]
    values = [x for x in floats if x == x and abs(x) < 1e300] + ints + texts + [True, False, None]
    values += [{"b": 1.0, "a": [{}, [], {"z": 1e-9}]}]
    chart = tmp_path / "chart"
    (chart / "templates").mkdir(parents=True)
    (chart / "Chart.yaml").write_text("apiVersion: v2\nname: x\nversion: 1.0.0\n")
    # As the experiment goes: values, a ConfigMap's text, and that text again.
    (chart / "templates" / "x.yaml").write_text(
        "{{ $read := dict `v` .Values.v | toYaml | fromYaml }}\n"
        "written:{{ range $read.v }}\n- {{ toRawJson . | b64enc }}{{ end }}"
    )
    text = json.dumps({"v": values}, ensure_ascii=False).replace("\u2028", r"\u2028")
    (tmp_path / "values.yaml").write_text(text)
    answer = run_with(binary, "template", "x", str(chart), "-f", str(tmp_path / "values.yaml"))
    written = [b64decode(text).decode() for text in yaml.safe_load(answer)["written"]]
    assert written == [canonical(value) for value in load_yaml(text)["v"]]


def run_with(binary: str, *arguments: str) -> str:
    return subprocess.run(
        [binary or helm(), *arguments], capture_output=True, text=True, check=True
    ).stdout


def test_a_digest_is_a_text_to_helm_and_yaml() -> None:
    """Hexadecimal digits alone may be a number, such as 12345678 or 1e234567."""
    said = run("template", "pong", str(CHART), values={"learner": {"acceptChange": "12345678"}})
    assert said.returncode != 0
    for number in range(300):
        name = digest([Change("seed", 0, number, RESULT)])
        assert load_yaml(name) == yaml.safe_load(name) == name


def test_the_learner_of_a_release_names_the_ways_of_the_chart() -> None:
    old = parse_experiment("name: pong\nenvironment: {id: 'atari:Pong'}")
    new = parse_experiment("name: pong\nenvironment: {id: 'atari:Pong'}", ["ppo.discount=0.9"])
    command = ["helm -n rl upgrade pong"]
    with pytest.raises(SeedbedError) as caught:
        check_resume(old, new, "/runs/pong/experiment.yaml", "", WaysOn(command, "/runs/pong-2"))
    said = str(caught.value)
    assert caught.value.code == ExitCode.RESUME_REFUSED
    name = digest(compare(old, new))
    for line in (
        "  new run       helm -n rl upgrade pong ... --set learner.run=pong-2",
        "  old settings  helm -n rl rollback pong",
        f"  this run      helm -n rl upgrade pong ... --set learner.acceptChange={name}",
    ):
        assert line in said.splitlines()
    ways = WaysOn(command, "/runs/pong/learner-0-2")
    with pytest.raises(SeedbedError, match=r"learner\.acceptChange c1234567 names another"):
        check_resume(old, new, "x", "c1234567", ways)
    other = parse_experiment("name: pong\nenvironment: {id: 'atari:Pong'}", ["seed=9"])
    with pytest.raises(SeedbedError, match="helm -n rl rollback pong") as caught:
        check_resume(old, other, "x", "", ways)
    assert "--set learner.run=pong-2" in str(caught.value)
    assert "--restart" not in str(caught.value)


def called_as(values: dict[str, Any]) -> list[str]:
    """The command of a person that a learner of these values names."""
    (learner,) = render(values).pods()["pong-learner"]["spec"]["containers"]
    option = "--called-as="
    return [word.removeprefix(option) for word in learner["args"] if word.startswith(option)]


def test_the_learner_of_a_set_names_the_ways_of_its_set() -> None:
    """Its own name is of no Helm release."""
    assert called_as({}) == ["helm -n rl upgrade pong"]
    command = called_as({"set": "lab"})
    old = parse_experiment("name: pong\nenvironment: {id: 'atari:Pong'}")
    new = parse_experiment("name: pong\nenvironment: {id: 'atari:Pong'}", ["ppo.discount=0.9"])
    ways = WaysOn(command, "/runs/pong-2", "/runs/pong", "gs://b/c")
    with pytest.raises(SeedbedError) as caught:
        check_resume(old, new, "/runs/pong/experiment.yaml", "", ways)
    again = "seedbed deploy SWEEP -n rl --name lab --retry failed ..."
    for line in (
        "  new set       seedbed deploy SWEEP -n rl --name ANOTHER ...",
        f"  old settings  set back: ppo.discount=0.99: {again}",
        f"  this run      {again} --set learner.acceptChange={digest(compare(old, new))}",
    ):
        assert line in str(caught.value).splitlines()
    other = parse_experiment("name: pong\nenvironment: {id: 'atari:Pong'}", ["seed=9"])
    with pytest.raises(SeedbedError, match=re.escape(f"set them back (`{again}`)")) as caught:
        check_resume(old, other, "x", "", ways)
    said = str(caught.value)
    assert "  new set   seedbed deploy SWEEP -n rl --name ANOTHER ..." in said.splitlines()
    assert "helm" not in said
    with pytest.raises(SeedbedError, match=r"learner\.acceptChange c1234567 names another"):
        check_resume(old, new, "x", "c1234567", ways)
