"""A Helm release on the cluster that KUBECONFIG names, and waiting for what it does."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
import trustme

from tests.support.chart import merged
from tests.support.waiting import wait_for

ROOT = Path(__file__).parents[2]
CHART = ROOT / "helm" / "seedbed"
LONG_S = 300.0  # images are there, but a learner loads TensorFlow on a small node
MINIMUM = 2_000  # sequences before training begins: 20 s at the rate that the ratio allows
_T = TypeVar("_T")


def command(*arguments: str, check: bool = True, timeout_s: float = 120) -> str:
    """Standard output of a command; a failure shows what it said."""
    answer = subprocess.run(arguments, capture_output=True, text=True, timeout=timeout_s)
    if check and answer.returncode != 0:
        raise AssertionError(f"{' '.join(arguments)}: {answer.stdout}{answer.stderr}")
    return answer.stdout if check else answer.stdout + answer.stderr


def until(look: Callable[[], _T], what: str, within_s: float = LONG_S) -> _T:
    """What `look` gives once it gives something; no event of a cluster tells all of this."""
    return wait_for(look, what, within_s, every_s=1.0)


def values(**more: Any) -> dict[str, Any]:
    """A small experiment that does not end by itself, for a small node."""
    tag = os.environ.get("SEEDBED_E2E_TAG", "dev")
    small = {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}}
    base: dict[str, Any] = {
        "experiment": {
            "environment": {"id": "CartPole-v1"},
            "actor": {"envs_per_group": 4, "groups": 2},
            "learner": {
                "network": "mlp",
                "frame_stack": 1,
                "unroll_length": 10,
                "batch_size": 8,
                "checkpoint": {"every_s": 5},
                # No batch is ever full, so that each step takes 30 ms: frames are not what is
                # waited for, and the node's cores are for pods that start.
                "inference": {"batch_envs": 512, "max_wait_ms": 30},
            },
            "logging": {"interval_s": 1},
        },
        "image": {"tag": tag},
        "learner": {
            "resources": {
                "requests": {"cpu": "100m", "memory": "512Mi"},
                "limits": {"memory": "2Gi"},
            },
            "persistence": {"size": "200Mi"},
            "terminationGracePeriodSeconds": 60,
        },
        "actor": {"replicas": 1, "resources": small},
    }
    return merged(base, more)


def with_shards(shards: int, **more: Any) -> dict[str, Any]:
    """DQN that trains 32 transitions for each new one, so that filling anew would show."""
    learner = {
        "unroll_length": 1,
        "batch_size": 64,
        "replay": {"min_size": MINIMUM, "ratio": 32, "priority_exponent": 0.6},
    }
    replay = {
        "shards": shards,
        "sequences": 50_000,
        "persistence": {"size": "50Mi"},
        "resources": {
            "requests": {"cpu": "50m", "memory": "128Mi"},
            "limits": {"memory": "512Mi"},
        },
    }
    experiment = {"agent": "dqn", "learner": learner, **more.pop("experiment", {})}
    return values(experiment=experiment, replay=replay, **more)


class Release:
    """One release in a namespace of the test's own."""

    def __init__(
        self, name: str, namespace: str, folder: Path, helm: str = "helm", chart: Path = CHART
    ) -> None:
        self.name, self.namespace, self.folder = name, namespace, folder
        self.helm, self.chart = helm, chart

    def install(self, given: dict[str, Any]) -> str:
        return self._apply("install", given)

    def upgrade(self, given: dict[str, Any], *options: str, check: bool = True) -> str:
        return self._apply("upgrade", given, *options, check=check)

    def _apply(self, verb: str, given: dict[str, Any], *options: str, check: bool = True) -> str:
        file = self.folder / f"{self.name}.json"
        file.write_text(json.dumps(given))
        return command(
            self.helm, verb, self.name, str(self.chart), "-n", self.namespace, "-f", str(file),
            *options,
            timeout_s=LONG_S,
            check=check,
        )  # fmt: skip

    def uninstall(self) -> None:
        command(self.helm, "uninstall", self.name, "-n", self.namespace, "--wait", timeout_s=LONG_S)

    def kubectl(self, *arguments: str, check: bool = True, timeout_s: float = 120) -> str:
        return command(
            "kubectl", "-n", self.namespace, *arguments, check=check, timeout_s=timeout_s
        )

    def get(self, *arguments: str) -> Any:
        return json.loads(self.kubectl("get", *arguments, "-o", "json"))

    def scale(self, what: str, replicas: int) -> None:
        self.kubectl("scale", what, f"--replicas={replicas}")

    def replicas(self, what: str) -> int:
        return int(self.get(what)["spec"]["replicas"])

    def certificates(self) -> dict[str, Any]:
        """Secrets as cert-manager would write them; the values of `tls` that name them."""
        authority, named = trustme.CA(), {"replay": "shard"}
        given: dict[str, Any] = {"enabled": True}
        for role in ("learner", "actor", "replay"):
            made = authority.issue_cert(
                f"*.{self.name}-{role}.{self.namespace}.svc",
                f"{named.get(role, role)}.{self.name}.{self.namespace}.seedbed",
            )
            contents = {
                "tls.key": made.private_key_pem.bytes(),
                "tls.crt": b"".join(pem.bytes() for pem in made.cert_chain_pems),
                "ca.crt": authority.cert_pem.bytes(),
            }
            files = []
            for name, content in contents.items():
                (self.folder / name).write_bytes(content)
                files.append(f"--from-file={self.folder / name}")
            self.kubectl("create", "secret", "generic", f"{self.name}-{role}-tls", *files)
            given[f"{role}Secret"] = f"{self.name}-{role}-tls"
        return given

    def pods(self, component: str) -> list[dict[str, Any]]:
        labels = f"app.kubernetes.io/instance={self.name},app.kubernetes.io/component={component}"
        return list(self.get("pods", "-l", labels)["items"])

    def kill(self, component: str, *numbers: int) -> None:
        """Kill pods of a stateful set at once, and wait until others run under their names.

        The API server gives a new pod before the old one's process is gone, and an answer between
        the two may be of either.
        """
        names = {f"{self.name}-{component}-{number}" for number in numbers}
        old = {p["metadata"]["uid"] for p in self.pods(component)}
        self.kubectl("delete", "pod", *names, "--grace-period=0", "--force")

        def run() -> set[str]:
            return {
                pod["metadata"]["name"]
                for pod in self.pods(component)
                if pod["metadata"]["uid"] not in old
                and any("running" in c["state"] for c in pod["status"].get("containerStatuses", []))
            }

        self.until(lambda: run() >= names, f"others run as {sorted(names)}")

    def ready(self, component: str) -> bool:
        """Whether the component has pods and all of them are ready."""
        pods = self.pods(component)
        return bool(pods) and all(
            any(
                c["type"] == "Ready" and c["status"] == "True"
                for c in p["status"].get("conditions", [])
            )
            for p in pods
        )

    def http(self, pod: str, port: int, page: str) -> str | None:
        """A page of a pod, through the API server's proxy; None while there is none."""
        path = f"/api/v1/namespaces/{self.namespace}/pods/{self.name}-{pod}:{port}/proxy/{page}"
        answer = subprocess.run(
            ["kubectl", "get", "--raw", path], capture_output=True, text=True, timeout=60
        )
        return answer.stdout if answer.returncode == 0 else None

    def on_loopback(self, pod: str, port: int) -> dict[str, Any] | None:
        """The status of a pod, which needs a token from elsewhere; None while there is none."""
        url = f"http://127.0.0.1:{port}/status"
        program = (
            f"import urllib.request as r; print(r.urlopen({url!r}, timeout=5).read().decode())"
        )
        exec_ = ["kubectl", "-n", self.namespace, "exec", f"{self.name}-{pod}", "--"]
        try:
            answer = subprocess.run(
                [*exec_, "python", "-c", program], capture_output=True, text=True, timeout=30
            )
        except subprocess.TimeoutExpired:
            return None
        return json.loads(answer.stdout) if answer.returncode == 0 else None

    def status(self) -> dict[str, Any] | None:
        """The learner's own word."""
        return self.on_loopback("learner-0", 9090)

    def priced(self, component: str, pods: int) -> bool:
        """Whether the meter's newest look at the release found this many pods of a component."""
        meter = self.pods("cost")[0]["metadata"]["name"].removeprefix(f"{self.name}-")
        found = f'seedbed_cost_pods{{component="{component}"}} {pods:.1f}\n'
        return found in (self.http(meter, 9092, "metrics") or "")

    def shard(self, number: int) -> dict[str, Any] | None:
        """A replay shard's own word."""
        return self.on_loopback(f"replay-{number}", 9093)

    def frames(self) -> int:
        return self.counter("env_frames")

    def counter(self, name: str) -> int:
        """One of the learner's, -1 while it does not answer."""
        status = self.status()
        return int(status["counters"][name]) if status else -1

    def saved_frames(self, pod: str = "learner-0") -> int:
        """Frames of the newest checkpoint, as the log of the next learner will say."""
        text = self.kubectl(
            "exec", f"{self.name}-{pod}", "--", "python", "-c",
            "from seedbed.checkpoints.store import CheckpointStore as Store\n"
            f"found = Store('/runs/{self.name}/checkpoints').newest()\n"
            "print(found.meta['counters']['env_frames'] if found else 0)",
        )  # fmt: skip
        return int(text)

    def number(self, name: str) -> float | None:
        """One of the numbers of the learner's newest second, None while there is none."""
        status = self.status()
        return status["numbers"].get(name) if status else None

    def sessions(self, wanted: int) -> bool:
        status = self.status()
        return bool(status) and status["numbers"].get("sessions") == wanted  # type: ignore[index]

    def trains(self, beyond: int = 0) -> int:
        """Wait until frames grow, from above `beyond`; give them."""
        first = self.until(lambda: max(0, self.frames() - beyond), f"frames beyond {beyond}")
        self.until(lambda: self.frames() > beyond + first, "frames grow")
        return self.frames()

    def until(self, look: Callable[[], _T], what: str) -> _T:
        """As the function, with the state of the namespace where it fails."""
        try:
            return until(look, what)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.describe()}") from None

    def state(self) -> dict[str, str]:
        return dict(self.get("configmap", f"{self.name}-state").get("data") or {})

    def describe(self) -> str:
        """What a person would look at."""
        logs = [
            self.kubectl("logs", f"--selector=app.kubernetes.io/component={role}", "--tail=5",
                         check=False)
            for role in ("learner", "actor", "replay", "cost")
        ]  # fmt: skip
        pods = self.kubectl("get", "pods,events", check=False)
        return "\n".join((pods[-4000:], *logs))


