"""What a learner counts of the others: those that train, and those that have left."""

from __future__ import annotations

from typing import Any

from seedbed.config import parse_experiment
from seedbed.gossip.membership import Membership
from seedbed.services.learner.exchange_factory import make_membership
from seedbed.telemetry import Counters
from seedbed.v1.gossip_pb2 import Member

OWN = Counters(env_frames=25, updates=5, seconds=9.0, dollars=7.0)


def of_four(whole_bill: bool) -> dict[str, Any]:
    """The checkpoint of learner 0, of four."""
    members = Membership(0, 4, 60, whole_bill)
    others = {"return_sum": 5, "return_count": 1, "over": "stop.updates: 50 of 9"}
    for rank in range(1, 4):
        counts = {"env_frames": 20 + rank, "updates": 50, "seconds": 90, "dollars": rank}
        members.update(rank, Member(**counts, **others))
        members.on_proof(rank)
    return members.to_json()


def test_frames_and_dollars_of_learners_that_have_left_stay() -> None:
    for whole_bill, dollars in ((False, 7 + 1 + 2 + 3), (True, 7)):
        for count in (1, 2, 4):
            members = Membership(0, count, 60, whole_bill)
            members.restore(of_four(whole_bill))
            total = members.total(OWN)
            assert (total.env_frames, total.dollars) == (25 + 21 + 22 + 23, dollars)
            assert members.left_env_frames == sum((21, 22, 23)[count - 1 :])
            # And in the next checkpoint.
            assert members.to_json().keys() == {"1", "2", "3"}


def test_a_learner_that_comes_back_counts_once() -> None:
    members = Membership(0, 3, 60)
    members.restore(of_four(False))
    members.update(2, Member(env_frames=30))
    assert members.total(OWN).env_frames == 25 + 21 + 30 + 23


def test_what_a_process_states_that_has_proved_nothing_is_not_kept() -> None:
    """Anybody with a learner's credential connects as any rank."""
    members = Membership(0, 3, 60)
    members.restore(of_four(False))
    members.on_process(1)
    members.update(1, Member(iteration=10**6, env_frames=10**12))
    assert members.to_json()["1"]["env_frames"] == 21
    assert members.highest_iteration(1) == 0
    members.on_process(1)
    members.update(1, Member(iteration=5, env_frames=22))
    members.on_parameters(1, 5)
    assert members.to_json()["1"]["env_frames"] == 21, "whoever lies has parameters, too"
    members.on_proof(1)
    assert members.to_json()["1"]["env_frames"] == 22
    assert members.highest_iteration(1) == 5
    members.on_process(2)
    members.update(2, Member(env_frames=30), is_requested=True)
    assert members.to_json()["2"]["env_frames"] == 30, "it has answered at its address"
    members.update(2, Member(env_frames=10**12))
    assert members.to_json()["2"]["env_frames"] == 30, "what is connected may be another one"


def test_who_has_left_is_no_peer() -> None:
    members = Membership(0, 1, 60)
    members.restore(of_four(False))
    assert members.alive() == {0}
    assert (members.furthest(OWN).updates, members.furthest(OWN).seconds) == (5, 9.0)
    assert members.mean_return(lambda episodes: 3.0, 10) == 3.0
    assert members.share(10) == 10


def test_one_learner_has_others_only_where_its_checkpoint_has_some() -> None:
    experiment = parse_experiment("name: a\nenvironment: {id: x}")
    assert make_membership(experiment, 0, {}) is None
    found = make_membership(experiment, 0, of_four(False))
    assert found is not None
    assert found.count == 1
