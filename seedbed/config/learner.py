"""Section `learner`: everything that needs the model, and where its experience is kept."""

import re
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, ConfigDict, Field, field_validator, model_validator

from seedbed.networks import AUTO, NETWORK_OPTIONS, NETWORKS
from seedbed.runtime.install import installed_backends
from seedbed.settings import (
    FREE,
    INPUT,
    RESULT,
    SHAPES,
    DefaultText,
    Free,
    KeyClass,
    NonNegative,
    Positive,
    Section,
    identity,
    join_lines,
    one_of,
    pattern,
)


class Inference(Section):
    """Inference: where actions are chosen, and the batches of the learner."""

    location: Annotated[Literal["learner", "actor"], RESULT] = "learner"
    """Process that chooses the actions. `actor` is IMPALA, the baseline of the paper: an actor runs
    a copy of the network on one CPU, with one version of the parameters in an unroll, and sends
    unrolls (`vtrace`, and other agents that correct for an older policy).
    """
    batch_envs: Annotated[int, FREE, Field(ge=0)] = 0
    """Environments at which a batch is full. 0 takes half of the connected ones, since the groups
    of an actor alternate.
    """
    max_batch_envs: Annotated[Positive, FREE] = 512
    """Largest batch, in environments."""
    max_wait_ms: Annotated[NonNegative, FREE] = 5.0
    """Longest wait of the oldest request for others to join, in milliseconds."""
    slots: Annotated[Positive, FREE] = 2048
    """Environments that can be connected at once, each with a slot in the device tables."""


class Optimizer(Section):
    """Adam or RMSProp, with a schedule and clipping."""

    key_class: ClassVar[KeyClass] = RESULT

    name: Annotated[
        Literal["adam", "rmsprop", "rmsprop_pytorch"],
        identity("the optimizer's state belongs to that optimizer"),
    ] = "adam"
    """Optimization algorithm; the two forms of RMSProp differ in the place of `epsilon`."""
    learning_rate: Annotated[float, Field(gt=0)] = 4.8e-4
    """Learning rate at the start of training."""
    schedule: Literal["constant", "linear"] = "constant"
    """Schedule of the learning rate; `linear` goes to final_learning_rate at decay_env_frames."""
    final_learning_rate: NonNegative = 0.0
    """Learning rate at the end of a `linear` schedule."""
    decay_env_frames: Positive = 1_000_000_000
    """Emulator frames over which a `linear` schedule decays."""
    beta_1: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """Decay of the first moment (Adam only)."""
    beta_2: Annotated[float, Field(ge=0, lt=1)] = 0.999
    """Decay of the second moment (Adam only)."""
    decay: Annotated[float, Field(ge=0, lt=1)] = 0.99
    """Decay rho of the mean square (RMSProp only)."""
    momentum: Annotated[
        float, identity("RMSProp has velocities only where it is not 0"), Field(ge=0, lt=1)
    ] = 0.0
    """Momentum (RMSProp only)."""
    epsilon: Annotated[float, Field(gt=0)] = 1e-7
    """Smallest denominator, nearly: g / √(v + ε) for `rmsprop`, as in TensorFlow, where 1e-5 is a
    floor of 3.2e-3; g / (√v + ε) for `rmsprop_pytorch`, so PyTorch's values hold there alone;
    m / (√v + ε) for `adam`, ε̂ of Kingma and Ba 2015, before √v is corrected for bias.
    """
    max_gradient_norm: NonNegative = 40.0
    """Global norm at which gradients are clipped; 0 does not clip."""
    nominal_envs: Annotated[int, Field(ge=0)] = 0
    """Environments n for which the learning rates are given: they are multiplied by √(environments
    / n), as Stooke and Abbeel 2018 scale them; 0 does not scale. The environments are the
    `learner.batch_size` of a batch, times the learners.
    """


