from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ActionKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ACTION_KIND_DISCRETE: _ClassVar[ActionKind]
    ACTION_KIND_MULTI_DISCRETE: _ClassVar[ActionKind]
    ACTION_KIND_CONTINUOUS: _ClassVar[ActionKind]

class InferenceLocation(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    INFERENCE_LOCATION_LEARNER: _ClassVar[InferenceLocation]
    INFERENCE_LOCATION_ACTOR: _ClassVar[InferenceLocation]

class StepFlag(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    STEP_FLAG_UNSPECIFIED: _ClassVar[StepFlag]
    STEP_FLAG_TERMINATED: _ClassVar[StepFlag]
    STEP_FLAG_TRUNCATED: _ClassVar[StepFlag]
    STEP_FLAG_LIFE_LOST: _ClassVar[StepFlag]
    STEP_FLAG_FIRST: _ClassVar[StepFlag]
ACTION_KIND_DISCRETE: ActionKind
ACTION_KIND_MULTI_DISCRETE: ActionKind
ACTION_KIND_CONTINUOUS: ActionKind
INFERENCE_LOCATION_LEARNER: InferenceLocation
INFERENCE_LOCATION_ACTOR: InferenceLocation
STEP_FLAG_UNSPECIFIED: StepFlag
STEP_FLAG_TERMINATED: StepFlag
STEP_FLAG_TRUNCATED: StepFlag
STEP_FLAG_LIFE_LOST: StepFlag
STEP_FLAG_FIRST: StepFlag

class ActorMessage(_message.Message):
    __slots__ = ("goodbye", "step", "unroll")
    GOODBYE_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    UNROLL_FIELD_NUMBER: _ClassVar[int]
    goodbye: Goodbye
    step: Step
    unroll: Unroll
    def __init__(self, goodbye: _Optional[_Union[Goodbye, _Mapping]] = ..., step: _Optional[_Union[Step, _Mapping]] = ..., unroll: _Optional[_Union[Unroll, _Mapping]] = ...) -> None: ...

class LearnerMessage(_message.Message):
    __slots__ = ("welcome", "actions", "notice", "finished", "parameters")
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    ACTIONS_FIELD_NUMBER: _ClassVar[int]
    NOTICE_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    welcome: Welcome
    actions: Actions
    notice: Notice
    finished: Finished
    parameters: Parameters
    def __init__(self, welcome: _Optional[_Union[Welcome, _Mapping]] = ..., actions: _Optional[_Union[Actions, _Mapping]] = ..., notice: _Optional[_Union[Notice, _Mapping]] = ..., finished: _Optional[_Union[Finished, _Mapping]] = ..., parameters: _Optional[_Union[Parameters, _Mapping]] = ...) -> None: ...

class ArraySpec(_message.Message):
    __slots__ = ("shape", "dtype")
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    shape: _containers.RepeatedScalarFieldContainer[int]
    dtype: str
    def __init__(self, shape: _Optional[_Iterable[int]] = ..., dtype: _Optional[str] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("protocol_version", "oldest_protocol_version", "incarnation", "actor", "environment", "environments", "observation", "actions", "action_repeat", "inference", "unroll_length", "action_kind", "action_sizes", "entries")
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    OLDEST_PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    ACTOR_FIELD_NUMBER: _ClassVar[int]
    ENVIRONMENT_FIELD_NUMBER: _ClassVar[int]
    ENVIRONMENTS_FIELD_NUMBER: _ClassVar[int]
    OBSERVATION_FIELD_NUMBER: _ClassVar[int]
    ACTIONS_FIELD_NUMBER: _ClassVar[int]
    ACTION_REPEAT_FIELD_NUMBER: _ClassVar[int]
    INFERENCE_FIELD_NUMBER: _ClassVar[int]
    UNROLL_LENGTH_FIELD_NUMBER: _ClassVar[int]
    ACTION_KIND_FIELD_NUMBER: _ClassVar[int]
    ACTION_SIZES_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    protocol_version: int
    oldest_protocol_version: int
    incarnation: int
    actor: str
    environment: str
    environments: int
    observation: ArraySpec
    actions: int
    action_repeat: int
    inference: InferenceLocation
    unroll_length: int
    action_kind: ActionKind
    action_sizes: _containers.RepeatedScalarFieldContainer[int]
    entries: _containers.RepeatedCompositeFieldContainer[ObservationEntry]
    def __init__(self, protocol_version: _Optional[int] = ..., oldest_protocol_version: _Optional[int] = ..., incarnation: _Optional[int] = ..., actor: _Optional[str] = ..., environment: _Optional[str] = ..., environments: _Optional[int] = ..., observation: _Optional[_Union[ArraySpec, _Mapping]] = ..., actions: _Optional[int] = ..., action_repeat: _Optional[int] = ..., inference: _Optional[_Union[InferenceLocation, str]] = ..., unroll_length: _Optional[int] = ..., action_kind: _Optional[_Union[ActionKind, str]] = ..., action_sizes: _Optional[_Iterable[int]] = ..., entries: _Optional[_Iterable[_Union[ObservationEntry, _Mapping]]] = ...) -> None: ...

class ObservationEntry(_message.Message):
    __slots__ = ("name", "array", "categories")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ARRAY_FIELD_NUMBER: _ClassVar[int]
    CATEGORIES_FIELD_NUMBER: _ClassVar[int]
    name: str
    array: ArraySpec
    categories: int
    def __init__(self, name: _Optional[str] = ..., array: _Optional[_Union[ArraySpec, _Mapping]] = ..., categories: _Optional[int] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("protocol_version", "incarnation", "session", "idle_timeout_seconds", "notice_interval_seconds", "learner_incarnation", "env_frames")
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    IDLE_TIMEOUT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    NOTICE_INTERVAL_SECONDS_FIELD_NUMBER: _ClassVar[int]
    LEARNER_INCARNATION_FIELD_NUMBER: _ClassVar[int]
    ENV_FRAMES_FIELD_NUMBER: _ClassVar[int]
    protocol_version: int
    incarnation: int
    session: int
    idle_timeout_seconds: float
    notice_interval_seconds: float
    learner_incarnation: int
    env_frames: int
    def __init__(self, protocol_version: _Optional[int] = ..., incarnation: _Optional[int] = ..., session: _Optional[int] = ..., idle_timeout_seconds: _Optional[float] = ..., notice_interval_seconds: _Optional[float] = ..., learner_incarnation: _Optional[int] = ..., env_frames: _Optional[int] = ...) -> None: ...

class Step(_message.Message):
    __slots__ = ("sequence", "observation", "reward", "flags", "environment_seconds", "wait_seconds")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    OBSERVATION_FIELD_NUMBER: _ClassVar[int]
    REWARD_FIELD_NUMBER: _ClassVar[int]
    FLAGS_FIELD_NUMBER: _ClassVar[int]
    ENVIRONMENT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    WAIT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    observation: bytes
    reward: bytes
    flags: bytes
    environment_seconds: float
    wait_seconds: float
    def __init__(self, sequence: _Optional[int] = ..., observation: _Optional[bytes] = ..., reward: _Optional[bytes] = ..., flags: _Optional[bytes] = ..., environment_seconds: _Optional[float] = ..., wait_seconds: _Optional[float] = ...) -> None: ...

class Actions(_message.Message):
    __slots__ = ("sequence", "action")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    action: bytes
    def __init__(self, sequence: _Optional[int] = ..., action: _Optional[bytes] = ...) -> None: ...

class Notice(_message.Message):
    __slots__ = ("sequence", "reason", "waited_seconds")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    WAITED_SECONDS_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    reason: str
    waited_seconds: float
    def __init__(self, sequence: _Optional[int] = ..., reason: _Optional[str] = ..., waited_seconds: _Optional[float] = ...) -> None: ...

class Unroll(_message.Message):
    __slots__ = ("sequence", "observation", "reward", "flags", "environment_seconds", "wait_seconds", "action", "behaviour", "state", "version")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    OBSERVATION_FIELD_NUMBER: _ClassVar[int]
    REWARD_FIELD_NUMBER: _ClassVar[int]
    FLAGS_FIELD_NUMBER: _ClassVar[int]
    ENVIRONMENT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    WAIT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    BEHAVIOUR_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    observation: bytes
    reward: bytes
    flags: bytes
    environment_seconds: bytes
    wait_seconds: bytes
    action: bytes
    behaviour: _containers.RepeatedScalarFieldContainer[bytes]
    state: bytes
    version: int
    def __init__(self, sequence: _Optional[int] = ..., observation: _Optional[bytes] = ..., reward: _Optional[bytes] = ..., flags: _Optional[bytes] = ..., environment_seconds: _Optional[bytes] = ..., wait_seconds: _Optional[bytes] = ..., action: _Optional[bytes] = ..., behaviour: _Optional[_Iterable[bytes]] = ..., state: _Optional[bytes] = ..., version: _Optional[int] = ...) -> None: ...

class Parameters(_message.Message):
    __slots__ = ("version", "values", "more")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    version: int
    values: bytes
    more: bool
    def __init__(self, version: _Optional[int] = ..., values: _Optional[bytes] = ..., more: _Optional[bool] = ...) -> None: ...

class Goodbye(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...

class Finished(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...

class StreamError(_message.Message):
    __slots__ = ("field", "expected", "received", "advice")
    FIELD_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_FIELD_NUMBER: _ClassVar[int]
    ADVICE_FIELD_NUMBER: _ClassVar[int]
    field: str
    expected: str
    received: str
    advice: str
    def __init__(self, field: _Optional[str] = ..., expected: _Optional[str] = ..., received: _Optional[str] = ..., advice: _Optional[str] = ...) -> None: ...

class GetStatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetStatusReply(_message.Message):
    __slots__ = ("json",)
    JSON_FIELD_NUMBER: _ClassVar[int]
    json: str
    def __init__(self, json: _Optional[str] = ...) -> None: ...
