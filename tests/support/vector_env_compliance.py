"""What every kind of environment group promises; each kind's tests inherit this class."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest

from seedbed.spec import TimeStep, VectorEnv

SEEDS = (11, 22, 33)
E = len(SEEDS)


class VectorEnvCompliance(ABC):
    """Implement `make` so that within `steps` random steps, at least one episode ends."""

    steps = 60

    @abstractmethod
    def make(self, seeds: Sequence[int]) -> VectorEnv: ...

    def play(self, seeds: Sequence[int] = SEEDS) -> list[TimeStep]:
        """Rows 0 .. steps of a run with random actions (the same ones at every call)."""
        group = self.make(seeds)
        try:
            return self._play(group)
        finally:
            group.close()

    def _play(self, group: VectorEnv, first: TimeStep | None = None) -> list[TimeStep]:
        random = np.random.default_rng(0)
        frames = [first or group.reset()]
        for _ in range(self.steps):
            action = random.integers(0, group.spec.actions, E).astype(np.int32)
            frames.append(group.step(action))
        return frames

    @pytest.fixture(scope="class")
    @classmethod
    def rows(cls) -> list[TimeStep]:
        """One run, for all the tests of a class that only look."""
        return cls().play()

    def test_frames_have_the_shapes_and_dtypes_of_the_wire(self) -> None:
        group = self.make(SEEDS)
        spec = group.spec
        frames = [group.reset(), group.step(np.zeros(E, np.int32))]
        group.close()
        assert group.num_envs == E
        assert spec.actions >= 2
        assert spec.action_repeat >= 1
        for frame in frames:
            assert frame.observation.shape == (E, *spec.observation.shape)
            assert frame.observation.dtype == np.dtype(spec.observation.dtype)
            assert frame.reward.dtype == np.float32
            for flags in frame[2:]:
                assert flags.dtype == np.bool_
            for array in frame:
                assert array.shape[0] == E
                assert array.flags.c_contiguous

    def test_a_first_row_follows_each_finished_row_and_nothing_else(
        self, rows: list[TimeStep]
    ) -> None:
        assert rows[0].first.all()
        finished = 0
        for before, after in pairwise(rows):
            done = before.terminated | before.truncated
            finished += int(done.sum())
            np.testing.assert_array_equal(after.first, done)
        assert finished > 0

    def test_a_first_row_carries_nothing_of_a_transition(self, rows: list[TimeStep]) -> None:
        for frame in rows:
            assert not frame.reward[frame.first].any()
            assert not frame.terminated[frame.first].any()
            assert not frame.truncated[frame.first].any()
            assert not frame.life_lost[frame.first].any()

    def test_an_episode_ends_in_one_way(self, rows: list[TimeStep]) -> None:
        assert not any((frame.terminated & frame.truncated).any() for frame in rows)

    def test_the_finished_row_is_not_the_next_episodes_first(self, rows: list[TimeStep]) -> None:
        for before, after in pairwise(rows):
            for i in np.flatnonzero(after.first):
                assert (before.observation[i] != after.observation[i]).any()

    def test_the_same_seeds_give_the_same_rows(self, rows: list[TimeStep]) -> None:
        for one, other in zip(rows, self.play(), strict=True):
            for a, b in zip(one, other, strict=True):
                np.testing.assert_array_equal(a, b)

    def test_other_seeds_give_other_rows(self, rows: list[TimeStep]) -> None:
        pairs = zip(rows, self.play([seed + 1000 for seed in SEEDS]), strict=True)
        assert any((one.observation != other.observation).any() for one, other in pairs)

    def test_another_incarnation_plays_other_episodes(self, rows: list[TimeStep]) -> None:
        """A learner or an actor that is started again resets with the frames of the run."""
        group = self.make(SEEDS)
        played = []
        for incarnation in (4000, 8000, 4000):
            group.incarnation = incarnation
            played.append(self._play(group))
        group.close()
        for one, other in ((rows, played[0]), played[:2]):
            pairs = zip(one, other, strict=True)
            assert any((a.observation != b.observation).any() for a, b in pairs)
        for one, again in zip(played[0], played[2], strict=True):
            for a, b in zip(one, again, strict=True):
                np.testing.assert_array_equal(a, b)

    def test_a_later_stream_plays_other_episodes(self, rows: list[TimeStep]) -> None:
        group = self.make(SEEDS)
        self._play(group)
        group.incarnation = 4000
        again = self._play(group, group.reset_again())
        group.close()
        assert again[0].first.all()
        pairs = zip(rows, again, strict=True)
        assert any((a.observation != b.observation).any() for a, b in pairs)

    def test_each_environment_follows_its_own_seed(self, rows: list[TimeStep]) -> None:
        """The last environment alone has another seed, so its row changes, and no other."""
        others = self.play([*SEEDS[:-1], 4444])
        last = False
        for one, other in zip(rows, others, strict=True):
            np.testing.assert_array_equal(one.observation[:-1], other.observation[:-1])
            np.testing.assert_array_equal(one.reward[:-1], other.reward[:-1])
            last = last or bool((one.observation[-1] != other.observation[-1]).any())
        assert last

    def test_reset_starts_the_seeds_again(self, rows: list[TimeStep]) -> None:
        group = self.make(SEEDS)
        group.reset()
        for _ in range(5):
            group.step(np.ones(E, np.int32))
        again = self._play(group)
        group.close()
        for one, other in zip(rows, again, strict=True):
            for a, b in zip(one, other, strict=True):
                np.testing.assert_array_equal(a, b)

    def test_rows_are_not_written_to_later(self) -> None:
        group = self.make(SEEDS)
        frames = [group.reset()]
        copies = [[array.copy() for array in frames[0]]]
        for k in range(20):
            frames.append(group.step(np.full(E, k % group.spec.actions, np.int32)))
            copies.append([array.copy() for array in frames[-1]])
        group.close()
        for frame, copy in zip(frames, copies, strict=True):
            for array, kept in zip(frame, copy, strict=True):
                np.testing.assert_array_equal(array, kept)

    def test_a_restart_begins_an_episode_and_touches_no_other_row(self) -> None:
        """The other rows play on as if nothing had been."""
        plain, cut = self.make(SEEDS), self.make(SEEDS)
        chosen = np.array([False, True, False])
        rows = [(plain.reset(), cut.reset())]
        action = np.ones(E, np.int32)
        for step in range(12):
            rows.append((plain.step(action), cut.step(action)))
            if step == 3:
                before = rows[-1][1].observation.copy()
                cut.restart(rows[-1][1], chosen)
        plain.close()
        cut.close()
        begun = rows[4][1]
        assert begun.first[1]
        assert (begun.observation[1] != before[1]).any()
        for ended in (begun.reward, begun.terminated, begun.truncated, begun.life_lost):
            assert not ended[1]
        assert not rows[5][1].first[1], "one restart, one episode"
        for one, other in rows:
            for a, b in zip(one, other, strict=True):
                np.testing.assert_array_equal(a[~chosen], b[~chosen])

    def test_a_wrong_action_is_refused_and_the_group_goes_on(self) -> None:
        group = self.make(SEEDS)
        group.reset()
        limit = group.spec.actions
        action = np.zeros(E, np.int32)
        action[2] = limit
        with pytest.raises(ValueError, match=rf"action {limit} for environment 2 .* {limit - 1}"):
            group.step(action)
        action[2] = -1
        with pytest.raises(ValueError, match="action -1 for environment 2"):
            group.step(action)
        with pytest.raises(ValueError, match=r"int32\[2\].*3 environments"):
            group.step(np.zeros(2, np.int32))
        with pytest.raises(ValueError, match="float32"):
            group.step(np.zeros(E, np.float32))  # type: ignore[arg-type]
        assert group.step(np.zeros(E, np.int32)).observation.shape[0] == E
        group.close()
