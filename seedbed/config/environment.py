"""Sections `environment` and `actor`: what is stepped, and the processes that step it."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from seedbed.config.first_person import Lab, Vizdoom
from seedbed.numbers import DEFAULT_BOUNDS, Bounds
from seedbed.settings import (
    ACTIONS,
    FREE,
    INPUT,
    REPEAT,
    RESULT,
    Free,
    KeyClass,
    Positive,
    Section,
    identity,
)
from seedbed.spec import ACTORS, ENVIRONMENTS, GROUPS

# Largest float32: no number on the wire is larger.
FLOAT32_MAX = 3.4028235e38
# Prefixes of ids that are ours; each has a section of its name in `environment`, and no kwargs.
FAMILIES = ("atari", "football", "lab", "vizdoom")


class Atari(Section):
    """Preprocessing of `atari:` environments.

    The defaults are the Table 9 of the SEED paper, but for
    `preprocessing`; evaluations use `exact`, whatever is set here.
    """

    key_class: ClassVar[KeyClass] = RESULT

    preprocessing: Literal["fast", "exact"] = "fast"
    """Implementation. `fast` is the C++ vector environment, which resizes by area and draws 0 to
    noop_max no-ops. Where a game ends within a repeated action, the last observation of the
    episode is the one before: no value is bootstrapped there. `exact` follows Table 9 to the letter
    (bilinear, 1 to 30 no-ops, the true last screen). A core steps as many with either; `exact`
    takes `actor.workers` for several cores.
    """
    frame_skip: Annotated[Positive, REPEAT] = 4
    """Action repetition: emulator frames a step."""
    noop_max: Annotated[int, Field(ge=0)] = 30
    """Most random no-op frames at the start of an episode."""
    max_frames_per_episode: Positive = 108_000
    """Emulator frames after which an episode is truncated."""
    full_action_space: Annotated[bool, ACTIONS] = True
    """All 18 actions; false takes only the actions that the game uses."""
    sticky_action_probability: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Probability that the emulator repeats the previous action instead."""
    height: Annotated[Positive, INPUT] = 84
    """Height of a frame, in pixels."""
    width: Annotated[Positive, INPUT] = 84
    """Width of a frame, in pixels."""


class Football(Section):
    """Observations and rewards of `football:` environments (section 4.2 of the SEED paper)."""

    smm: Annotated[Literal["96x72", "120x90", "144x108"], INPUT] = "96x72"
    """Width and height of the Super Mini Map: the Default, Medium and Large size of the paper."""
    rewards: Annotated[Literal["scoring", "scoring,checkpoints"], RESULT] = "scoring"
    """Rewards: `scoring` gives 1 for a goal, -1 for one of the opponents; `checkpoints` adds 0.1
    for each of ten distances from the opponents' goal that the ball reaches with the agent, once an
    episode.
    """


class Environment(Section):
    """Environment that the actors step."""

    id: Annotated[str, identity("the policy was trained for that environment")] = Field(
        min_length=1
    )
    """Name of the environment: `atari:Pong`, `football:11_vs_11_hard_stochastic`,
    `lab:explore_goal_locations_small`, `vizdoom:basic`, any Gymnasium id such as `CartPole-v1`, or
    `module:factory`.
    """
    kwargs: Annotated[Free, RESULT] = Field(default_factory=dict)
    """Keyword arguments for `gymnasium.make`, or for the factory."""
    action_mask: Annotated[bool, identity("the network reads it")] = False
    """Masks of valid actions in `info["action_mask"]` of reset and step, which the actor-critic
    agents obey. An observation's entry of the name `action_mask` is obeyed without this.
    """
    atari: Atari = Field(default_factory=Atari)
    """Settings of `atari:` ids only."""
    football: Football = Field(default_factory=Football)
    """Settings of `football:` ids only."""
    lab: Lab = Field(default_factory=Lab)
    """Settings of `lab:` ids only."""
    vizdoom: Vizdoom = Field(default_factory=Vizdoom)
    """Settings of `vizdoom:` ids only."""
    max_abs_reward: Annotated[float, FREE, Field(gt=0, le=FLOAT32_MAX)] = DEFAULT_BOUNDS.reward
    """Largest magnitude of a reward. A larger reward, NaN or infinity ends the stream of the
    environments that sent it, because one such number makes the loss infinite.
    """
    max_abs_observation: Annotated[float, FREE, Field(gt=0, le=FLOAT32_MAX)] = (
        DEFAULT_BOUNDS.observation
    )
    """Largest magnitude of a number of a float observation, as `max_abs_reward`. The dtype bounds
    observations of integers.
    """

    @property
    def bounds(self) -> Bounds:
        """Largest magnitudes of rewards and observations."""
        return Bounds(self.max_abs_reward, self.max_abs_observation)

    @property
    def family(self) -> str:
        """Prefix of an id that is ours, such as `atari`; "" of every other id."""
        prefix, colon, _ = self.id.partition(":")
        return prefix if colon and prefix in FAMILIES else ""

    @model_validator(mode="after")
    def _families_have_no_kwargs(self) -> "Environment":
        if self.family and self.kwargs:
            raise ValueError(
                f"environment.kwargs {sorted(self.kwargs)} has no effect with {self.id}: "
                f"use environment.{self.family}"
            )
        return self


