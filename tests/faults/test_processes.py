"""Bad days of real processes: real signals, real exit codes. Each test starts as few as it can."""

from __future__ import annotations

import json
import os
import signal
import socket
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path

import pytest

from seedbed.checkpoints.store import CheckpointStore
from seedbed.cli.status import request_status
from seedbed.runtime.exit_codes import HELP, ExitCode
from seedbed.runtime.http import get_json
from seedbed.runtime.tokens import Role
from tests.support.named_memory import named_memory
from tests.support.processes import (
    START_S,
    Process,
    children,
    cluster,
    free_port,
    guarded,
    parent,
)
from tests.support.waiting import wait_for


def check_end(process: Process, code: ExitCode, *words: str) -> None:
    """The exit code, one line with the cause, one with what to do, and no traceback."""
    assert process.wait() == code, process.said
    cause, advice = process.last_lines()[-2:]
    for word in words:
        assert word in cause
    assert advice == f"seedbed: exit code {int(code)} ({code.name}): {HELP[code]}"
    assert "Traceback" not in process.said


@pytest.mark.slow
def test_a_run_that_is_killed_damaged_resumed_and_finished(tmp_path: Path) -> None:
    with cluster(tmp_path) as it:
        first = it.train()
        it.trains(first)
        wait_for(lambda: len(it.checkpoints()) == 2, "two checkpoints")

        # Nobody else gets in, and is told who is there.
        other = it.train()
        check_end(other, ExitCode.RUN_DIRECTORY, f"process {guarded(first.pid)}")

        # An actor is killed: its episodes are counted, and another one takes its place.
        actors = first.children()
        assert len(actors) == 2
        before = it.counters()
        victim = min(actors)
        os.kill(victim, signal.SIGKILL)
        wait_for(lambda: len(first.children() - {victim}) == 2, "another actor", START_S)
        wait_for(lambda: it.status()["numbers"]["sessions"] == 4, "its groups have joined", START_S)
        after = it.trains(first)["counters"]
        # One that had just ended is not cut.
        assert after["abandoned_episodes"] > before["abandoned_episodes"]
        assert after["env_frames"] > before["env_frames"]
        assert "signal SIGKILL; started again" in first.said

        # So it is when someone stops one, which leaves with exit code 0.
        victim = max(first.children())
        os.kill(victim, signal.SIGTERM)
        wait_for(lambda: len(first.children() - {victim}) == 2, "another actor", START_S)

        # Everything is killed at once: no actor outlives its learner.
        actors = first.children()
        first.send(signal.SIGKILL)
        first.wait()
        wait_for(lambda: not [pid for pid in actors if parent(pid)], "no orphans", 30)

        # An actor whose parent is gone before it could ask to hear of that ends as well.
        late = it.start("actor", "--learner", "unix:nowhere", "--exit-with-parent", str(first.pid))
        assert late.wait() == 0

        # The newest checkpoint is damaged; the one before it is not.
        older, newest = it.checkpoints()
        frames = CheckpointStore(str(older.parent)).read(older.name).meta["counters"]["env_frames"]
        newest.write_bytes(newest.read_bytes()[:-1000])
        goal = it.counters()["env_frames"] + 500
        second = it.train("--set", f"stop.env_frames={goal}")
        assert second.wait() == 0, second.said
        assert f"checkpoint {newest} is skipped" in second.said
        assert f"resume: from {older}" in second.said
        assert f"resumed at frame {frames}" in second.said
        summary = second.summary()
        assert goal <= summary["env_frames"]
        assert summary["env_frames"] == summary["trained_frames"] + summary["discarded_frames"]
        assert summary["stop_reason"].startswith("stop.env_frames")
        assert summary["seconds"] > 0

        # What is finished stays so, and says it.
        third = it.train("--set", f"stop.env_frames={goal}")
        assert third.wait() == 0, third.said
        again = third.summary()
        for name in ("env_frames", "trained_frames", "updates", "episodes"):
            assert again[name] == summary[name]
        assert again["stop_reason"].startswith("stop.env_frames")
        assert "is at its end" in third.said
        assert not (it.run / "logs" / "evaluation.log").exists()


