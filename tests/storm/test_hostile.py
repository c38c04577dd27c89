"""The oracle of hostile peers finds what it is there for, and callers are of both kinds."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from seedbed.rpc.credentials import Denial
from seedbed.runtime.tokens import Role
from tests.storm import hostile, targets
from tests.storm.credentials import CALLERS, RoleFiles
from tests.storm.hostile import Watch
from tests.storm.kills import Outcome
from tests.storm.run_files import check_rows

COUNTERS = {
    "env_frames": 1000,
    "trained_frames": 900,
    "inserted_frames": 0,
    "discarded_frames": 50,
    "updates": 10,
}


class Looked:
    """A watch of one learner whose status the test writes."""

    def __init__(self, folder: Path) -> None:
        self._folder, self.out = folder, Outcome()
        self.code: int | None = None
        process = SimpleNamespace(
            popen=SimpleNamespace(poll=lambda: self.code), pid=os.getpid(), said="its words"
        )
        run: Any = SimpleNamespace(processes={"learner 0": process}, directories=[folder])
        self.watch = Watch(run, self.out)

    def look(self, scalars: dict[str, Any] | None = None, **counters: int) -> list[str]:
        found = {"counters": {**COUNTERS, **counters}, "scalars": scalars or {}, "numbers": {}}
        (self._folder / "status.json").write_text(json.dumps(found))
        self.watch._check_processes()
        self.watch._check_numbers(self._folder)
        return self.out.problems


@pytest.fixture
def looked(tmp_path: Path) -> Looked:
    return Looked(tmp_path)


def test_a_run_that_goes_on_has_no_problem(looked: Looked) -> None:
    for more in range(3):
        assert looked.look({"loss": 1.0}, updates=10 + more, env_frames=1000 + more) == []


def test_an_exit_is_a_problem_whatever_its_code(looked: Looked) -> None:
    looked.look()
    looked.code = 0
    assert looked.look() == ["learner 0 ended with 0: its words"]
    assert looked.watch.is_over


@pytest.mark.parametrize(
    ("counters", "words"),
    [
        ({"updates": 9}, "updates fell from 10 to 9"),
        ({"env_frames": 900}, "env_frames fell from 1000 to 900"),
        ({"env_frames": 10**12}, "counts do not hold"),
        ({"discarded_frames": 50_000}, "counts do not hold"),
    ],
)
def test_counts_neither_fall_nor_jump(looked: Looked, counters: Any, words: str) -> None:
    looked.look()
    assert words in looked.look(**counters)[-1]


def test_frames_that_are_inserted_count_once(looked: Looked) -> None:
    """With replay a frame is trained on each time that it is drawn."""
    assert looked.look(inserted_frames=950, trained_frames=10**6) == []


@pytest.mark.parametrize("value", [None, float("nan"), float("inf")])
def test_a_loss_that_is_not_finite_is_a_problem(looked: Looked, value: Any) -> None:
    assert "['loss'] are not finite" in looked.look({"loss": value})[0]


def test_a_stall_is_a_problem_once(looked: Looked, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(hostile.time, "monotonic", lambda: now[0])
    looked.look()
    now[0] = hostile.STALL_S + 1
    assert len(looked.look(updates=11)) == 1, "frames stand still"
    assert len(looked.look(updates=12)) == 1
    assert looked.out.longest_stall_s > hostile.STALL_S


def test_infinite_rows_are_found(tmp_path: Path) -> None:
    (tmp_path / "progress.csv").write_text("updates,rho_max\n1,1.0\n2,inf\n")
    assert "['rho_max'] of progress.csv are infinite" in check_rows(tmp_path)[0]


@pytest.mark.parametrize("tls", [False, True])
def test_callers_are_refused_as_their_credential_says(tmp_path: Path, tls: bool) -> None:
    """The table of `tests.storm.credentials` is that of the servers."""
    files = RoleFiles(tmp_path)
    methods = {one.path for one in (targets.ACT, *targets.REPLAY, *targets.GOSSIP)}
    for method in methods:
        server = Role.SHARD if "Replay" in method else Role.LEARNER
        callers = files.callers(server, method, tls)
        assert sum(one.refusal is None for one in callers) == len(CALLERS[method.split("/")[-1]])
        own = files.credentials(server, None)
        for caller in callers:
            judged = own.judge(method, caller.credentials.metadata(), {})
            denial = judged if isinstance(judged, Denial) else None
            named = caller.credentials.tls and caller.credentials.role.value
            certificate = caller.credentials.tls and caller.credentials.tls.folder.name
            if certificate in (None, f"tls-{named}"):  # else the certificate decides
                assert (denial and denial.code) == caller.refusal, (method, caller)
