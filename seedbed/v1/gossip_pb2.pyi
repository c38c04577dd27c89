from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GossipHello(_message.Message):
    __slots__ = ("protocol_version", "experiment", "rank", "learners", "incarnation", "parameters")
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    EXPERIMENT_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    LEARNERS_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    protocol_version: int
    experiment: str
    rank: int
    learners: int
    incarnation: int
    parameters: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, protocol_version: _Optional[int] = ..., experiment: _Optional[str] = ..., rank: _Optional[int] = ..., learners: _Optional[int] = ..., incarnation: _Optional[int] = ..., parameters: _Optional[_Iterable[int]] = ...) -> None: ...

class Member(_message.Message):
    __slots__ = ("iteration", "updates", "env_frames", "seconds", "dollars", "return_sum", "return_count", "over", "waiting")
    ITERATION_FIELD_NUMBER: _ClassVar[int]
    UPDATES_FIELD_NUMBER: _ClassVar[int]
    ENV_FRAMES_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    DOLLARS_FIELD_NUMBER: _ClassVar[int]
    RETURN_SUM_FIELD_NUMBER: _ClassVar[int]
    RETURN_COUNT_FIELD_NUMBER: _ClassVar[int]
    OVER_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    iteration: int
    updates: int
    env_frames: int
    seconds: float
    dollars: float
    return_sum: float
    return_count: int
    over: str
    waiting: bool
    def __init__(self, iteration: _Optional[int] = ..., updates: _Optional[int] = ..., env_frames: _Optional[int] = ..., seconds: _Optional[float] = ..., dollars: _Optional[float] = ..., return_sum: _Optional[float] = ..., return_count: _Optional[int] = ..., over: _Optional[str] = ..., waiting: _Optional[bool] = ...) -> None: ...

class Chunk(_message.Message):
    __slots__ = ("iteration", "offset", "size", "crc32", "payload")
    ITERATION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    CRC32_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    iteration: int
    offset: int
    size: int
    crc32: int
    payload: bytes
    def __init__(self, iteration: _Optional[int] = ..., offset: _Optional[int] = ..., size: _Optional[int] = ..., crc32: _Optional[int] = ..., payload: _Optional[bytes] = ...) -> None: ...

class PushRequest(_message.Message):
    __slots__ = ("heartbeat", "chunk")
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    heartbeat: Member
    chunk: Chunk
    def __init__(self, heartbeat: _Optional[_Union[Member, _Mapping]] = ..., chunk: _Optional[_Union[Chunk, _Mapping]] = ...) -> None: ...

class PushReply(_message.Message):
    __slots__ = ("welcome", "received")
    class Welcome(_message.Message):
        __slots__ = ()
        def __init__(self) -> None: ...
    class Received(_message.Message):
        __slots__ = ("iteration",)
        ITERATION_FIELD_NUMBER: _ClassVar[int]
        iteration: int
        def __init__(self, iteration: _Optional[int] = ...) -> None: ...
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_FIELD_NUMBER: _ClassVar[int]
    welcome: PushReply.Welcome
    received: PushReply.Received
    def __init__(self, welcome: _Optional[_Union[PushReply.Welcome, _Mapping]] = ..., received: _Optional[_Union[PushReply.Received, _Mapping]] = ...) -> None: ...

class FetchRequest(_message.Message):
    __slots__ = ("whole_state",)
    WHOLE_STATE_FIELD_NUMBER: _ClassVar[int]
    whole_state: bool
    def __init__(self, whole_state: _Optional[bool] = ...) -> None: ...

class FetchReply(_message.Message):
    __slots__ = ("member", "arrays", "chunk", "highest_iteration", "incarnation")
    class Array(_message.Message):
        __slots__ = ("name", "dtype", "shape", "data")
        NAME_FIELD_NUMBER: _ClassVar[int]
        DTYPE_FIELD_NUMBER: _ClassVar[int]
        SHAPE_FIELD_NUMBER: _ClassVar[int]
        DATA_FIELD_NUMBER: _ClassVar[int]
        name: str
        dtype: str
        shape: _containers.RepeatedScalarFieldContainer[int]
        data: bytes
        def __init__(self, name: _Optional[str] = ..., dtype: _Optional[str] = ..., shape: _Optional[_Iterable[int]] = ..., data: _Optional[bytes] = ...) -> None: ...
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    ARRAYS_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    HIGHEST_ITERATION_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    member: Member
    arrays: _containers.RepeatedCompositeFieldContainer[FetchReply.Array]
    chunk: Chunk
    highest_iteration: int
    incarnation: int
    def __init__(self, member: _Optional[_Union[Member, _Mapping]] = ..., arrays: _Optional[_Iterable[_Union[FetchReply.Array, _Mapping]]] = ..., chunk: _Optional[_Union[Chunk, _Mapping]] = ..., highest_iteration: _Optional[int] = ..., incarnation: _Optional[int] = ...) -> None: ...

class ReduceRequest(_message.Message):
    __slots__ = ("segment",)
    class Segment(_message.Message):
        __slots__ = ("update", "step", "data")
        UPDATE_FIELD_NUMBER: _ClassVar[int]
        STEP_FIELD_NUMBER: _ClassVar[int]
        DATA_FIELD_NUMBER: _ClassVar[int]
        update: int
        step: int
        data: bytes
        def __init__(self, update: _Optional[int] = ..., step: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    segment: ReduceRequest.Segment
    def __init__(self, segment: _Optional[_Union[ReduceRequest.Segment, _Mapping]] = ...) -> None: ...

class ReduceReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class AccumulateRequest(_message.Message):
    __slots__ = ("gradients",)
    GRADIENTS_FIELD_NUMBER: _ClassVar[int]
    gradients: Chunk
    def __init__(self, gradients: _Optional[_Union[Chunk, _Mapping]] = ...) -> None: ...

class AccumulateReply(_message.Message):
    __slots__ = ("parameters",)
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    parameters: Chunk
    def __init__(self, parameters: _Optional[_Union[Chunk, _Mapping]] = ...) -> None: ...