@pytest.mark.slow
def test_learner_and_actors_come_and_go(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    learner_arguments = ("--listen", address, "--run-dir", str(tmp_path / "run"))
    with cluster(tmp_path) as it:

        def actor(index: int) -> Process:
            return it.start("actor", "--learner", address, "--index", str(index))

        # Nobody is here: idle, and it says so.
        learner = it.start("learner", *learner_arguments)
        wait_for(lambda: "listening" in learner.said, f"it listens: {learner.said}", START_S)
        idle = request_status(address)
        assert idle["state"] == "waiting"
        assert idle["waiting_for"]

        # 0 -> 2 -> 0 -> 1
        actors = [actor(1), actor(2)]
        it.trains(learner)
        wait_for(lambda: it.status()["numbers"]["sessions"] == 4, "both are here", START_S)
        for one in actors:
            one.send(signal.SIGTERM)
        assert [one.wait(20) for one in actors] == [0, 0]
        wait_for(
            lambda: request_status(address)["waiting_for"] == "no actors are connected",
            "it says so",
        )
        learner.runs()
        stays = actor(3)
        before = it.trains(learner)["counters"]

        # The learner is killed and comes back; its actor finds it by itself.
        learner.send(signal.SIGKILL)
        learner.wait()
        newest = CheckpointStore(str(it.run / "checkpoints")).newest()
        assert newest is not None
        saved = newest.meta["counters"]
        again = it.start("learner", *learner_arguments)
        after = it.trains(again)["counters"]
        assert f"resumed at frame {saved['env_frames']}" in again.said
        assert after["env_frames"] > saved["env_frames"]
        assert after["updates"] > saved["updates"]
        assert after["seconds"] > saved["seconds"] > 0
        assert after["env_frames"] - saved["env_frames"] < before["env_frames"]
        stays.runs()

        # A stopped learner saves, and is not the end of the experiment.
        again.send(signal.SIGTERM)
        assert again.wait() == 0, again.said
        summary = again.summary()
        assert summary["stop_reason"] == "signal SIGTERM"
        last = CheckpointStore(str(it.run / "checkpoints")).newest()
        assert last is not None
        assert last.meta["counters"]["env_frames"] == summary["env_frames"]
        assert summary["env_frames"] == summary["trained_frames"] + summary["discarded_frames"]
        stays.runs()
        stays.send(signal.SIGTERM)
        assert stays.wait(20) == 0


@pytest.mark.slow
def test_an_environment_that_raises_now_and_then_and_sigterm(tmp_path: Path) -> None:
    with cluster(
        tmp_path,
        "environment.id=tests.support.faulty_environments:RaisesNowAndThen",
        "actor.max_environment_failures=1000",
        "actor.processes=1",
    ) as it:
        train = it.train()
        log = it.run / "logs" / "actor-0.log"
        it.trains(train)
        wait_for(lambda: log.read_text().count("the simulator crashed") > 3, "it crashes", START_S)
        status = it.trains(train)
        assert status["counters"]["abandoned_episodes"] > 0
        actors = train.children()
        train.send(signal.SIGTERM)
        assert train.wait() == 0, train.said
        summary = train.summary()
        assert summary["mean_return"] == 10, "what was cut is no episode"
        assert summary["stop_reason"] == "signal SIGTERM"
        assert not [pid for pid in actors if parent(pid)]
        assert it.checkpoints()


@pytest.mark.slow
def test_workers_that_are_killed_cost_their_own_episodes(tmp_path: Path) -> None:
    shared = named_memory()
    with cluster(
        tmp_path,
        "environment.id=tests.support.faulty_environments:Line",
        "actor.processes=1",
        "actor.workers=2",
        "actor.max_environment_failures=1000",
    ) as it:
        train = it.train()
        it.trains(train)
        (actor,) = train.children()
        log = it.run / "logs" / "actor-0.log"
        for killed in range(1, 4):
            workers = children(actor)
            assert len(workers) == 4, "two in each group"
            os.kill(min(workers), signal.SIGKILL)
            wait_for(lambda n=killed: log.read_text().count("worker_died") == n, "its end", START_S)
            wait_for(lambda: len(children(actor)) == 4, "another worker", START_S)
            status = it.trains(train)
        assert status["counters"]["abandoned_episodes"] > 0
        assert train.children() == {actor}
        workers = children(actor)
        train.send(signal.SIGTERM)
        assert train.wait() == 0, train.said
        summary = train.summary()
        assert summary["mean_return"] == 10, "what was cut is no episode"
        assert summary["env_frames"] == summary["trained_frames"] + summary["discarded_frames"]
        assert not [pid for pid in (actor, *workers) if parent(pid)]
        assert "Traceback" not in log.read_text()
        assert named_memory() <= shared


@pytest.mark.slow
def test_an_environment_that_hangs_does_not_outlive_sigterm(tmp_path: Path) -> None:
    """Spot leaves 15 seconds."""
    address = f"127.0.0.1:{free_port()}"
    with cluster(tmp_path, "environment.id=tests.support.faulty_environments:Hangs") as it:
        learner = it.start("learner", "--listen", address, "--run-dir", str(it.run))
        actor = it.start("actor", "--learner", address, "--index", "0")
        wait_for(lambda: "now it hangs" in actor.said, f"it hangs: {learner.said}", START_S)
        actor.send(signal.SIGTERM)
        assert actor.wait(15) == ExitCode.ENVIRONMENT
        assert "an environment did not come back" in actor.said
        learner.runs()


@pytest.mark.slow
def test_sigterm_in_the_last_evaluation_does_not_wait_for_it(tmp_path: Path) -> None:
    with cluster(
        tmp_path,
        "environment.id=tests.support.faulty_environments:Line",
        "stop.env_frames=200",
        "evaluation.at_end=true",
        "evaluation.episodes=100000",
        f"learner.metrics_port={(port := free_port())}",
    ) as it:
        train = it.train()
        wait_for(lambda: "evaluating" in train.said, f"it evaluates: {train.said}", START_S)
        train.send(signal.SIGTERM)
        assert train.wait(30) == 0, train.said
        assert train.summary()["stop_reason"].startswith("stop.env_frames")
        assert "the last evaluation was ended: a signal came" in train.said

        # The same command makes up for it, which others can follow.
        def state() -> str:
            with suppress(OSError):
                found = get_json(f"http://127.0.0.1:{port}/status", 5, None, Role.OBSERVER)
                return str(found["state"])
            return ""

        again = it.train()
        wait_for(lambda: state() == "evaluating", f"it evaluates: {again.said}", START_S)
        again.send(signal.SIGTERM)
        assert again.wait(30) == 0, again.said

        # And where it comes to its end, says the same again, at no cost.
        it.overrides = (*it.overrides, "evaluation.episodes=3")
        once = it.train()
        assert once.wait() == 0, once.said
        assert once.summary()["evaluation"]["mean"] == 10
        before = it.status()
        twice = it.train()
        assert twice.wait() == 0, twice.said
        assert twice.summary() == once.summary()
        assert it.status() == before


@pytest.mark.slow
def test_an_evaluation_on_the_side_gives_way_and_ends_with_its_learner(tmp_path: Path) -> None:
    with cluster(
        tmp_path,
        "environment.id=tests.support.faulty_environments:Line",
        "evaluation.every_frames=200",
        "evaluation.episodes=100000",
    ) as it:
        train = it.train()
        wait_for(lambda: "evaluating" in train.said, f"it evaluates: {train.said}", START_S)

        def evaluations() -> list[int]:
            return [
                pid
                for pid in train.children()
                if b"evaluate" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            ]

        (guard,) = wait_for(evaluations, "its process")
        pid = wait_for(lambda: below if (below := guarded(guard)) != guard else None, "guarded")
        threads = Path(f"/proc/{pid}/task")
        wait_for(lambda: len(list(threads.iterdir())) > 1, "it has more threads than one")
        assert {os.getpriority(os.PRIO_PROCESS, int(at.name)) for at in threads.iterdir()} == {5}
        train.send(signal.SIGKILL)
        wait_for(lambda: parent(pid) is None, "it ends with the learner")


def get(address: str, path: str) -> tuple[int, str]:
    """The answer of a learner's HTTP server; 0 while there is none."""
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError:
        return 0, ""


@pytest.mark.slow
def test_a_finished_learner_stays_and_so_does_the_next_one(tmp_path: Path) -> None:
    """In a cluster whoever ends by himself is started again, with the meter running."""
    wire, http = (f"127.0.0.1:{free_port()}" for _ in range(2))
    port = http.rpartition(":")[2]
    with cluster(tmp_path, "stop.env_frames=400", f"learner.metrics_port={port}") as it:
        arguments = ("learner", "--linger", "--listen", wire, "--run-dir", str(it.run))
        learner = it.start(*arguments)
        wait_for(lambda: get(http, "/readyz")[0] == 200, "it is ready and idle", START_S)
        actor = it.start("actor", "--learner", wire, "--index", "0")
        assert actor.wait() == 0, "the experiment is over"
        tries = it.start("check learner", "--learner", wire)
        assert tries.wait() == 0, tries.said
        assert tries.summary()["over"].startswith("stop.env_frames")
        # A late actor hears it from the learner that stays; so does the cost meter.
        late = it.start("actor", "--learner", wire, "--index", "1")
        assert late.wait() == 0
        assert "the experiment is over: stop.env_frames" in late.said
        status = json.loads(get(http, "/status")[1])
        assert status["over"].startswith("stop.env_frames")
        assert status["state"] == "finished"
        assert get(http, "/healthz") == (200, "ok\n")
        assert "seedbed_run_finished 1.0" in get(http, "/metrics")[1]
        learner.runs()
        learner.send(signal.SIGTERM)
        assert learner.wait(30) == 0
        assert learner.summary()["stop_reason"].startswith("stop.env_frames")

        again = it.start(*arguments)
        wait_for(lambda: "staying until a signal" in again.said, "it stays", START_S)
        wait_for(lambda: get(http, "/readyz")[0] == 200, "it is ready")
        assert json.loads(get(http, "/status")[1])["state"] == "finished"
        again.send(signal.SIGTERM)
        assert again.wait(30) == 0


@pytest.mark.slow
def test_one_action_for_who_tries(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    with cluster(tmp_path) as it:
        nobody = it.start("check learner", "--learner", address, "--timeout-s", "1")
        check_end(nobody, ExitCode.LEARNER_UNREACHABLE, "no action", "within 1 s")
        learner = it.start("learner", "--listen", address, "--run-dir", str(it.run))
        patient = ("--timeout-s", f"{START_S:g}")
        tries = it.start("check learner", "--learner", address, *patient)
        assert tries.wait() == 0, tries.said
        assert tries.summary()["action"] in (0, 1)
        other = it.start(
            *("check learner", "--learner", address, *patient),
            *("--set", "environment.id=Acrobot-v1"),
        )
        check_end(other, ExitCode.REFUSED_BY_LEARNER, "FAILED_PRECONDITION", "Acrobot-v1")
        learner.runs()


@pytest.mark.slow
def test_an_environment_that_always_raises(tmp_path: Path) -> None:
    with cluster(
        tmp_path,
        "environment.id=tests.support.faulty_environments:RaisesAlways",
        "actor.max_environment_failures=3",
    ) as it:
        check_end(
            it.train(), ExitCode.ENVIRONMENT, "last words", "does not start", "actor-", ".log"
        )
        log = (it.run / "logs" / "actor-0.log").read_text()
        assert "3 failures of environments within ten minutes" in log


@pytest.mark.slow
def test_a_full_disk(tmp_path: Path) -> None:
    """Checkpoints are of 2 MB; no file may be."""
    with cluster(
        tmp_path,
        "learner.network_options.units=[400,400]",
        "learner.checkpoint.deadline_s=2",
        "actor.processes=1",
    ) as it:
        train = it.train(file_bytes=1_000_000)
        check_end(train, ExitCode.CHECKPOINT_WRITE, "File too large", "free or enlarge the volume")
        assert "checkpoint not written, for 0 s (learner.checkpoint.deadline_s is 2)" in train.said
        assert it.counters()["updates"] > 0
        # Nothing is left lying around, and nothing pretends to be whole.
        assert not list((it.run / "checkpoints").iterdir())
        assert it.status()["numbers"]["checkpoint_failures"] >= 3


@pytest.mark.slow
def test_a_port_that_is_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, cluster(tmp_path) as it:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        learner = it.start("learner", "--listen", address, "--run-dir", str(it.run))
        check_end(learner, ExitCode.BIND, address)


@pytest.mark.slow
def test_actors_with_networks_of_their_own_and_their_learner_are_killed(tmp_path: Path) -> None:
    """IMPALA: an unroll that is under way is lost with its actor, and was never counted."""
    location = ("--set", "learner.inference.location=actor")
    with cluster(tmp_path) as it:
        first = it.train(*location)
        it.trains(first)
        wait_for(it.checkpoints, "a checkpoint")
        victim = min(first.children())
        os.kill(victim, signal.SIGKILL)
        wait_for(lambda: len(first.children() - {victim}) == 2, "another actor", START_S)
        wait_for(lambda: it.status()["numbers"]["sessions"] == 4, "its groups have joined", START_S)
        it.trains(first)
        first.send(signal.SIGKILL)
        first.wait()

        goal = it.counters()["env_frames"] + 500
        second = it.train(*location, "--set", f"stop.env_frames={goal}")
        assert second.wait() == 0, second.said
        assert "resumed at frame" in second.said
        summary = second.summary()
        assert goal <= summary["env_frames"]
        assert summary["env_frames"] == summary["trained_frames"] + summary["discarded_frames"]

        # An actor without a network of its own is told what its learner wants.
        address = f"127.0.0.1:{free_port()}"
        fresh = ("--listen", address, "--run-dir", str(tmp_path / "fresh"))
        learner = it.start("learner", *fresh, *location)
        wait_for(lambda: "listening" in learner.said, f"it listens: {learner.said}", START_S)
        actor = it.start("actor", "--learner", address)
        check_end(actor, ExitCode.REFUSED_BY_LEARNER, "inference", "location actor", "same exp")
