"""The one typed schema of an experiment. The same tree is the chart's `experiment:` value.

Units are in the names. An unknown key, a wrong type or an impossible pair is refused with the
key's path, both numbers and the consequence.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from seedbed.config.agents import AGENTS, SYNCHRONOUS, A2c, Dqn, R2d2, Vtrace
from seedbed.config.gossip import Gossip
from seedbed.config.learner import Learner
from seedbed.config.section import NonNegative, Positive, Section, one_of, pattern


class Atari(Section):
    """Preprocessing of `atari:` environments. The defaults are the paper's Table 9."""

    preprocessing: Literal["fast", "exact"] = Field(
        "fast",
        description="`fast` is the C++ vector environment: it resizes by area and draws "
        "0..noop_max no-ops. `exact` follows Table 9 to the letter (bilinear, 1..30), slower.",
    )
    frame_skip: Positive = Field(
        4,
        json_schema_extra={"resume": "steps, frames and the discount's meaning follow from it"},
        description="Action repetition: emulator frames a step.",
    )
    noop_max: Annotated[int, Field(ge=0)] = Field(
        30, description="Most random no-op frames at an episode's start."
    )
    max_frames_per_episode: Positive = Field(
        108_000, description="Emulator frames after which an episode is truncated."
    )
    full_action_space: bool = Field(
        True,
        json_schema_extra={"resume": "it sets the number of actions and what each one does"},
        description="All 18 actions, or the game's own few.",
    )
    sticky_action_probability: Annotated[float, Field(ge=0, le=1)] = Field(
        0.0, description="Chance that the emulator repeats the previous action instead."
    )
    height: Positive = Field(
        84,
        json_schema_extra={"resume": "it sets the network's input shape"},
        description="Pixels of a frame, vertically.",
    )
    width: Positive = Field(
        84,
        json_schema_extra={"resume": "it sets the network's input shape"},
        description="Pixels of a frame, horizontally.",
    )


class Environment(Section):
    """What the actors step."""

    id: str = Field(
        json_schema_extra={"resume": "the policy was trained for that environment"},
        description="`atari:Pong`, any Gymnasium id such as `CartPole-v1`, or `module:factory`.",
        min_length=1,
    )
    kwargs: dict[str, Any] = Field(
        default_factory=dict, description="Passed to the Gymnasium id's or the factory's call."
    )
    atari: Atari = Field(default_factory=Atari, description="For `atari:` ids only.")

    @model_validator(mode="after")
    def _atari_has_no_kwargs(self) -> Environment:
        if self.id.startswith("atari:") and self.kwargs:
            raise ValueError(
                f"environment.kwargs {sorted(self.kwargs)} has no effect with {self.id}: "
                "use environment.atari"
            )
        return self


class Actor(Section):
    """The processes that step environments."""

    processes: Annotated[int, Field(ge=0)] = Field(
        1, description="Actor processes that `seedbed train` starts on this machine."
    )
    groups: Positive = Field(
        2,
        description="Lock-step groups an actor, each a stream of its own. With two, one steps "
        "while the other waits for its actions.",
    )
    envs_per_group: Positive = Field(32, description="Environments E of a group.")
    threads: Positive = Field(
        1, description="Threads that step one group's environments (Atari `fast` only)."
    )
    decorrelate_steps: Annotated[int, Field(ge=0)] = Field(
        0,
        description="Each environment's first episode is cut at a step of its own below this one, "
        "so that episodes do not run in step: games that all begin together lose their first ball "
        "together, and a batch then holds one moment many times. Take an episode's usual length; "
        "0 cuts none.",
    )
    reply_timeout_s: Annotated[float, Field(gt=0)] = Field(
        60.0, description="Longest silence of the learner before the actor reconnects, in seconds."
    )
    connect_timeout_s: Annotated[float, Field(gt=0)] = Field(
        600.0, description="Longest time without any learner before the actor gives up, in seconds."
    )
    max_environment_failures: Positive = Field(
        10,
        description="Failures of environments within ten minutes after which the actor gives up; "
        "each one before that restarts only the environment that raised.",
    )
    metrics_port: Annotated[int, Field(ge=0, le=65535)] = Field(
        0, description="HTTP port for /metrics and /healthz of `seedbed actor`; 0 is none."
    )