def connects(release: Release, labels: dict[str, str], port: int, to: str = "learner") -> bool:
    """Whether a pod with these labels opens a connection to the first pod of a component."""
    image = release.pods("actor")[0]["spec"]["containers"][0]["image"]
    host = f"{release.name}-{to}-0.{release.name}-{to}"
    program = (
        "import socket, sys\n"
        f"address = socket.gethostbyname('{host}')\n"
        "try: socket.create_connection((address, %d), 5)\n"
        "except OSError: sys.exit(7)" % port
    )
    code = runs_to_its_end(release, labels, program, image)
    assert code in (0, 7), code
    return code == 0


def runs_to_its_end(
    release: Release, labels: dict[str, str], program: str, image: str, **spec: Any
) -> int:
    """The exit code of a Python program in a pod with these labels."""
    security = {
        "runAsNonRoot": True,
        "runAsUser": 10001,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "stranger", "labels": labels},
        "spec": {
            "restartPolicy": "Never",
            "containers": [
                {
                    "name": "c",
                    "image": image,
                    "imagePullPolicy": "IfNotPresent",
                    "command": ["python", "-c", program],
                    "securityContext": security,
                }
            ],
            **spec,
        },
    }
    file = release.folder / "stranger.json"
    file.write_text(json.dumps(pod))
    release.kubectl("apply", "-f", str(file))

    def ended() -> Any:
        status = release.get("pod", "stranger")["status"]
        return status["phase"] in ("Succeeded", "Failed") and status

    status = until(ended, "the stranger has ended")
    release.kubectl("delete", "pod", "stranger", "--grace-period=0", "--force")
    return int(status["containerStatuses"][0]["state"]["terminated"]["exitCode"])


@pytest.fixture(scope="module")
def namespace(request: pytest.FixtureRequest) -> Iterator[str]:
    with new_namespace(request.module.__name__.rpartition("test_")[2]) as name:
        yield name


@pytest.fixture(scope="module")
def another_namespace() -> Iterator[str]:
    with new_namespace("another") as name:
        yield name


@contextmanager
def new_namespace(word: str) -> Iterator[str]:
    """A namespace whose Pod Security is `restricted`, deleted afterwards."""
    name = f"seedbed-e2e-{os.getpid()}-{word}"
    command("kubectl", "create", "namespace", name)
    command("kubectl", "label", "namespace", name, "pod-security.kubernetes.io/enforce=restricted")
    yield name
    command("kubectl", "delete", "namespace", name, "--wait=false", check=False)
