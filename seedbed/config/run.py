"""Sections `stop`, `cost`, `evaluation` and `logging`: how a run ends, is priced and is watched."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, field_validator

from seedbed.settings import FREE, KeyClass, NonNegative, Positive, Section
from seedbed.spec import ENVIRONMENTS


class Stop(Section):
    """Stop conditions: the first that is met ends the experiment. 0 (or null) is never met."""

    key_class: ClassVar[KeyClass] = FREE

    env_frames: Annotated[int, Field(ge=0)] = 0
    """Emulator frames, over all restarts. A first batch that is complete is trained on before."""
    seconds: NonNegative = 0
    """Seconds of training, from the first frame of each start, over all restarts."""
    updates: Annotated[int, Field(ge=0)] = 0
    """Updates of the parameters."""
    dollars: NonNegative = 0
    """Cost of the run in US dollars, a hard cap."""
    idle_s: NonNegative = 0
    """Seconds without a frame that pause a release in Kubernetes: the cost meter takes the pods to
    zero, until the release is resumed. It is at least 10, and must exceed the longest start of a
    learner.
    A run without a cost meter is not paused.
    """
    pending_s: NonNegative = 3600
    """Seconds without a started learner after which the cost meter takes the actors of a release in
    Kubernetes to zero. They come back with a learner. 0 is never.
    """
    mean_return: float | None = None
    """Mean return of the last mean_return_episodes episodes. Null is off; 0 is a return."""
    mean_return_episodes: Positive = 100
    """Episodes over which mean_return is taken."""

    @field_validator("idle_s")
    @classmethod
    def _is_no_short_pause(cls, given: float) -> float:
        if 0 < given < 10:
            raise ValueError(
                "the cost meter looks every 5 s, so that a pause below 10 would end a release "
                "between two looks; 0 is never"
            )
        return given


class Cost(Section):
    """Prices, in US dollars an hour, of what the run occupies on this machine."""

    key_class: ClassVar[KeyClass] = FREE

    cpu_hour: NonNegative = 0.031611
    """Price of one vCPU (n1, us-central1, on demand, August 2026)."""
    memory_gib_hour: NonNegative = 0.004237
    """Price of one GiB of memory (n1, on demand, August 2026)."""
    accelerator_hour: NonNegative = 0.0
    """Price of one accelerator."""
    cpus: NonNegative = 0
    """Number of vCPUs charged; 0 is all of this machine."""
    memory_gib: NonNegative = 0
    """Memory charged, in GiB; 0 is all of this machine."""
    accelerators: Annotated[int, Field(ge=0)] = 0
    """Number of accelerators charged."""
    cpu_watts: NonNegative = 0
    """Power of one busy vCPU, for the energy of a run on a machine without energy counters, such as
    a virtual one; 0 estimates none. A server CPU of 280 W with 128 threads has about 2.2.
    """
    meter: str = ""
    """URL of a cost meter that prices the whole release, such as `http://host:9092/status`; the
    prices here count until the meter answers. The chart sets this key.
    """


class Evaluation(Section):
    """Episodes that the policy plays apart from training."""

    key_class: ClassVar[KeyClass] = FREE

    every_frames: Annotated[int, Field(ge=0)] = 0
    """Emulator frames between two background evaluations; 0 is none."""
    episodes: Positive = 20
    """Episodes of an evaluation during training."""
    at_end: bool = True
    """Final evaluation when the run stops."""
    policy: Literal["agent", "sample", "greedy"] = "agent"
    """Choice of actions. `agent` leaves the choice to the agent: `vtrace`, `ppo` and `a2c` sample,
    `r2d2` and `dqn` are greedy except for evaluation_epsilon.
    """
    num_envs: Annotated[int, Field(ge=1, le=ENVIRONMENTS)] = 16
    """Environments that play at the same time."""


class Wandb(Section):
    """Weights & Biases, an optional extra: never imported unless enabled."""

    key_class: ClassVar[KeyClass] = FREE

    enabled: bool = False
    """Upload of the run to Weights & Biases."""
    project: str = "seedbed"
    """Project of Weights & Biases."""
    group: str = ""
    """Name under which several runs are shown, such as a sweep."""
    mode: Literal["online", "offline"] = "online"
    """Mode of the upload; `offline` writes into the run directory, to be sent later."""


class Logging(Section):
    """Output during a run."""

    key_class: ClassVar[KeyClass] = FREE

    interval_s: Annotated[float, Field(gt=0)] = 5.0
    """Seconds between two progress lines, rows of progress.csv and TensorBoard events."""
    scalars: str = ""
    """Function `module:function` that is called each interval with the metrics of the run; the dict
    of floats that the function returns reaches Prometheus and TensorBoard.
    """
    wandb: Wandb = Field(default_factory=Wandb)
