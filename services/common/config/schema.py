"""The one typed schema of an experiment. The same tree is the chart's `experiment:` value.

Units are in the names. An unknown key, a wrong type or an impossible pair is refused with the
key's path, both numbers and the consequence.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)

Positive = Annotated[int, Field(ge=1)]
NonNegative = Annotated[float, Field(ge=0)]


class Section(BaseModel):
    """A part of the experiment: immutable, and refusing unknown keys, wrong types and numbers
    that are not finite.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _of_its_type(cls, value: Any, info: ValidationInfo) -> Any:
        """`true` is no number, "16" neither, "yes" is no truth; but 2e8 is an integer."""
        wanted = cls.model_fields[str(info.field_name)].annotation
        if wanted is bool and not isinstance(value, bool):
            raise ValueError("must be true or false")
        if wanted in (int, float, float | None) and isinstance(value, bool | str):
            raise ValueError("must be a number")
        return value


class Atari(Section):
    """Preprocessing of `atari:` environments. The defaults are the paper's Table 9."""

    table9: Literal["fast", "exact"] = Field(
        "fast",
        description="`fast` is the C++ vector environment: it resizes by area and draws "
        "0..noop_max no-ops. `exact` follows Table 9 to the letter (bilinear, 1..30), slower.",
    )
    frame_skip: Positive = Field(4, description="Action repetition: emulator frames a step.")
    noop_max: Annotated[int, Field(ge=0)] = Field(
        30, description="Most random no-op frames at an episode's start."
    )
    max_frames_per_episode: Positive = Field(
        108_000, description="Emulator frames after which an episode is truncated."
    )
    full_action_space: bool = Field(True, description="All 18 actions, or the game's own few.")
    sticky_action_probability: Annotated[float, Field(ge=0, le=1)] = Field(
        0.0, description="Chance that the emulator repeats the previous action instead."
    )
    height: Positive = Field(84, description="Pixels of a frame, vertically.")
    width: Positive = Field(84, description="Pixels of a frame, horizontally.")


