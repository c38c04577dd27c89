"""The distances between learners and their bounds, against dense matrices of everything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from seedbed.analysis.consensus import (
    ConsensusAnalysis,
    Point,
    analyse,
    analyse_run,
)
from seedbed.analysis.contraction_windows import ContractionWindows
from seedbed.analysis.events import Event, Message, events_file, read_events
from seedbed.analysis.mixing_steps import causal_order, mixing_steps
from seedbed.analysis.propositions import Envelope, proposition_1
from seedbed.analysis.snapshots import NORMS, Norm, common, cosine_similarity, gram, numbered
from tests.support.gossip_files import Gossip, random_graph, ring

Array = NDArray[np.float64]
ROUNDING = 1 + 1e-5  # the files keep float32


def distance(x: Array, norm: Norm) -> float:
    """By the definition."""
    if norm == "frobenius":
        return float(np.linalg.norm(x - x.mean(axis=0)))
    return max(float(np.linalg.norm(a - b)) for a in x for b in x)


class Dense:
    """All states there ever are, learners and every message: one dense matrix an event."""

    def __init__(self, gossip: Gossip) -> None:
        self.n = gossip.n
        self.history = gossip.history
        self.state = {
            (i, version): self.n + at
            for at, (i, version) in enumerate(
                (i, version) for _, kind, i, _, version in self.history if kind == "update"
            )
        }
        self.size = self.n + len(self.state)

    def matrix(self, at: int) -> Array:
        _, kind, i, data, version = self.history[at]
        p = np.eye(self.size)
        if kind == "update":
            p[self.state[i, version]] = p[i]
        else:
            p[i] = (1 - sum(w for _, _, w in data)) * p[i]
            for j, v, w in data:
                p[i, self.state[j, v]] += w
        return p

    def at(self, end: int, x0: Array) -> tuple[Array, dict[Norm, float]]:
        """The learners after `end` events, and the exact bound there."""
        product = np.eye(self.size)[: self.n]
        x = np.zeros_like(x0)
        bound: dict[Norm, float] = dict.fromkeys(NORMS, 0.0)
        for at in range(end - 1, -1, -1):
            _, kind, i, u, _ = self.history[at]
            product = product @ self.matrix(at)
            if kind == "update":  # u is in the learner's row before it is copied into its message
                column = product[:, i : i + 1]
                x += column * u
                for norm in NORMS:
                    bound[norm] += distance(column, norm) * float(np.linalg.norm(u))
        begun = product[:, : self.n] @ x0
        for norm in NORMS:
            bound[norm] += distance(begun, norm)
        return x + begun, bound

    def coefficient(self, length: int) -> float:
        """β_w over all windows, from the states that are still read."""
        cuts = [at for at, item in enumerate(self.history) if item[1] == "update"]
        worst = 0.0
        for first, end in zip(cuts, cuts[length:], strict=False):
            product = np.eye(self.size)
            for at in range(first, end):
                product = self.matrix(at) @ product
            made = {self.state[i, v] for _, k, i, _, v in self.history[:end] if k == "update"}
            read = {
                self.state[j, v]
                for _, kind, _, data, _ in self.history[end:]
                if kind != "update"
                for j, v, _ in data
            }
            rows = product[sorted({*range(self.n)} | (made & read))]
            worst = max(worst, *(float(np.abs(a - b).sum()) / 2 for a in rows for b in rows))
        return worst


def random_gossip(
    seed: int, late: bool = False, skewed: bool = False, most_updates: int = 45
) -> Gossip:
    """A few dozen ticks with any topology, delays, and sometimes a failure and a return."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 6))
    gossip = Gossip(
        random_graph(n, rng),
        seed=seed,
        delay=int(rng.integers(0, 8)),
        mixes=float(rng.choice([1.0, 0.6])),
        apart=float(rng.choice([0.0, 1.0, 10.0])),
        every_s=0.01,
        synchronous=bool(rng.uniform() < 0.3),
        now=1000.0005 if late else 1000.0,
        skew=rng.uniform(-0.004, 0.004, size=n) if skewed else None,
    )
    ticks = 400 if late or skewed else most_updates // (n if gossip.synchronous else 1)
    gone, back = sorted(int(t) for t in rng.integers(1, ticks, size=2))
    dies = int(rng.integers(0, n)) if n > 2 and rng.uniform() < 0.5 else None
    for tick in range(ticks):
        if dies is not None and tick == gone:
            gossip.stop(dies)
        gossip.tick()
        if dies is not None and tick == back:
            gossip.come_back(dies)
    return gossip