class Stop(Section):
    """When the experiment is over: the first that is met. 0 (or null) is never."""

    env_frames: Annotated[int, Field(ge=0)] = Field(0, description="Emulator frames.")
    seconds: NonNegative = Field(0, description="Seconds of training, over all restarts.")
    updates: Annotated[int, Field(ge=0)] = Field(0, description="Updates of the parameters.")
    dollars: NonNegative = Field(0, description="A cap that really stops.")
    mean_return: float | None = Field(None, description="Over the last mean_return_episodes.")
    mean_return_episodes: Positive = Field(100, description="Episodes of mean_return.")


class Cost(Section):
    """Prices, in US dollars an hour, of what the run occupies on this machine."""

    cpu_hour: NonNegative = Field(
        0.031611, description="One vCPU (n1, us-central1, on demand, August 2026)."
    )
    memory_gib_hour: NonNegative = Field(0.004237, description="One GiB of memory, likewise.")
    accelerator_hour: NonNegative = Field(0.0, description="One accelerator.")
    cpus: NonNegative = Field(0, description="vCPUs charged; 0 is all that this machine has.")
    memory_gib: NonNegative = Field(0, description="GiB charged; 0 is all that this machine has.")
    accelerators: Annotated[int, Field(ge=0)] = Field(0, description="Accelerators charged.")
    meter: str = Field(
        "",
        description="URL of a cost meter that prices the whole release, such as "
        "`http://host:9092/status`; the prices here count until it answers. The chart sets it.",
    )


class Evaluation(Section):
    """Playing the policy apart from training."""

    every_frames: Annotated[int, Field(ge=0)] = Field(
        0, description="Emulator frames between two evaluations on the side; 0 is none."
    )
    episodes: Positive = Field(20, description="Episodes of an evaluation during training.")
    at_end: bool = Field(True, description="A last evaluation when the run stops.")
    policy: Literal["agent", "sample", "greedy"] = Field(
        "agent",
        description="How actions are chosen. `agent` leaves it to the agent: `vtrace` and `a2c` "
        "sample, `r2d2` and `dqn` are greedy, but for their evaluation_epsilon.",
    )
    num_envs: Positive = Field(16, description="Environments that play at the same time.")


class Wandb(Section):
    """Weights & Biases, an optional extra: never imported unless enabled."""

    enabled: bool = Field(False, description="Send the run's numbers there.")
    project: str = Field("seedbed", description="The project there.")
    group: str = Field("", description="Runs of a group are shown together, such as a sweep.")
    mode: Literal["online", "offline"] = Field(
        "online", description="`offline` writes into the run directory, to be sent later."
    )


class Logging(Section):
    """What is shown and written while a run goes on."""

    interval_s: Annotated[float, Field(gt=0)] = Field(
        5.0, description="Seconds between two live lines, rows of progress.csv and events."
    )
    scalars: str = Field(
        "",
        description="`module:function`, called each interval with the run's numbers; the dict of "
        "floats that it returns reaches Prometheus and TensorBoard.",
    )
    wandb: Wandb = Field(default_factory=Wandb)