class Checkpoint(Section):
    """Checkpoints: place, interval and number."""

    key_class: ClassVar[KeyClass] = FREE

    directory: str = ""
    """Path of the checkpoints: any fsspec path, such as `gs://bucket/run`. Empty: `checkpoints` in
    the run directory.
    """
    every_s: Annotated[float, Field(gt=0)] = 300.0
    """Seconds between two checkpoints."""
    keep: Annotated[int, Field(ge=2)] = 2
    """Newest checkpoints that are kept, `best` not counted. At least two, because one can be
    damaged.
    """
    deadline_s: Annotated[float, Field(gt=0)] = 300.0
    """Seconds for which writes may fail, with none that succeeds between, before the learner gives
    up. Meanwhile it trains on, and tries again each 1 to 30 s.
    """


class Replay(Section):
    """Replay buffer of agents with replay: storage, size and sampling.

    The defaults are the paper's Table 8.
    """

    storage: Annotated[Literal["host", "device", "remote"], FREE] = "host"
    """Storage of the sequences: `host` is the learner's RAM, `device` the accelerator's memory,
    `remote` replay shards (`seedbed replay`).
    """
    capacity: Annotated[Positive, RESULT] = 100_000
    """Sequences that are kept, first in, first out; with `remote` storage each shard has a separate
    capacity.
    """
    min_size: Annotated[Positive, RESULT] = 5_000
    """Sequences that can be sampled before training begins."""
    ratio: Annotated[float, RESULT, Field(gt=0)] = 0.75
    """Trained steps for each inserted step. Training waits to keep the ratio, and so do the actors.
    """
    ratio_tolerance_batches: Annotated[float, RESULT, Field(ge=1)] = 4.0
    """Batches by which the actors may be ahead of the ratio before they wait. Below 1 both sides
    could wait for each other.
    """
    priority_exponent: Annotated[float, RESULT, Field(ge=0, le=2)] = 0.9
    """Exponent α: a sequence of priority p is sampled in proportion to p^α; 0 is uniform."""
    importance_sampling_exponent: Annotated[float, RESULT, Field(ge=0, le=2)] = 0.6
    """Exponent β: the loss of a sequence is weighted by (N P)^-β, divided by the largest weight of
    the batch.
    """
    prefetch_batches: Annotated[Positive, FREE] = 2
    """Batches sampled ahead of training (`host` and `remote`)."""
    transfer_steps: Annotated[Positive, FREE] = 2_000
    """Steps that are copied to the device at a time (`device`). Steps that wait for the copy cannot
    be sampled.
    """
    directory: Annotated[str, FREE] = ""
    """Directory on a local disk with the files of the `host` storage, which so survives the
    process, after a kill -9 too. Empty: in memory only.
    """
    shards: Annotated[list[str], FREE] = Field(default_factory=list)
    """Addresses `host:port` of the shards of `remote` storage; the chart sets this key."""
    shard_timeout_s: Annotated[float, FREE, Field(gt=0)] = 240.0
    """Longest time without any shard before the learner gives up, in seconds."""

    @model_validator(mode="after")
    def _settings_fit_each_other(self) -> "Replay":
        if self.min_size > self.capacity:
            raise ValueError(
                f"min_size {self.min_size} is more than capacity {self.capacity}: "
                "training would never begin"
            )
        if self.directory and self.storage != "host":
            raise ValueError(
                f"directory {self.directory!r} is for storage: host, and storage is {self.storage}"
            )
        if self.shards and self.storage != "remote":
            raise ValueError(
                f"shards {self.shards} are for storage: remote, and storage is {self.storage}"
            )
        twice = sorted({shard for shard in self.shards if self.shards.count(shard) > 1})
        if twice:
            raise ValueError(f"shards {twice} are listed twice")
        wrong = [shard for shard in self.shards if not re.fullmatch(r"unix:.+|.+:\d+", shard)]
        if wrong:
            raise ValueError(f"shards {wrong} are no addresses: host:port, or unix:PATH")
        return self


def _auto_schema(schema: dict[str, Any]) -> None:
    join_lines(schema)
    schema.update(type=["object", "string"], pattern="^auto$")