def analysed(gossip: Gossip, run_dir: Path, **more: Any) -> ConsensusAnalysis:
    gossip.write(run_dir)
    logs = [read_events(events_file(run_dir, i), i) for i in range(gossip.n)]
    files = numbered(run_dir, gossip.n, "snapshot")
    grams = {number: gram([of[number] for of in files]) for number in common(files)}
    return analyse(logs, grams, gossip.every_s, **{"staleness": 2, "window": 1} | more)


def with_distance(analysis: ConsensusAnalysis) -> list[Point]:
    points = [point for point in analysis.points if point.snapshot is not None]
    assert points
    return points


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("seeds", [range(at, at + 50) for at in range(0, 300, 50)])
def test_distances_and_bounds_are_those_of_the_dense_matrices(seeds: range, tmp_path: Path) -> None:
    for seed in seeds:
        gossip = random_gossip(seed)
        analysis = analysed(gossip, tmp_path / str(seed))
        dense = Dense(gossip)
        x0 = np.stack([of[100_000] for of in gossip.snapshots])
        for point in with_distance(analysis):
            assert point.snapshot is not None
            end = sum(item[0] < point.snapshot * gossip.every_s for item in gossip.history)
            x, bound = dense.at(end, x0)
            for norm in NORMS:
                values = point.values(norm)
                assert values.distance == pytest.approx(distance(x, norm), rel=1e-5, abs=1e-5)
                assert values.bound == pytest.approx(bound[norm], rel=1e-9), seed
                assert distance(x, norm) <= bound[norm] * ROUNDING


@pytest.mark.slow
@pytest.mark.parametrize("late", [True, False])
def test_no_violation_with_messages_from_before_the_first_snapshot_and_skewed_clocks(
    late: bool, tmp_path: Path
) -> None:
    bounded = carried = 0
    for seed in range(24):
        analysis = analysed(random_gossip(seed, late=late, skewed=True), tmp_path / str(seed))
        for point in with_distance(analysis):
            for norm in NORMS:
                values = point.values(norm)
                if values.bound is not None and values.distance is not None:
                    bounded += 1
                    carried += values.start is not None and values.start > values.distance * 1.01
                    assert values.distance <= values.bound * ROUNDING + 1e-6, (seed, point)
    assert bounded > 100
    assert carried > 3, "no segment began with messages on their way"


@pytest.mark.slow
def test_propositions_are_above_the_exact_bound(tmp_path: Path) -> None:
    shown = set()
    for seed in range(20):
        analysis = analysed(
            random_gossip(seed, skewed=seed % 2 > 0, late=True), tmp_path / str(seed)
        )
        for point in analysis.points:
            for norm in NORMS:
                values = point.values(norm)
                if values.bound is None:
                    continue
                for name in ("proposition_1", "proposition_2"):
                    level = getattr(values, name)
                    if level is not None:
                        shown.add((name, norm))
                        assert values.bound <= level * (1 + 1e-9), (seed, name, point)
    assert len(shown) == 4


def test_contraction_of_windows_is_that_of_the_dense_matrices() -> None:
    contracted = 0
    for seed in range(20):
        gossip = random_gossip(seed, most_updates=40)
        logs = [
            [
                Event(i, time, "update", version, 1.0)
                if kind == "update"
                else Event(i, time, "mix" if kind == "mix" else "adopt", 0, 0.0, messages(data))
                for time, kind, i, data, version in gossip.history
                if i == learner
            ]
            for learner in range(gossip.n)
        ]
        steps, rows = mixing_steps(causal_order(logs), gossip.n)
        windows = ContractionWindows(steps, [(0, len(steps))], gossip.n, rows)
        for length in (2, 8, 24):
            wanted = Dense(gossip).coefficient(length)
            contracted += wanted < 1 - 1e-9
            assert windows.coefficient(length) == pytest.approx(wanted, abs=2e-9), (seed, length)
    assert contracted > 4