class Experiment(Section):
    """One experiment."""

    name: str = Field(
        description="Names the run directory and, on Kubernetes, nothing else.",
        pattern=r"^[a-z0-9]([a-z0-9-]{0,51}[a-z0-9])?$",
    )
    seed: Annotated[int, Field(ge=0, lt=2**31)] = Field(
        1,
        json_schema_extra={
            "resume": "the parameters were drawn from it, and results are filed under it"
        },
        description="Environment i of actor j is seeded by a function of it, i and j.",
    )
    environment: Environment
    actor: Actor = Field(default_factory=Actor)
    learner: Learner = Field(default_factory=Learner)
    gossip: Gossip = Field(default_factory=Gossip)
    agent: str = Field(
        "vtrace",
        json_schema_extra={
            "pattern": pattern(AGENTS),
            "resume": "the heads, the loss and what their outputs mean belong to that agent",
        },
        description="`vtrace`, `a2c`, `r2d2`, `dqn`, or `module:Class`.",
    )
    agent_options: dict[str, Any] = Field(
        default_factory=dict, description="Hyperparameters of a `module:Class` agent."
    )
    vtrace: Vtrace = Field(default_factory=Vtrace)
    a2c: A2c = Field(default_factory=A2c)
    r2d2: R2d2 = Field(default_factory=R2d2)
    dqn: Dqn = Field(default_factory=Dqn)
    stop: Stop = Field(default_factory=Stop)
    cost: Cost = Field(default_factory=Cost)
    evaluation: Evaluation = Field(default_factory=Evaluation)
    logging: Logging = Field(default_factory=Logging)

    @field_validator("agent")
    @classmethod
    def _agent_is_known(cls, agent: str) -> str:
        return one_of(AGENTS, agent)

    @model_validator(mode="after")
    def _agent_options_are_read(self) -> Experiment:
        if self.agent_options and ":" not in self.agent:
            raise ValueError(
                f"agent_options {sorted(self.agent_options)} is for `module:Class` agents: agent "
                f"{self.agent!r} takes its hyperparameters from the section {self.agent!r}"
            )
        group = self.actor.envs_per_group
        if group > self.learner.inference.max_batch_envs:
            raise ValueError(
                f"actor.envs_per_group {group} is more than learner.inference.max_batch_envs "
                f"{self.learner.inference.max_batch_envs}: a group is answered as a whole "
                "and would never fit a batch"
            )
        if self.learner.deterministic and self.gossip.replicas > 1:
            raise ValueError(
                f"gossip.replicas {self.gossip.replicas} are that many processes, and "
                "learner.deterministic is one thread: set one of them back"
            )
        if self.learner.deterministic and not self.actor.processes:
            raise ValueError(
                "learner.deterministic steps the environments of actor.processes itself, and "
                "actor.processes is 0"
            )
        environments = self.actor.processes * self.actor.groups * group
        if environments > self.learner.inference.slots:
            raise ValueError(
                f"actor.processes {self.actor.processes} x actor.groups {self.actor.groups} x "
                f"actor.envs_per_group {group} are {environments} environments, and "
                f"learner.inference.slots is {self.learner.inference.slots}: the last ones would "
                "be refused"
            )
        return self

    @model_validator(mode="after")
    def _agent_fits_learner(self) -> Experiment:
        learner = self.learner
        if self.agent == "r2d2" and self.r2d2.burn_in and not learner.lstm_units:
            raise ValueError(
                f"r2d2.burn_in {self.r2d2.burn_in} warms up a recurrent state, and "
                "learner.lstm_units is 0: there is none; set one of the two"
            )
        if self.agent == "dqn" and learner.unroll_length != 1:
            raise ValueError(
                f"learner.unroll_length {learner.unroll_length}: dqn trains on single transitions, "
                "set it to 1"
            )
        if self.agent == "dqn" and learner.lstm_units:
            raise ValueError(
                f"learner.lstm_units {learner.lstm_units}: dqn has no recurrent state, use r2d2"
            )
        if self.agent in ("dqn", "r2d2"):
            if learner.epochs_per_batch != 1:
                raise ValueError(
                    f"learner.epochs_per_batch {learner.epochs_per_batch}: {self.agent} draws "
                    f"each batch anew, use "
                    "learner.replay.ratio"
                )
            replay = learner.replay
            if learner.deterministic and replay.storage != "host":
                raise ValueError(
                    f"learner.deterministic runs in one thread, and learner.replay.storage is "
                    f"{replay.storage}: use host"
                )
            connected = self.actor.processes * self.actor.groups * self.actor.envs_per_group
            blocks = self._blocks_before()
            if (
                replay.storage != "remote"
                and replay.min_size + blocks * connected > replay.capacity
            ):
                raise ValueError(
                    f"learner.replay.min_size {replay.min_size} and {blocks} for the "
                    f"start of each of {connected} environments' streams are more than "
                    f"learner.replay.capacity {replay.capacity}: training would never begin"
                )
        return self

    @model_validator(mode="after")
    def _synchronous_agents_fit(self) -> Experiment:
        if self.agent in SYNCHRONOUS:
            self.check_rounds()
        return self

    def check_rounds(self) -> None:
        """Whether a synchronous agent can have its rounds. For `module:Class` agents the learner
        asks, once it has loaded them.

        Raises:
            ValueError: it cannot.
        """
        learner, actor = self.learner, self.actor
        if learner.epochs_per_batch != 1:
            raise ValueError(
                f"learner.epochs_per_batch {learner.epochs_per_batch}: {self.agent} is "
                f"on-policy, and after one update "
                "with a batch that batch is not; set it to 1"
            )
        environments = actor.processes * actor.groups * actor.envs_per_group
        if actor.processes and environments != learner.batch_size:
            raise ValueError(
                f"actor.processes {actor.processes} x actor.groups {actor.groups} x "
                f"actor.envs_per_group {actor.envs_per_group} are {environments} environments, and "
                f"learner.batch_size is {learner.batch_size}: a batch of {self.agent} holds every "
                "environment once; make them equal"
            )

    def _blocks_before(self) -> int:
        """How many blocks before its own a sequence reaches into: so many of each stream are
        stored and cannot be drawn. As `SequenceSpec.predecessors`.
        """
        burn_in = self.r2d2.burn_in if self.agent == "r2d2" else 0
        lookahead = self.dqn.n_steps - 1 if self.agent == "dqn" else 0
        steps = self.learner.unroll_length
        frames = self.learner.frame_stack + burn_in + steps + lookahead
        return -(-frames // steps) - 1

    @model_validator(mode="after")
    def _learners_fit(self) -> Experiment:
        gossip, learner = self.gossip, self.learner
        if gossip.replicas == 1:
            return self
        if gossip.deadline_s >= learner.watchdog_timeout_s:
            raise ValueError(
                f"gossip.deadline_s {gossip.deadline_s:g} is not below "
                f""
                f"learner.watchdog_timeout_s {learner.watchdog_timeout_s:g}: the watchdog "
                f"would end a "
                "learner before it gives a dead peer up"
            )
        if self.agent in ("dqn", "r2d2") and learner.replay.storage == "remote":
            raise ValueError(
                f"gossip.replicas {gossip.replicas} with learner.replay.storage remote: shards "
                f"hold "
                "the experience of one learner; use storage host or device, or one learner"
            )
        on_device = self.agent in ("dqn", "r2d2") and learner.replay.storage == "device"
        if gossip.topology == "allreduce" and on_device:
            raise ValueError(
                "gossip.topology allreduce makes each update of everybody's gradients, and "
                "learner.replay.storage device makes it in one compiled step: use storage "
                "host, or gossip"
            )
        return self

    @model_validator(mode="after")
    def _dollars_can_be_spent(self) -> Experiment:
        cost = self.cost
        if self.stop.dollars and not (
            cost.cpu_hour or cost.memory_gib_hour or (cost.accelerator_hour and cost.accelerators)
        ):
            raise ValueError(
                f"stop.dollars {self.stop.dollars:g} would never be reached: cost.cpu_hour, "
                "cost.memory_gib_hour and cost.accelerator_hour x cost.accelerators are all 0"
            )
        if self.stop.dollars and cost.accelerators and not cost.accelerator_hour:
            raise ValueError(
                f"stop.dollars {self.stop.dollars:g} is no cap while cost.accelerators "
                f"{cost.accelerators} cost nothing: set cost.accelerator_hour"
            )
        return self