class Devices(Section):
    """Devices of one host by role, on JAX; `auto` leaves the choice to the learner."""

    model_config = ConfigDict(json_schema_extra=_auto_schema)
    key_class: ClassVar[KeyClass] = FREE

    inference: Annotated[int, Field(ge=0)] = 0
    """Devices that act, and do nothing else. 0 with `training` 1: one device acts and trains."""
    training: Annotated[int, Field(ge=0)] = 0
    """Devices that train; each has an equal part of a batch. 0 with `inference` 0 is `auto`: one
    device does both where there is one, and otherwise the smallest number acts that keeps up.
    """

    @model_validator(mode="before")
    @classmethod
    def _read_auto(cls, given: Any) -> Any:
        return {} if given == "auto" else given

    @model_validator(mode="after")
    def _roles_are_whole(self) -> "Devices":
        if self.training == 0 < self.inference:
            raise ValueError(
                f"inference {self.inference} and training 0: at least one device must train"
            )
        if self.inference == 0 and self.training > 1:
            raise ValueError(
                f"inference 0 and training {self.training}: with more than one device that trains, "
                "at least one must act; set inference to 1"
            )
        return self

    @property
    def is_auto(self) -> bool:
        """Whether the learner chooses."""
        return self.training == 0


def _default_backend() -> Literal["tensorflow", "jax"]:
    """Return the backend that is installed: TensorFlow, if both are or none is."""
    return "jax" if installed_backends() == ["jax"] else "tensorflow"