def messages(data: list[tuple[int, int, float]]) -> tuple[Message, ...]:
    return tuple(Message(*item) for item in data)


def by_hand(
    tmp_path: Path, logs: list[list[Event]], shown: dict[int, list[list[float]]]
) -> ConsensusAnalysis:
    """Snapshots every second, of the parameters given by their number."""
    grams = {}
    for number, x in shown.items():
        files = []
        for i, row in enumerate(x):
            files.append(tmp_path / f"{number}-{i}.npy")
            np.save(files[-1], np.array(row, np.float32))
        grams[number] = gram(files)
    return analyse(logs, grams, 1.0, None, None)


def test_in_the_2_norm_a_mix_can_expand_and_in_the_spread_it_cannot(tmp_path: Path) -> None:
    logs = [
        [Event(0, 0.5, "start", 0), Event(0, 2.5, "mix", 0, 0.0, (Message(2, 1, 0.5),))],
        [Event(1, 0.5, "start", 0), Event(1, 1.5, "update", 1, 1.0)],
        [Event(2, 0.5, "start", 0), Event(2, 1.6, "update", 1, 1.0)],
    ]
    shown = {1: [[0.0]] * 3, 2: [[0.0], [1.0], [-1.0]], 3: [[-0.5], [1.0], [-1.0]]}
    analysis = by_hand(tmp_path, logs, shown)
    _, before, after = with_distance(analysis)
    assert before.frobenius.distance == pytest.approx(1.414, abs=5e-4)
    assert after.frobenius.distance == pytest.approx(1.472, abs=5e-4)
    assert before.spread.distance == after.spread.distance == 2.0
    assert after.frobenius.bound is not None
    assert after.frobenius.distance is not None
    assert after.frobenius.bound >= after.frobenius.distance
    assert after.spread.bound == pytest.approx(2.0)
    # An update that was never mixed is √(2/3) from its average, still when the next one is made.
    assert analysis.beta["frobenius"] == pytest.approx((2 / 3) ** (1 / 4))
    assert after.frobenius.proposition_1 == pytest.approx((2 / 3) ** (1 / 2) + (2 / 3) ** (1 / 4))


def test_a_message_on_its_way_at_the_first_snapshot_is_bounded(tmp_path: Path) -> None:
    """Learner 0 went from 1, which it sent, to 3; then learner 1 takes the 1 for its own."""
    logs = [
        [
            Event(0, 0.5, "start", 0),
            Event(0, 1.1, "update", 1, 1.0),
            Event(0, 1.2, "update", 2, 2.0),
        ],
        [Event(1, 0.5, "start", 0), Event(1, 2.5, "mix", 0, 0.0, (Message(0, 1, 1.0),))],
    ]
    first, last = with_distance(by_hand(tmp_path, logs, {2: [[3.0], [0.0]], 3: [[3.0], [1.0]]}))
    assert first.spread.bound == first.spread.distance == 3.0
    assert last.spread.bound == last.spread.distance == 2.0
    assert last.frobenius.bound == pytest.approx(2**0.5)


def test_a_product_above_1_leaves_no_beta_in_the_2_norm(tmp_path: Path) -> None:
    """Half of eight learners adopt the same update: its column is (1 1 1 1 0 0 0 0)."""
    logs = [[Event(i, 0.5, "start", 0)] for i in range(8)]
    logs[0].append(Event(0, 1.5, "update", 1, 1.0))
    for i in (1, 2, 3):
        logs[i].append(Event(i, 1.6, "mix", 0, 0.0, (Message(0, 1, 1.0),)))
    analysis = by_hand(tmp_path, logs, {1: [[0.0]] * 8, 2: [[1.0]] * 4 + [[0.0]] * 4})
    assert analysis.largest_product["frobenius"] == pytest.approx(2**0.5)
    assert analysis.beta["frobenius"] is None
    assert analysis.beta["spread"] == 1.0
    point = with_distance(analysis)[-1]
    assert point.frobenius.proposition_1 is None
    assert point.spread.proposition_1 == 1.0


