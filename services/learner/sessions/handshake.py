"""Validation of Hello, which comes with the call of an actor."""

from dataclasses import dataclass

from seedbed.config.learner import Learner
from seedbed.rpc.channels import MAX_MESSAGE_BYTES
from seedbed.rpc.hello import HELLO_KEY, NoHello, hello_in
from seedbed.rpc.spaces import observation_from_wire, space_from_wire
from seedbed.rpc.step_codec import Step, kind_of
from seedbed.rpc.stream import Metadata
from seedbed.rpc.versions import OLDEST_PROTOCOL_VERSION, PROTOCOL_VERSION
from seedbed.runtime.limits import usable_memory_bytes
from seedbed.runtime.text import counted, printable
from seedbed.services.learner.sessions.rejections import InvalidStep, SpecMismatch
from seedbed.spec import MAX_ACTIONS, MAX_REPEAT, EnvironmentSpec
from seedbed.v1 import inference_pb2 as wire

_DTYPES = ("uint8", "int8", "int16", "uint16", "int32", "float16", "float32")
# Rewards and flags of the largest group, and the message's own fields.
_STEP_OVERHEAD_BYTES = 64 * 1024
# Bounds of a spec that the first Hello brings.
_FIRST_OBSERVATION_BYTES = 512 * 1024
_FIRST_ACTIONS = 4096


@dataclass(frozen=True)
class Handshake:
    """Validated Hello of a session. `protocol_version` is the one that both sides use."""

    protocol_version: int
    incarnation: int
    actor: str
    num_envs: int
    spec: EnvironmentSpec


def actor_hello(metadata: Metadata) -> wire.Hello:
    """Return the Hello in the metadata of an actor's call.

    Raises:
        InvalidStep: there is none, or it is not a Hello.
    """
    try:
        return hello_in(metadata, wire.Hello)
    except NoHello as error:
        advice = "see Act in proto/seedbed/v1/inference.proto"
        expected = f"Hello in the metadata {HELLO_KEY}"
        raise InvalidStep("hello", expected, error.received, advice) from None


def validate_hello(
    hello: wire.Hello, environment: str, spec: EnvironmentSpec | None, settings: Learner
) -> Handshake:
    """Check a Hello against this learner.

    Args:
        hello: the Hello of the stream.
        environment: the experiment's `environment.id`.
        spec: spec of the first session or of the checkpoint; None before either.
        settings: the experiment's section.

    Raises:
        SpecMismatch: the first field that does not fit.
    """

    def check(field: str, fits: bool, expected: object, received: object, advice: str) -> None:
        if not fits:
            raise SpecMismatch(field, expected, received, advice)

    # In this order, because a check may rely on those before it.
    newest = min(hello.protocol_version, PROTOCOL_VERSION)
    check(
        "protocol_version",
        newest >= max(hello.oldest_protocol_version, OLDEST_PROTOCOL_VERSION),
        f"{OLDEST_PROTOCOL_VERSION} to {PROTOCOL_VERSION}",
        f"{hello.oldest_protocol_version} to {hello.protocol_version}",
        "upgrade the older side; versions next to each other work together",
    )
    fits = hello.environment == environment
    advice = "start actor and learner with the same experiment"
    check("environment", fits, repr(environment), repr(hello.environment), advice)
    most = settings.inference.max_batch_envs
    for field, high, advice in (
        ("environments", most, "learner.inference.max_batch_envs bounds actor.envs_per_group"),
        ("actions", MAX_ACTIONS, "the sizes of its parts together"),
        ("action_repeat", MAX_REPEAT, "emulator frames a step"),
    ):
        value = getattr(hello, field)
        check(field, 1 <= value <= high, f"1 to {high}", value, advice)
    dtype, shape = hello.observation.dtype, list(hello.observation.shape)
    dtypes, advice = "one of " + ", ".join(_DTYPES), "convert it in the environment"
    check("observation.dtype", dtype in _DTYPES, dtypes, repr(dtype), advice)
    fits, advice = 1 <= len(shape) <= 3 and min(shape) >= 1, "flatten it in the environment"
    check("observation.shape", fits, "one to three positive sizes", shape, advice)
    try:
        space, observation = space_from_wire(hello), observation_from_wire(hello)
    except ValueError as error:
        known = "sizes that sum to `actions`, and entries that fill the observation"
        raise SpecMismatch("spaces", known, str(error), "see Hello") from error
    theirs = EnvironmentSpec(
        name=hello.environment,
        observation=observation,
        actions=hello.actions,
        action_repeat=hello.action_repeat,
        space=space,
    )
    advice = "start actor and learner with the same experiment"
    here = settings.inference.location
    location = "actor" if hello.inference == wire.INFERENCE_LOCATION_ACTOR else "learner"
    check("inference", location == here, f"learner.inference.location {here}", location, advice)
    steps, length = 1, settings.unroll_length
    if location == "actor":
        fits = hello.unroll_length == length
        check("unroll_length", fits, length, hello.unroll_length, advice)
        steps = length + 1
    step_bytes = steps * hello.environments * theirs.observation.row_bytes
    check(
        "observation",
        step_bytes <= MAX_MESSAGE_BYTES - _STEP_OVERHEAD_BYTES,
        f"messages of at most {MAX_MESSAGE_BYTES} bytes",
        f"{step_bytes} bytes: {steps} x {counted(hello.environments, 'environment')} of "
        f"{theirs.observation}",
        "lower actor.envs_per_group or make the observation smaller",
    )
    advice = "all actors and the checkpoint must have one environment"
    for field in ("observation", "actions", "action", "action_repeat") if spec is not None else ():
        ours, other = getattr(spec, field), getattr(theirs, field)
        check(field, ours == other, ours, other, advice)
    name = printable(hello.actor)
    return Handshake(newest, hello.incarnation, name, hello.environments, theirs)


