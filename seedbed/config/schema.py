"""The one typed schema of an experiment. The same tree is the chart's `experiment:` value.

Units are in the names. An unknown key, a wrong type or an impossible pair is refused with the
key's path, both numbers and the consequence.
"""

from functools import partial
from typing import Annotated

from pydantic import AfterValidator, Field, model_validator

from seedbed.agents import AGENTS
from seedbed.agents.a2c.options import A2cOptions
from seedbed.agents.dqn.options import DqnOptions
from seedbed.agents.options import AgentOptions
from seedbed.agents.ppo.options import PpoOptions
from seedbed.agents.r2d2.options import R2d2Options
from seedbed.agents.vtrace.options import VtraceOptions
from seedbed.config.environment import Actor, Environment
from seedbed.config.gossip import Gossip
from seedbed.config.learner import Learner
from seedbed.config.run import Cost, Evaluation, Logging, Stop
from seedbed.settings import FREE, RESULT, Free, Section, identity, one_of, pattern

# Of an experiment, and so of its release: what Kubernetes adds to it for a pod has up to 28 more,
# and a label has room for 63. The chart has the same number.
NAME_LETTERS = 35


class Experiment(Section):
    """One experiment."""

    name: Annotated[str, FREE] = Field(
        pattern=rf"^[a-z0-9]([a-z0-9-]{{0,{NAME_LETTERS - 2}}}[a-z0-9])?$"
    )
    """Name of the run directory; on Kubernetes the release names everything else."""
    seed: Annotated[
        int,
        identity("the parameters were drawn from it, and results are filed under it"),
        Field(ge=0, lt=2**31),
    ] = 1
    """Seed of all random numbers. Environment i of actor j has a seed that follows from this one, i
    and j.
    """
    environment: Environment
    actor: Actor = Field(default_factory=Actor)
    learner: Learner = Field(default_factory=Learner)
    gossip: Gossip = Field(default_factory=Gossip)
    agent: Annotated[
        str,
        identity("the heads, the loss and what their outputs mean belong to that agent"),
        AfterValidator(partial(one_of, AGENTS)),
    ] = Field("ppo", json_schema_extra={"pattern": pattern(AGENTS)})
    """Algorithm: `ppo`, `vtrace`, `a2c`, `r2d2`, `dqn`, or `module:Class`."""
    agent_options: Annotated[Free, RESULT] = Field(default_factory=dict)
    """Hyperparameters of a `module:Class` agent."""
    vtrace: VtraceOptions = Field(default_factory=VtraceOptions)
    ppo: PpoOptions = Field(default_factory=PpoOptions)
    a2c: A2cOptions = Field(default_factory=A2cOptions)
    r2d2: R2d2Options = Field(default_factory=R2d2Options)
    dqn: DqnOptions = Field(default_factory=DqnOptions)
    stop: Stop = Field(default_factory=Stop)
    cost: Cost = Field(default_factory=Cost)
    evaluation: Evaluation = Field(default_factory=Evaluation)
    logging: Logging = Field(default_factory=Logging)

    @property
    def builtin_options(self) -> AgentOptions | None:
        """The options of `agent`, or None if `agent` is a `module:Class`."""
        return getattr(self, self.agent) if self.agent in AGENTS else None

    @property
    def _own(self) -> type[AgentOptions] | AgentOptions:
        """What the agent chooses where the learner's settings leave it to it."""
        return self.builtin_options or AgentOptions

    @property
    def passes(self) -> int:
        """Passes over each batch."""
        return self.learner.epochs_per_batch or self._own.passes

    @property
    def minibatches(self) -> int:
        """Equal parts of a batch, each of which makes an update in each pass.

        The agent's own number is lowered to one that divides the batch.
        """
        if self.learner.minibatches:
            return self.learner.minibatches
        most, size = self._own.minibatches, self.learner.batch_size
        return next(n for n in range(most, 0, -1) if n == 1 or size % (n * self._training) == 0)

    @property
    def _training(self) -> int:
        """Devices of all hosts that train, where they are stated."""
        return self.learner.hosts * max(1, self.learner.devices.training)

    @property
    def update_unrolls(self) -> int:
        """Unrolls (or sequences) of an update, of all hosts."""
        return self.learner.batch_size // self.minibatches

    @property
    def queue_batches(self) -> int:
        """Training batches that may wait."""
        given = self.learner.queue_batches
        return self._own.queue_batches if given is None else given

    @property
    def initial_weights(self) -> str:
        """How weights are drawn: `default`, `glorot` or `orthogonal`."""
        given = self.learner.initial_weights
        return self._own.initial_weights if given == "default" else given

    @property
    def normalization_frames(self) -> int:
        """Emulator frames that the statistics of observations count; 0 without any."""
        given = self.learner.normalization_frames
        return self._own.normalization_frames if given is None else given

    @property
    def _has_replay(self) -> bool:
        options = self.builtin_options
        return options is not None and options.trains_from_replay

    @property
    def _environments(self) -> str:
        """The product behind `actor.total_envs`, for errors."""
        actor = self.actor
        return (
            f"actor.processes {actor.processes} x actor.groups {actor.groups} x "
            f"actor.envs_per_group {actor.envs_per_group} are {actor.total_envs} environments"
        )

    @model_validator(mode="after")
    def _agent_options_are_read(self) -> "Experiment":
        if self.agent_options and ":" not in self.agent:
            raise ValueError(
                f"agent_options {sorted(self.agent_options)} is for `module:Class` agents: agent "
                f"{self.agent!r} takes its hyperparameters from the section {self.agent!r}"
            )
        return self

    @model_validator(mode="after")
    def _environments_fit_inference(self) -> "Experiment":
        group, inference = self.actor.envs_per_group, self.learner.inference
        if group > inference.max_batch_envs:
            raise ValueError(
                f"actor.envs_per_group {group} is more than learner.inference.max_batch_envs "
                f"{inference.max_batch_envs}: a group is answered as a whole and would never fit "
                "a batch"
            )
        if self.actor.total_envs > inference.slots:
            raise ValueError(
                f"{self._environments}, and learner.inference.slots is {inference.slots}: the "
                "last ones would be refused"
            )
        return self

    @model_validator(mode="after")
    def _deterministic_is_one_thread(self) -> "Experiment":
        learner = self.learner
        if not learner.deterministic:
            return self
        if self.gossip.replicas > 1:
            raise ValueError(
                f"gossip.replicas {self.gossip.replicas} are that many processes, and "
                "learner.deterministic is one thread: set one of them back"
            )
        if not self.actor.processes:
            raise ValueError(
                "learner.deterministic steps the environments of actor.processes itself, and "
                "actor.processes is 0"
            )
        if self._has_replay and learner.replay.storage != "host":
            raise ValueError(
                "learner.deterministic runs in one thread, and learner.replay.storage is "
                f"{learner.replay.storage}: use host"
            )
        return self

    @model_validator(mode="after")
    def _learner_fits_agent(self) -> "Experiment":
        learner, options = self.learner, self.builtin_options
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
        if options is not None:
            self.check_inference(options.trains_from_replay or options.synchronous)
        self._check_minibatches()
        if self._has_replay:
            self._check_replay()
        if options is not None and options.synchronous:
            self.check_synchronous_batches()
        return self

    def check_inference(self, needs_learner: bool) -> None:
        """Check that actors choose actions only for an agent that corrects for an older policy.

        As for `check_synchronous_batches`, the learner calls this method for a `module:Class`.

        Args:
            needs_learner: The agent has replay or is synchronous.

        Raises:
            ValueError: `learner.inference.location` does not fit the agent.
        """
        if needs_learner and self.learner.inference.location == "actor":
            raise ValueError(
                f"learner.inference.location actor with agent {self.agent}: an actor sends unrolls "
                "of an older policy, for which only vtrace and ppo correct; take one of them, or "
                "location learner"
            )

    def _check_minibatches(self) -> None:
        learner, minibatches = self.learner, self.minibatches
        parts = minibatches * self._training
        if minibatches > 1 and learner.batch_size % parts:
            of_each = f" for each of {parts // minibatches} devices that train"
            raise ValueError(
                f"learner.batch_size {learner.batch_size} cannot be divided into minibatches "
                f"{minibatches}{of_each if parts > minibatches else ''}: take a multiple of {parts}"
            )

    def _check_replay(self) -> None:
        learner, replay = self.learner, self.learner.replay
        for name in ("epochs_per_batch", "minibatches"):
            if (number := getattr(learner, name)) > 1:
                raise ValueError(
                    f"learner.{name} {number}: {self.agent} draws each batch anew, use "
                    "learner.replay.ratio"
                )
        before, streams = self._chunks_before(), self.actor.total_envs
        if replay.storage != "remote" and replay.min_size + before * streams > replay.capacity:
            raise ValueError(
                f"learner.replay.min_size {replay.min_size} and {before} for the start of each of "
                f"{streams} environments' streams are more than learner.replay.capacity "
                f"{replay.capacity}: training would never begin"
            )

    def _chunks_before(self) -> int:
        """Count the chunks before the newest one that a sequence reaches into.

        As many chunks of each stream are stored and cannot be sampled; compare
        `SequenceSpec.predecessors`.
        """
        burn_in = self.r2d2.burn_in if self.agent == "r2d2" else 0
        lookahead = self.dqn.n_steps - 1 if self.agent == "dqn" else 0
        steps = self.learner.unroll_length
        frames = self.learner.frame_stack + burn_in + steps + lookahead
        return -(-frames // steps) - 1

    def check_synchronous_batches(self) -> None:
        """Check that a synchronous agent can have batches of all environments.

        The schema knows which agents of its own are synchronous; for a `module:Class` agent the
        learner calls this method once the class is loaded.

        Raises:
            ValueError: The settings contradict synchronous batches.
        """
        learner = self.learner
        for name in ("epochs_per_batch", "minibatches"):
            if (number := getattr(learner, name)) > 1:
                raise ValueError(
                    f"learner.{name} {number}: {self.agent} is on-policy, and after one update "
                    "with a batch that batch is not; set it to 1"
                )
        if self.actor.processes and self.actor.total_envs != learner.host_batch_size:
            of_each = f" for {learner.hosts} hosts" if learner.hosts > 1 else ""
            raise ValueError(
                f"{self._environments}, and learner.batch_size is {learner.batch_size}{of_each}: a "
                f"batch of {self.agent} holds every environment once; make them equal"
            )

    @model_validator(mode="after")
    def _several_learners_fit(self) -> "Experiment":
        gossip, learner = self.gossip, self.learner
        if gossip.replicas == 1:
            return self
        if gossip.deadline_s >= learner.watchdog_timeout_s:
            raise ValueError(
                f"gossip.deadline_s {gossip.deadline_s:g} is not below "
                f"learner.watchdog_timeout_s {learner.watchdog_timeout_s:g}: the watchdog would "
                "end a learner that still waits for a lost peer"
            )
        if self._has_replay and learner.replay.storage == "remote":
            raise ValueError(
                f"gossip.replicas {gossip.replicas} with learner.replay.storage remote: shards "
                "hold the experience of one learner; use storage host or device, or one learner"
            )
        on_device = self._has_replay and learner.replay.storage == "device"
        if gossip.topology == "hogwild" and self._has_replay:
            raise ValueError(
                f"gossip.topology hogwild with agent {self.agent}: its target network counts the "
                "updates of one learner, and the shared copy has those of all; use an agent "
                "without replay (a2c, vtrace), or gossip.topology gossip"
            )
        if gossip.topology == "allreduce" and on_device:
            raise ValueError(
                "gossip.topology allreduce makes each update from the gradients of all learners, "
                "and learner.replay.storage device makes it in one compiled step: use storage "
                "host, or gossip"
            )
        return self

    @model_validator(mode="after")
    def _several_hosts_fit(self) -> "Experiment":
        learner = self.learner
        if learner.hosts == 1:
            return self
        gossip = self.gossip
        if gossip.replicas > 1 and gossip.topology != "gossip":
            raise ValueError(
                f"learner.hosts {learner.hosts} with gossip.topology {gossip.topology}: the hosts "
                "of one learner add up their gradients already; use gossip.replicas 1 and "
                f"learner.hosts {learner.hosts * gossip.replicas}, or gossip.topology gossip"
            )
        if gossip.replicas > 1 and gossip.gradients_every:
            raise ValueError(
                f"learner.hosts {learner.hosts} with gossip.gradients_every "
                f"{gossip.gradients_every}: the gradients of several hosts are never on one; set "
                "it to 0"
            )
        if self._has_replay and learner.replay.storage != "host":
            raise ValueError(
                f"learner.hosts {learner.hosts} with learner.replay.storage "
                f"{learner.replay.storage}: each host draws its part of a batch from a replay in "
                "its own memory; use storage host"
            )
        return self

    @model_validator(mode="after")
    def _dollars_can_be_spent(self) -> "Experiment":
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