class Learner(Section):
    """Everything that needs the model."""

    backend: Annotated[
        Literal["tensorflow", "jax"], FREE, DefaultText("the one that is installed")
    ] = Field(default_factory=_default_backend)
    """Backend of Keras; `jax` never imports TensorFlow, and is the way to TPUs. The default is
    `tensorflow` where both are installed, and in the chart. A run resumes with the
    backend that it began with.
    """
    device: Annotated[Literal["auto", "cpu", "gpu", "tpu"], FREE] = "auto"
    """Device of the model; anything but `auto` must be there."""
    precision: Annotated[Literal["float32", "bfloat16", "tensorfloat32"], RESULT] = "float32"
    """Number format in which the network computes. `bfloat16` is for convolutions, dense layers and
    the LSTM's products, and all else stays in float32: parameters, optimizer, recurrent state,
    logits, values, losses and priorities. `tensorfloat32` rounds the inputs of all products of an
    NVIDIA GPU to 10 bits.
    """
    devices: Devices = Field(default_factory=Devices)
    """Devices by role."""
    operation_threads: Annotated[int, FREE, Field(ge=0)] = 0
    """Threads of one operation on the CPU (TensorFlow only); inference and training are beside each
    other in any case. 0 takes the cores that the actors of this machine leave, but at least one:
    parts of an operation that wait for each other on busy cores take a fifth of the frames. Without
    actors on this machine 0 takes all cores.
    """
    network: Annotated[
        str,
        identity("the parameters belong to that network"),
        AfterValidator(partial(one_of, (AUTO, *NETWORKS))),
    ] = Field(AUTO, json_schema_extra={"pattern": pattern((AUTO, *NETWORKS))})
    """Network: `impala_shallow`, `impala_deep`, `football`, `nature`, `nature_shallow`, `mlp`, or
    `module:Class`. `auto` is `impala_shallow` of pictures, and `mlp` of all else and of pictures
    below 20 x 20, such as MiniGrid's.
    """
    network_options: Annotated[Free, SHAPES] = Field(default_factory=dict)
    """Keyword arguments of the network, such as `width: 2`."""
    lstm_units: Annotated[int, SHAPES, Field(ge=0)] = 0
    """Units of the LSTM core; 0 is a feed-forward agent."""
    initial_weights: Annotated[
        Literal["default", "glorot", "orthogonal"], identity("the parameters were drawn with it")
    ] = "default"
    """Initial values of weights. With `glorot` all are Glorot uniform, as the SEED paper states;
    the default draws the LSTM's recurrent kernel orthogonal, and the policy head orthogonal and a
    hundred times smaller, for nearly uniform first actions. With `orthogonal` all are orthogonal,
    √2 times as large in front of a ReLU or tanh, and the policy head again a hundred times smaller;
    so they are by default with `ppo`. Biases are 0, the forget gate's 1.
    """
    normalization_frames: Annotated[
        int | None, identity("the statistics are parameters of that network"), Field(ge=0)
    ] = None
    """Emulator frames over which the mean and the deviation of each number of an observation are
    taken, by which it is normalized and clipped to ±5; then both stay. 0 does not normalize. Null
    is the agent's number: 400,000 with `ppo`, 0 with all others. Observations of several arrays
    (`Dict`) are left as they are.
    """
    frame_stack: Annotated[Positive, INPUT] = 4
    """Newest K observations that the network sees, stacked on the device."""
    unroll_length: Annotated[Positive, RESULT] = 20
    """Steps T of an unroll."""
    hosts: Annotated[Positive, FREE] = 1
    """Processes that train together as one learner, on JAX, each with separate devices and actors.
    `batch_size` is divided among the hosts.
    """
    coordinator: Annotated[str, FREE] = ""
    """Address `host:port` at which the first of several hosts meets the others; `seedbed train` and
    the chart set this key.
    """
    batch_size: Annotated[Positive, RESULT] = 32
    """Unrolls (or sequences) B of a training batch."""
    epochs_per_batch: Annotated[int, RESULT, Field(ge=0)] = 0
    """Passes over each batch, of `minibatches` updates each. More updates use each frame better and
    cost more training; V-trace corrects for the policy's changes in between, and PPO bounds them.
    0 is the agent's number: 4 with `ppo`, 1 with all others.
    """
    minibatches: Annotated[int, RESULT, Field(ge=0)] = 0
    """Equal parts of a batch, of whole unrolls drawn at random in each pass. Each makes an update.
    0 is the agent's number: 4 with `ppo`, or the next lower that divides `batch_size`; 1 with all
    others.
    """
    max_skipped_updates: Annotated[Positive, FREE] = 10
    """Updates skipped in a row that end the run. An update whose loss or gradient is not finite is
    skipped: the parameters stay as they were, and the batch is kept in `quarantine/`.
    """
    queue_batches: Annotated[int | None, RESULT, Field(ge=0)] = None
    """Training batches that may wait. When the queue is full, inference waits, which bounds the
    policy lag. With 0 no batch waits: the actors are one unroll ahead of the batch that trains.
    Null is the agent's number: 0 with `ppo`, 1 with all others.
    """
    straggler_timeout_s: Annotated[float, FREE, Field(gt=0)] = 30.0
    """Seconds that a synchronous batch (`a2c`) waits after the first unroll for the other
    environments. Then the batch goes without the stragglers, and so do later batches until the
    stragglers are back.
    """
    inference: Inference = Field(default_factory=Inference)
    replay: Replay = Field(default_factory=Replay)
    """Replay buffer, of agents that train from replay."""
    optimizer: Optimizer = Field(default_factory=Optimizer)
    upload: Annotated[str, FREE] = ""
    """Place to which the run directory is copied at the end of the run: any fsspec path, such as
    `gs://bucket/run`. The chart appends NAMESPACE/RELEASE/RUN. Empty: none.
    """
    checkpoint: Checkpoint = Field(default_factory=Checkpoint)
    idle_timeout_s: Annotated[float, FREE, Field(gt=0)] = 60.0
    """Seconds of silence after which a stream is ended and the slots are freed."""
    notice_interval_s: Annotated[float, FREE, Field(gt=0)] = 2.0
    """Seconds between two notices to an actor that the actions are late."""
    watchdog_timeout_s: Annotated[float, FREE, Field(gt=0)] = 300.0
    """Seconds after which a thread that has work and takes none ends the process. First compiles
    count as work in progress.
    """
    metrics_port: Annotated[int, FREE, Field(ge=0, le=65535)] = 0
    """HTTP port for /metrics, /status and /healthz, on 127.0.0.1 or the address in the environment
    variable SEEDBED_METRICS_HOST; 0 is none.
    """
    deterministic: Annotated[bool, RESULT] = False
    """Deterministic mode: `seedbed train` runs everything in one thread with a fixed batch
    composition. The same seed then gives the same actions and losses, slowly.
    """

    @property
    def host_batch_size(self) -> int:
        """Unrolls (or sequences) that each host brings to a training batch."""
        return self.batch_size // self.hosts

    @model_validator(mode="after")
    def _network_takes_its_options(self) -> "Learner":
        if self.network == AUTO and self.network_options:
            raise ValueError(
                f"network_options {sorted(self.network_options)} with network {AUTO}, which takes "
                "none, because the observation decides which network it is: name the network"
            )
        known = NETWORK_OPTIONS.get(self.network)
        if known is None:  # a module:Class
            return self
        if unknown := sorted(set(self.network_options) - set(known)):
            raise ValueError(
                f"network_options {unknown} unknown to network {self.network!r}, which takes "
                f"{', '.join(known) or 'none'}"
            )
        return self

    @model_validator(mode="after")
    def _devices_fit(self) -> "Learner":
        inference, training = self.devices.inference, self.devices.training
        if inference == 0:
            return self
        if self.backend != "jax":
            raise ValueError(
                f"devices.inference {inference} with backend {self.backend}, which uses one "
                "device: take backend jax, or devices auto"
            )
        if self.deterministic:
            raise ValueError(
                f"devices.inference {inference} act beside those that train, and deterministic is "
                "one thread: set one of them back"
            )
        if training > 1 and self.replay.storage == "device":
            raise ValueError(
                f"devices.training {training} with replay.storage device, which is the memory of "
                "one device: set training to 1, or use storage host"
            )
        parts = training * self.hosts
        if self.batch_size % parts:
            lower = self.batch_size // parts * parts
            nearest = " or ".join(str(n) for n in (lower, lower + parts) if n)
            raise ValueError(
                f"batch_size {self.batch_size} cannot be divided among {parts} devices that "
                f"train: {nearest} can"
            )
        return self

    @model_validator(mode="after")
    def _inference_has_a_place(self) -> "Learner":
        if self.inference.location == "learner":
            return self
        if self.devices.inference:
            raise ValueError(
                f"devices.inference {self.devices.inference} with inference.location actor: these "
                "devices would stand idle; take devices auto"
            )
        if self.deterministic:
            raise ValueError(
                "deterministic is one thread, and inference.location actor is a copy of the "
                "network in each actor: set one of them back"
            )
        return self

    @model_validator(mode="after")
    def _hosts_fit(self) -> "Learner":
        if self.hosts == 1:
            return self
        if self.backend != "jax":
            raise ValueError(
                f"hosts {self.hosts} train as one with backend jax, and backend is {self.backend}"
            )
        if self.deterministic:
            raise ValueError(
                f"hosts {self.hosts} are that many processes, and deterministic is one thread: "
                "set one of them back"
            )
        if self.batch_size % self.hosts:
            lower = self.batch_size // self.hosts * self.hosts
            nearest = " or ".join(str(n) for n in (lower, lower + self.hosts) if n)
            raise ValueError(
                f"batch_size {self.batch_size} cannot be divided among {self.hosts} hosts: "
                f"{nearest} can"
            )
        return self

    @field_validator("coordinator")
    @classmethod
    def _is_address(cls, given: str) -> str:
        found = re.fullmatch(r".+:(\d{1,5})", given)
        if given and not (found and 0 < int(found[1]) <= 65535):
            raise ValueError(f"coordinator {given!r} is no address: host:port, to port 65535")
        return given

    @model_validator(mode="after")
    def _settings_fit_each_other(self) -> "Learner":
        replay, inference = self.replay, self.inference
        if replay.storage == "remote" and replay.shard_timeout_s >= self.watchdog_timeout_s:
            raise ValueError(
                f"replay.shard_timeout_s {replay.shard_timeout_s:g} is not below "
                f"watchdog_timeout_s {self.watchdog_timeout_s:g}: the watchdog would end the "
                "learner first, and not report that shards are the cause"
            )
        if inference.batch_envs > inference.max_batch_envs:
            raise ValueError(
                f"inference.batch_envs {inference.batch_envs} is more than "
                f"inference.max_batch_envs {inference.max_batch_envs}: a batch "
                "could never be full"
            )
        if inference.max_batch_envs > inference.slots:
            raise ValueError(
                f"inference.max_batch_envs {inference.max_batch_envs} is more than "
                f"inference.slots {inference.slots}: there are never so many environments"
            )
        return self