def test_beta_is_the_smallest_that_bounds_every_product() -> None:
    envelope = Envelope(10)
    assert envelope.beta() is None, "nothing was seen"
    envelope.add(np.array([4, 2]), np.array([0.5**4, 0.6**2]))
    envelope.add(np.array([4]), np.array([0.7**4]))
    assert envelope.beta() == pytest.approx(0.7)
    envelope.add(np.array([1]), np.array([1.01]))
    assert envelope.beta() is None
    assert proposition_1([2.0, 3.0], 0.5) == pytest.approx([0, 1.0, 0.5 + 1.5])


def test_pruned_columns_stay_in_the_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gossip = Gossip(ring(3), seed=5, delay=2, apart=1.0, every_s=0.05)
    for _ in range(1500):
        gossip.tick()
    monkeypatch.setattr("seedbed.analysis.mixing_products.CONSENSUS", 0.0)
    whole = analysed(gossip, tmp_path)
    for below, far in ((1e-12, 1e-9), (1e-2, 10.0)):
        monkeypatch.setattr("seedbed.analysis.mixing_products.CONSENSUS", below)
        pruned = analysed(gossip, tmp_path)
        for a, b in zip(whole.points, pruned.points, strict=True):
            for norm in NORMS:
                exact, upper = a.values(norm).bound, b.values(norm).bound
                assert exact is not None
                assert upper is not None
                assert exact * (1 - 1e-12) <= upper <= exact + far
    last = pruned.points[-1].values("spread").bound
    assert last is not None
    assert last > (whole.points[-1].spread.bound or 0) + 1e-3, "nothing was pruned"


def test_skewed_clocks_do_not_put_a_mix_before_its_message() -> None:
    logs = [
        [Event(0, 5.0, "update", 1, 1.0), Event(0, 5.0, "update", 2, 1.0)],
        [
            Event(1, 4.0, "mix", 7, 0.0, (Message(0, 1, 0.5),)),
            Event(1, 4.1, "update", 8, 1.0),
        ],
        [Event(2, 4.05, "update", 1, 1.0), Event(2, 5.0, "update", 2, 1.0)],
    ]
    assert [(e.learner, e.kind, e.iteration) for e in causal_order(logs)] == [
        (2, "update", 1),
        (0, "update", 1),
        (1, "mix", 7),
        (1, "update", 8),
        (0, "update", 2),
        (2, "update", 2),
    ]


def test_a_restart_without_adoption_begins_a_segment(tmp_path: Path) -> None:
    gossip = Gossip(ring(3), seed=3, delay=1, every_s=0.05)
    for tick in range(1000):
        gossip.tick()
        if tick == 400:
            gossip.stop(1)
            gossip.come_back(1, adopts=False)
    analysis = analysed(gossip, tmp_path)
    assert analysis.segments == 2
    restart = next(mark for mark in analysis.marks if mark.what == "restart")
    assert restart.learner == 1
    after = [p for p in analysis.points if p.seconds >= restart.seconds]
    again = next(p for p in after if p.segment == 1)
    assert again.snapshot is not None
    between = [p for p in after if p.seconds < again.seconds]
    assert all(p.segment is None and p.spread.bound is None for p in between)
    assert all(p.segment == 0 for p in analysis.points if p.seconds < restart.seconds)
    for point in with_distance(analysis):
        for norm in NORMS:
            values = point.values(norm)
            if values.bound is not None:
                assert values.distance is not None
                assert values.distance <= values.bound * ROUNDING
    assert again.spread.start == pytest.approx(again.spread.distance, rel=0.2)
    # Twice 320 updates would fit into the run, but not into one segment.
    assert "β_w = 1" in str(analysed(gossip, tmp_path, staleness=318, window=1).proposition_2)


def test_a_learner_that_lost_its_log_is_bounded_from_its_return_on(tmp_path: Path) -> None:
    gossip = Gossip(ring(3), seed=3, delay=1, every_s=0.05, mixes=0.3)
    for tick in range(2000):
        gossip.tick()
        if tick == 900:
            gossip.stop(1)
            gossip.lose_directory(1)
        elif tick == 1000:
            gossip.come_back(1)
            returned = gossip.now - 1000.0
    analysis = analysed(gossip, tmp_path)
    assert analysis.counts["lost"] > 50, "all that 2 mixed of 1's first life"
    assert analysis.counts["mix"] > 200
    assert analysis.segments == 1
    assert not [p for p in analysis.points if p.segment is not None and p.seconds < returned]
    bounded = [p for p in with_distance(analysis) if p.spread.bound is not None]
    assert len(bounded) > 15
    for point in bounded:
        for norm in NORMS:
            values = point.values(norm)
            assert values.distance is not None
            assert values.bound is not None
            assert values.distance <= values.bound * ROUNDING


