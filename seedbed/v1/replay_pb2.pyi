from seedbed.v1 import inference_pb2 as _inference_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SequenceSpec(_message.Message):
    __slots__ = ("observation", "steps", "burn_in", "lookahead", "frame_stack", "state_size", "environment", "actions", "entries")
    OBSERVATION_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    BURN_IN_FIELD_NUMBER: _ClassVar[int]
    LOOKAHEAD_FIELD_NUMBER: _ClassVar[int]
    FRAME_STACK_FIELD_NUMBER: _ClassVar[int]
    STATE_SIZE_FIELD_NUMBER: _ClassVar[int]
    ENVIRONMENT_FIELD_NUMBER: _ClassVar[int]
    ACTIONS_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    observation: _inference_pb2.ArraySpec
    steps: int
    burn_in: int
    lookahead: int
    frame_stack: int
    state_size: int
    environment: str
    actions: int
    entries: _containers.RepeatedCompositeFieldContainer[_inference_pb2.ObservationEntry]
    def __init__(self, observation: _Optional[_Union[_inference_pb2.ArraySpec, _Mapping]] = ..., steps: _Optional[int] = ..., burn_in: _Optional[int] = ..., lookahead: _Optional[int] = ..., frame_stack: _Optional[int] = ..., state_size: _Optional[int] = ..., environment: _Optional[str] = ..., actions: _Optional[int] = ..., entries: _Optional[_Iterable[_Union[_inference_pb2.ObservationEntry, _Mapping]]] = ...) -> None: ...

class ReplayHello(_message.Message):
    __slots__ = ("protocol_version", "oldest_protocol_version", "learner", "spec", "priority_exponent", "max_abs_reward", "max_abs_observation")
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    OLDEST_PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    LEARNER_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_EXPONENT_FIELD_NUMBER: _ClassVar[int]
    MAX_ABS_REWARD_FIELD_NUMBER: _ClassVar[int]
    MAX_ABS_OBSERVATION_FIELD_NUMBER: _ClassVar[int]
    protocol_version: int
    oldest_protocol_version: int
    learner: str
    spec: SequenceSpec
    priority_exponent: float
    max_abs_reward: float
    max_abs_observation: float
    def __init__(self, protocol_version: _Optional[int] = ..., oldest_protocol_version: _Optional[int] = ..., learner: _Optional[str] = ..., spec: _Optional[_Union[SequenceSpec, _Mapping]] = ..., priority_exponent: _Optional[float] = ..., max_abs_reward: _Optional[float] = ..., max_abs_observation: _Optional[float] = ...) -> None: ...

class ReplayWelcome(_message.Message):
    __slots__ = ("protocol_version", "state")
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    protocol_version: int
    state: ShardState
    def __init__(self, protocol_version: _Optional[int] = ..., state: _Optional[_Union[ShardState, _Mapping]] = ...) -> None: ...

class ShardState(_message.Message):
    __slots__ = ("incarnation", "capacity", "size", "sampleable", "total_priority", "bytes", "inserted", "sampled", "stale_updates", "corrupt", "serving")
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    CAPACITY_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    SAMPLEABLE_FIELD_NUMBER: _ClassVar[int]
    TOTAL_PRIORITY_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    INSERTED_FIELD_NUMBER: _ClassVar[int]
    SAMPLED_FIELD_NUMBER: _ClassVar[int]
    STALE_UPDATES_FIELD_NUMBER: _ClassVar[int]
    CORRUPT_FIELD_NUMBER: _ClassVar[int]
    SERVING_FIELD_NUMBER: _ClassVar[int]
    incarnation: int
    capacity: int
    size: int
    sampleable: int
    total_priority: float
    bytes: int
    inserted: int
    sampled: int
    stale_updates: int
    corrupt: int
    serving: bool
    def __init__(self, incarnation: _Optional[int] = ..., capacity: _Optional[int] = ..., size: _Optional[int] = ..., sampleable: _Optional[int] = ..., total_priority: _Optional[float] = ..., bytes: _Optional[int] = ..., inserted: _Optional[int] = ..., sampled: _Optional[int] = ..., stale_updates: _Optional[int] = ..., corrupt: _Optional[int] = ..., serving: _Optional[bool] = ...) -> None: ...

class InsertRequest(_message.Message):
    __slots__ = ("sequence", "stream_id", "chunk_index", "environments", "version", "payload")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    STREAM_ID_FIELD_NUMBER: _ClassVar[int]
    CHUNK_INDEX_FIELD_NUMBER: _ClassVar[int]
    ENVIRONMENTS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    stream_id: int
    chunk_index: int
    environments: int
    version: float
    payload: bytes
    def __init__(self, sequence: _Optional[int] = ..., stream_id: _Optional[int] = ..., chunk_index: _Optional[int] = ..., environments: _Optional[int] = ..., version: _Optional[float] = ..., payload: _Optional[bytes] = ...) -> None: ...

class InsertReply(_message.Message):
    __slots__ = ("welcome", "sequence", "sampleable", "total_priority")
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    SAMPLEABLE_FIELD_NUMBER: _ClassVar[int]
    TOTAL_PRIORITY_FIELD_NUMBER: _ClassVar[int]
    welcome: ReplayWelcome
    sequence: int
    sampleable: int
    total_priority: float
    def __init__(self, welcome: _Optional[_Union[ReplayWelcome, _Mapping]] = ..., sequence: _Optional[int] = ..., sampleable: _Optional[int] = ..., total_priority: _Optional[float] = ...) -> None: ...

class SampleRequest(_message.Message):
    __slots__ = ("request", "uniform")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    UNIFORM_FIELD_NUMBER: _ClassVar[int]
    request: int
    uniform: bytes
    def __init__(self, request: _Optional[int] = ..., uniform: _Optional[bytes] = ...) -> None: ...

class SampleReply(_message.Message):
    __slots__ = ("welcome", "request", "first", "sequences", "total_priority", "sampleable", "payload")
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    SEQUENCES_FIELD_NUMBER: _ClassVar[int]
    TOTAL_PRIORITY_FIELD_NUMBER: _ClassVar[int]
    SAMPLEABLE_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    welcome: ReplayWelcome
    request: int
    first: int
    sequences: int
    total_priority: float
    sampleable: int
    payload: bytes
    def __init__(self, welcome: _Optional[_Union[ReplayWelcome, _Mapping]] = ..., request: _Optional[int] = ..., first: _Optional[int] = ..., sequences: _Optional[int] = ..., total_priority: _Optional[float] = ..., sampleable: _Optional[int] = ..., payload: _Optional[bytes] = ...) -> None: ...

class PrioritizeRequest(_message.Message):
    __slots__ = ("sequence", "incarnation", "key", "priority")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    incarnation: int
    key: bytes
    priority: bytes
    def __init__(self, sequence: _Optional[int] = ..., incarnation: _Optional[int] = ..., key: _Optional[bytes] = ..., priority: _Optional[bytes] = ...) -> None: ...

class PrioritizeReply(_message.Message):
    __slots__ = ("welcome", "sequence", "stale", "total_priority")
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    STALE_FIELD_NUMBER: _ClassVar[int]
    TOTAL_PRIORITY_FIELD_NUMBER: _ClassVar[int]
    welcome: ReplayWelcome
    sequence: int
    stale: int
    total_priority: float
    def __init__(self, welcome: _Optional[_Union[ReplayWelcome, _Mapping]] = ..., sequence: _Optional[int] = ..., stale: _Optional[int] = ..., total_priority: _Optional[float] = ...) -> None: ...

class GetStateRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