def largest_message(spec: EnvironmentSpec, settings: Learner) -> int:
    """Return the size of the largest message of an actor, in bytes.

    Args:
        spec: spec of the environments.
        settings: the experiment's section.
    """
    most = settings.inference.max_batch_envs
    size = most * spec.observation.row_bytes + _STEP_OVERHEAD_BYTES
    if settings.inference.location == "actor":
        # Means, deviations and normal numbers are three of a continuous action; then the action.
        logits, state = 4 * 3 * spec.actions + spec.action.array.row_bytes, 8 * settings.lstm_units
        size = (settings.unroll_length + 1) * (size + most * logits) + most * state
    return min(size, MAX_MESSAGE_BYTES)


def check_first_spec(spec: EnvironmentSpec, settings: Learner) -> None:
    """Check that a spec, which only a Hello vouches for, needs no more than a fair part of memory.

    Args:
        spec: spec of the first Hello.
        settings: the experiment's section.

    Raises:
        SpecMismatch: with the bound.
    """
    advice = "install the environment beside the learner, which then reads the sizes itself"
    row, most = spec.observation.row_bytes, _FIRST_OBSERVATION_BYTES
    if row > most:
        bound = f"at most {most} bytes from the first actor"
        raise SpecMismatch("observation", bound, f"{row} bytes: {spec.observation}", advice)
    if spec.actions > _FIRST_ACTIONS:
        bound = f"at most {_FIRST_ACTIONS} from the first actor"
        raise SpecMismatch("actions", bound, spec.actions, advice)
    waiting = 1 if settings.queue_batches is None else settings.queue_batches
    unrolls = (waiting + 2) * settings.host_batch_size * (settings.unroll_length + 1)
    rows = settings.inference.slots * settings.frame_stack + unrolls
    usable = usable_memory_bytes() // 2
    if usable and rows * row > usable:
        bound = f"steps of at most {usable} bytes in all, half of the memory"
        received = f"{rows * row} bytes: {rows} observations of {spec.observation}"
        raise SpecMismatch("observation", bound, received, advice)


def welcome_to(handshake: Handshake, settings: Learner, **of_learner: int) -> wire.Welcome:
    """Return the answer to a Hello.

    Args:
        handshake: the Hello, validated.
        settings: timeouts that the actor has to know.
        of_learner: further fields of Welcome.
    """
    return wire.Welcome(
        protocol_version=handshake.protocol_version,
        incarnation=handshake.incarnation,
        idle_timeout_seconds=settings.idle_timeout_s,
        notice_interval_seconds=settings.notice_interval_s,
        **of_learner,
    )


def goodbye_in(message: Step | wire.ActorMessage, expected: str) -> str:
    """Return why an actor leaves.

    Args:
        message: what came in place of a step or an unroll.
        expected: `step` or `unroll`.

    Raises:
        InvalidStep: the message is no goodbye.
    """
    kind = kind_of(message)
    if isinstance(message, Step) or kind != "goodbye":
        raise InvalidStep("message", f"{expected} or goodbye", kind or "nothing", "see Act")
    return printable(message.goodbye.reason)