def test_a_snapshot_between_start_and_adoption_does_not_count(tmp_path: Path) -> None:
    logs = [
        [Event(0, 0.5, "start", 0), Event(0, 1.5, "update", 1, 1.0)],
        [
            Event(1, 0.5, "start", 0),
            Event(1, 1.6, "start", 0),
            Event(1, 2.5, "adopt", 0, 0.0, (Message(0, 1, 1.0),)),
        ],
    ]
    shown = {1: [[0.0], [0.0]], 2: [[1.0], [77.0]], 3: [[1.0], [1.0]]}
    analysis = by_hand(tmp_path, logs, shown)
    assert [point.snapshot for point in with_distance(analysis)] == [1, 3]
    assert analysis.segments == 1, "an adoption is a row like any other"
    assert analysis.points[-1].spread.bound == 0.0


def test_infinite_staleness_or_unknown_window_has_no_level(tmp_path: Path) -> None:
    gossip = Gossip(ring(3), synchronous=True)
    for _ in range(200):
        gossip.tick()
    assert "staleness" in str(analysed(gossip, tmp_path, staleness=None).proposition_2)
    assert "finite B" in str(analysed(gossip, tmp_path, window=None).proposition_2)
    level = analysed(gossip, tmp_path, staleness=0, window=1).proposition_2
    assert not isinstance(level, str)
    assert level.beta_w < 1


def test_level_holds_for_snapshots_that_clocks_took_apart(tmp_path: Path) -> None:
    """Both learners drift; one's clock is 50 iterations late, and so are its snapshots."""
    gossip = Gossip(np.full((2, 2), 0.5), skew=np.array([0.0, -0.05]), apart=0.0, every_s=0.1)
    for _ in range(500):
        gossip.ticks += 1
        gossip.now += 0.001
        for i in (0, 1):
            gossip.update_of(i, np.ones(5))
        for i in (0, 1):
            gossip.mix_of(i)
    analysis = analysed(gossip, tmp_path, staleness=0, window=1)
    assert not isinstance(analysis.proposition_2, str)
    for norm in NORMS:
        point = with_distance(analysis)[-1].values(norm)
        assert point.distance is not None
        assert point.proposition_2 is not None
        assert analysis.proposition_2.level_spread < point.distance <= point.proposition_2


def test_learners_that_never_mix_have_no_level(tmp_path: Path) -> None:
    gossip = Gossip(ring(3), mixes=0.0)
    for _ in range(200):
        gossip.tick()
    assert "β_w = 1" in str(analysed(gossip, tmp_path, staleness=0, window=1).proposition_2)


def test_cosine_similarity_of_known_vectors(tmp_path: Path) -> None:
    vectors = {0: [[1, 0], [1, 1], [0, 0]], 500: [[0, 2], [0, -3], [5, 0]], 900: [[1, 1]]}
    for iteration, of_learner in vectors.items():
        for i, vector in enumerate(of_learner):
            folder = tmp_path / f"learner-{i}" / "gossip"
            folder.mkdir(parents=True, exist_ok=True)
            np.save(folder / f"gradient-{iteration}.npy", np.array(vector, np.float32))
    similarity, iterations = cosine_similarity(numbered(tmp_path, 3, "gradient"))
    assert iterations == [0, 500], "900 is one learner's only"
    both = (0.5**0.5 - 1) / 2
    expected = [[1, both, 0], [both, 1, 0], [0, 0, 1]]  # of learner 2 only 500 has a direction
    np.testing.assert_allclose(similarity, expected, atol=1e-7)


def test_analysis_of_a_directory_is_that_of_its_logs(tmp_path: Path) -> None:
    gossip = random_gossip(1)
    analysis = analysed(gossip, tmp_path)
    again = analyse_run(tmp_path, gossip.n, gossip.every_s, 2, 1)
    assert again.points == analysis.points