class Environment(Section):
    """What the actors step."""

    id: str = Field(
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
    environments: Positive = Field(32, description="Environments E a group.")
    threads: Positive = Field(
        1, description="Threads that step one group's environments (Atari `fast` only)."
    )
    stagger_steps: Annotated[int, Field(ge=0)] = Field(
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


class Inference(Section):
    """How actions are computed."""

    batch_environments: Annotated[int, Field(ge=0)] = Field(
        0,
        description="Environments at which a batch is full. 0 takes half of those connected, "
        "since the groups of an actor alternate.",
    )
    max_batch_environments: Positive = Field(512, description="Largest batch, in environments.")
    max_wait_ms: NonNegative = Field(
        5.0, description="Longest wait of the oldest request for others to join, in milliseconds."
    )
    slots: Positive = Field(
        2048, description="Environments that can be connected at once: rows of the device tables."
    )


class Optimizer(Section):
    """Adam or RMSProp, with a schedule and clipping."""

    name: Literal["adam", "rmsprop"] = Field("adam", description="The algorithm.")
    learning_rate: Annotated[float, Field(gt=0)] = Field(
        4.8e-4, description="At the start of training."
    )
    schedule: Literal["constant", "linear"] = Field(
        "constant", description="`linear` goes to final_learning_rate at decay_env_frames."
    )
    final_learning_rate: NonNegative = Field(0.0, description="Where `linear` ends.")
    decay_env_frames: Positive = Field(
        1_000_000_000, description="Trained emulator frames over which `linear` decays."
    )
    beta_1: Annotated[float, Field(ge=0, lt=1)] = Field(0.9, description="Adam only.")
    beta_2: Annotated[float, Field(ge=0, lt=1)] = Field(0.999, description="Adam only.")
    decay: Annotated[float, Field(ge=0, lt=1)] = Field(0.99, description="RMSProp's rho.")
    momentum: Annotated[float, Field(ge=0, lt=1)] = Field(0.0, description="RMSProp only.")
    epsilon: Annotated[float, Field(gt=0)] = Field(
        1e-7, description="Added to the denominator, by both."
    )
    max_gradient_norm: NonNegative = Field(
        40.0, description="Global norm at which gradients are clipped; 0 does not clip."
    )


class Checkpoint(Section):
    """When and where checkpoints are written."""

    directory: str = Field(
        "",
        description="Any fsspec path, `gs://bucket/run` too. Empty: `checkpoints` in the run "
        "directory.",
    )
    every_s: Annotated[float, Field(gt=0)] = Field(300.0, description="Seconds between two.")
    keep: Annotated[int, Field(ge=2)] = Field(
        2, description="Newest ones kept, `best` not counted. Two, because one can be damaged."
    )
    max_failures: Positive = Field(
        3, description="Writes that fail in a row before the learner gives up."
    )


class Learner(Section):
    """Everything that needs the model."""

    backend: Literal["tensorflow", "jax"] = Field(
        "tensorflow", description="`jax` never imports TensorFlow, and is the way to TPUs."
    )
    device: Literal["auto", "cpu", "gpu", "tpu"] = Field(
        "auto", description="Anything but `auto` must be there."
    )
    network: str = Field(
        "impala_shallow",
        description="`impala_shallow`, `impala_deep`, `nature`, `mlp`, or `module:Class`.",
    )
    network_options: dict[str, Any] = Field(
        default_factory=dict, description="Passed to the network, such as `width: 2`."
    )
    lstm_units: Annotated[int, Field(ge=0)] = Field(
        0, description="Units of the LSTM core; 0 is a feed-forward agent."
    )
    frame_stack: Positive = Field(
        4, description="Newest K frames that the network sees, stacked on the device."
    )
    unroll_length: Positive = Field(20, description="T: steps of an unroll.")
    batch_size: Positive = Field(32, description="B: unrolls (columns) of a training batch.")
    passes: Positive = Field(
        1,
        description="Updates made with each batch. More use each frame better and cost more "
        "training; V-trace corrects for the policy's changes in between.",
    )
    queue_batches: Positive = Field(
        1,
        description="Training batches that may wait; then inference waits, which bounds the "
        "policy lag.",
    )
    inference: Inference = Field(default_factory=Inference)
    optimizer: Optimizer = Field(default_factory=Optimizer)
    checkpoint: Checkpoint = Field(default_factory=Checkpoint)
    idle_timeout_s: Annotated[float, Field(gt=0)] = Field(
        60.0, description="Silence after which a stream is ended and its slots are given back."
    )
    notice_interval_s: Annotated[float, Field(gt=0)] = Field(
        2.0, description="A late answer is announced to the actor this often."
    )
    stuck_timeout_s: Annotated[float, Field(gt=0)] = Field(
        300.0,
        description="A thread that has had work for so long and taken none ends the process. "
        "First compiles count as work in progress.",
    )
    metrics_port: Annotated[int, Field(ge=0, le=65535)] = Field(
        0, description="HTTP port for /metrics, /status and /healthz; 0 is none."
    )
    deterministic: bool = Field(
        False,
        description="`seedbed train` runs everything in one thread with a fixed batch composition: "
        "slow, and the same seed gives the same actions and losses.",
    )

    @model_validator(mode="after")
    def _fits(self) -> Learner:
        inference = self.inference
        if inference.batch_environments > inference.max_batch_environments:
            raise ValueError(
                f"inference.batch_environments {inference.batch_environments} is more than "
                f"inference.max_batch_environments {inference.max_batch_environments}: a batch "
                "could never be full"
            )
        if inference.max_batch_environments > inference.slots:
            raise ValueError(
                f"inference.max_batch_environments {inference.max_batch_environments} is more than "
                f"inference.slots {inference.slots}: there are never so many environments"
            )
        return self


class Vtrace(Section):
    """Hyperparameters of V-trace (Espeholt et al. 2018), Tables 6 and 7 of the SEED paper."""

    discount: Annotated[float, Field(ge=0, le=1)] = Field(0.99, description="γ.")
    trace_lambda: Annotated[float, Field(ge=0, le=1)] = Field(1.0, description="λ.")
    rho_bar: Annotated[float, Field(gt=0)] = Field(
        1.0, description="Truncation of the importance weight of the temporal difference."
    )
    c_bar: Annotated[float, Field(gt=0)] = Field(
        1.0, description="Truncation of the trace's importance weight."
    )
    rho_bar_policy: Annotated[float, Field(gt=0)] = Field(
        1.0, description="Truncation of the policy gradient's importance weight."
    )
    entropy_cost: NonNegative = Field(0.01, description="Entropy coefficient.")
    baseline_cost: NonNegative = Field(0.5, description="Value function coefficient.")
    reward_clip: NonNegative = Field(
        0.0, description="Rewards are clipped to ± this in the loss; 0 does not clip."
    )
    reward_scale: Annotated[float, Field(gt=0)] = Field(
        1.0, description="Rewards are multiplied by this in the loss, before clipping."
    )
    life_loss_ends: bool = Field(
        False, description="A lost life zeroes the discount in the loss; it resets nothing."
    )

    @model_validator(mode="after")
    def _rho_over_c(self) -> Vtrace:
        if self.rho_bar < self.c_bar:
            raise ValueError(
                f"rho_bar {self.rho_bar} is below c_bar {self.c_bar}: V-trace asks for "
                "rho_bar >= c_bar (Espeholt et al. 2018, section 4.1)"
            )
        return self


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


class Evaluation(Section):
    """Playing the policy apart from training."""

    every_frames: Annotated[int, Field(ge=0)] = Field(
        0, description="Emulator frames between two evaluations on the side; 0 is none."
    )
    episodes: Positive = Field(20, description="Episodes of an evaluation during training.")
    at_end: bool = Field(True, description="A last evaluation when the run stops.")
    policy: Literal["sample", "greedy"] = Field("sample", description="How actions are chosen.")
    environments: Positive = Field(16, description="Environments that play at the same time.")


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
        1, description="Environment i of actor j is seeded by a function of it, i and j."
    )
    environment: Environment
    actor: Actor = Field(default_factory=Actor)
    learner: Learner = Field(default_factory=Learner)
    agent: str = Field("vtrace", description="`vtrace`, or `module:Class`.")
    agent_options: dict[str, Any] = Field(
        default_factory=dict, description="Hyperparameters of a `module:Class` agent."
    )
    vtrace: Vtrace = Field(default_factory=Vtrace)
    stop: Stop = Field(default_factory=Stop)
    cost: Cost = Field(default_factory=Cost)
    evaluation: Evaluation = Field(default_factory=Evaluation)
    logging: Logging = Field(default_factory=Logging)

    @model_validator(mode="after")
    def _agent_options_are_read(self) -> Experiment:
        if self.agent_options and ":" not in self.agent:
            raise ValueError(
                f"agent_options {sorted(self.agent_options)} is for `module:Class` agents: agent "
                f"{self.agent!r} takes its hyperparameters from the section {self.agent!r}"
            )
        group = self.actor.environments
        if group > self.learner.inference.max_batch_environments:
            raise ValueError(
                f"actor.environments {group} is more than learner.inference.max_batch_environments "
                f"{self.learner.inference.max_batch_environments}: a group is answered as a whole "
                "and would never fit a batch"
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