class Actor(Section):
    """The processes that step environments."""

    key_class: ClassVar[KeyClass] = FREE  # any number of actors, anywhere, as `kubectl scale` does

    processes: Annotated[int, Field(ge=0, le=ACTORS)] = 1
    """Actor processes that `seedbed train` starts on this machine."""
    groups: Annotated[int, Field(ge=1, le=GROUPS)] = 2
    """Vector environments of an actor, each with a stream. With two, one steps while the other
    waits for actions.
    """
    envs_per_group: Annotated[int, Field(ge=1, le=ENVIRONMENTS)] = 32
    """Environments E of a group."""
    threads: Positive = 1
    """Threads that step one group's environments (Atari `fast` only)."""
    workers: Annotated[int, Field(ge=0)] = 0
    """Worker processes over which the environments of each group are divided, for environments that
    hold the interpreter lock (Atari `exact`, pure Python) or are slow; at most one for each
    environment. The time steps are the same. 0 steps the environments in the actor's own process.
    Atari `fast` has threads instead.
    """
    environment_timeout_s: Annotated[float, Field(ge=0)] = 600.0
    """Longest construction, reset or step of one environment, in seconds; 0 waits without end. A
    process whose call takes longer is ended: a worker is replaced, an actor without workers ends
    with exit code 11. A call of ten seconds is named on the live line. Atari `fast` steps all
    environments of a group in one call.
    """
    decorrelate_steps: Annotated[int, RESULT, Field(ge=0)] = 0
    """Upper bound of the step at which the first episode of each environment is cut; each
    environment has another step. Without the cut, games that begin together lose the first ball
    together, and a batch holds one moment many times. Take the usual length of an episode; 0 cuts
    none.
    """
    reply_timeout_s: Annotated[float, Field(gt=0)] = 60.0
    """Longest silence of the learner before the actor reconnects, in seconds; at least twice
    `learner.notice_interval_s`.
    """
    connect_timeout_s: Annotated[float, Field(gt=0)] = 600.0
    """Longest time without any learner before the actor gives up, in seconds. One attempt to
    connect may take 20 s.
    """
    max_environment_failures: Positive = 10
    """Failures of environments within ten minutes after which the actor gives up; an earlier
    failure restarts only the environment that failed, and the end of a worker only the environments
    of that worker. Refusals of a group's rewards or observations
    by the learner are counted in the same way, and restart the group's environments.
    """
    metrics_port: Annotated[int, Field(ge=0, le=65535)] = 0
    """HTTP port for /metrics and /healthz of `seedbed actor`, on 127.0.0.1 or the address in the
    environment variable SEEDBED_METRICS_HOST; 0 is none.
    """

    @model_validator(mode="after")
    def _each_worker_has_an_environment(self) -> "Actor":
        if self.workers > self.envs_per_group:
            raise ValueError(
                f"actor.workers {self.workers} is more than actor.envs_per_group "
                f"{self.envs_per_group}: the workers of a group share its environments, and some "
                "would have none; take at most one for each environment"
            )
        return self

    @property
    def total_envs(self) -> int:
        """Environments of all actor processes of this machine."""
        return self.processes * self.groups * self.envs_per_group
