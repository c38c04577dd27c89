"""Numbered exit codes: what ended the process, and what to do about it."""

from enum import IntEnum


class ExitCode(IntEnum):
    """Every way in which a Seedbed process ends. `HELP` has one sentence for each code."""

    OK = 0
    INTERNAL = 1
    USAGE = 2
    CONFIG = 10
    ENVIRONMENT = 11
    BACKEND = 12
    BIND = 13
    CHECKPOINT_WRITE = 20
    CHECKPOINT_READ = 21
    RUN_DIRECTORY = 22
    RESUME_REFUSED = 23
    REPLAY_FILES = 24
    OUTPUT = 25
    LEARNER_UNREACHABLE = 30
    REFUSED_BY_LEARNER = 31
    ACTORS_FAILED = 32
    REPLAY_UNREACHABLE = 33
    REFUSED_BY_REPLAY = 34
    PEERS_UNREACHABLE = 35
    LEARNERS_FAILED = 36
    HOSTS_FAILED = 37
    NO_FRAMES = 38
    SET_FAILED = 39
    THREAD_STUCK = 40
    THREAD_FAILED = 41
    DIVERGED = 42
    NO_UPDATES = 44
    DEPLOY = 50
    INTERRUPTED = 130
    TERMINATED = 143


HELP: dict[ExitCode, str] = {
    ExitCode.OK: "Finished, or stopped cleanly on a signal.",
    ExitCode.INTERNAL: "A defect of Seedbed: please report it with the traceback in the log.",
    ExitCode.USAGE: "The command line is wrong: see --help.",
    ExitCode.CONFIG: "A setting, an option or a token file is wrong: correct what the line names.",
    ExitCode.ENVIRONMENT: "The environment cannot be made, raises, hangs, or has unsupported "
    "spaces: `seedbed check env ID` tries it alone.",
    ExitCode.BACKEND: "The backend or its device does not start: run `seedbed check machine`.",
    ExitCode.BIND: "An address or port to listen on is taken or not allowed: choose another one.",
    ExitCode.CHECKPOINT_WRITE: "Checkpoints cannot be written: do as the line says, then run the "
    "same command again; it resumes from the newest whole checkpoint.",
    ExitCode.CHECKPOINT_READ: "No checkpoint could be read: do as the line says, or name another "
    "one.",
    ExitCode.RUN_DIRECTORY: "The run directory cannot be used: do as the line says, or name "
    "another one.",
    ExitCode.RESUME_REFUSED: "The run began with other settings: choose one of the ways above.",
    ExitCode.REPLAY_FILES: "The replay's directory cannot be used: do as the line says, or "
    "name another one.",
    ExitCode.OUTPUT: "A file cannot be written: do as the line says, or name another place for it.",
    ExitCode.LEARNER_UNREACHABLE: "No learner answered at the address in time: is it up, and does "
    "the network policy let this actor through?",
    ExitCode.REFUSED_BY_LEARNER: "The learner refused this process, as the line says: both must "
    "run the same experiment, and a learner with --token-file requires a token of its release.",
    ExitCode.ACTORS_FAILED: "Actor processes keep failing: see actor-*.log in the run directory.",
    ExitCode.REPLAY_UNREACHABLE: "No replay shard answered in time: are they up, and does the "
    "network policy let the learner through?",
    ExitCode.REFUSED_BY_REPLAY: "A replay shard refused this learner, as the line says: give "
    "each experiment shards of its own, and learner and shards token files of one release.",
    ExitCode.PEERS_UNREACHABLE: "A learner of an all-reduce did not answer in time, and all wait "
    "for all: start it again, or set gossip.topology to gossip.",
    ExitCode.LEARNERS_FAILED: "Learner processes keep failing: see logs/learner-*.log in the run "
    "directory.",
    ExitCode.HOSTS_FAILED: "A host of the learner was lost, or stopped alone, and no host trains "
    "without the others: start all of them again; they resume from the newest checkpoint.",
    ExitCode.NO_FRAMES: "A stop condition ended the run before an environment was stepped: raise "
    "the condition, and see logs/ in the run directory for why no actor played.",
    ExitCode.NO_UPDATES: "A stop condition ended the run before its first update, so nothing was "
    "learned and nothing is saved: raise the condition, or make batches smaller.",
    ExitCode.SET_FAILED: "Runs of a set failed: fix what their lines name; the same command goes "
    "on with what waits, and with --retry failed it resumes those that failed too.",
    ExitCode.THREAD_STUCK: "A part of the learner had work and took none for too long: the line "
    "says which and what it waited for.",
    ExitCode.THREAD_FAILED: "A part of the learner failed: the line names it; the log has the "
    "traceback.",
    ExitCode.DIVERGED: "Loss, gradients or parameters are NaN or infinite: look at the batches in "
    "quarantine/, or lower the learning rate; the newest checkpoint is good.",
    ExitCode.DEPLOY: "A program such as helm or kubectl failed, there is no such release, or a pod "
    "does not start: do as the line says, and run the same command again.",
    ExitCode.INTERRUPTED: "Ctrl-C before there was anything to end or save, or a second one: the "
    "same command begins, or resumes, again.",
    ExitCode.TERMINATED: "SIGTERM before there was anything to end or save, or a second one: the "
    "same command begins, or resumes, again.",
}

# No restart mends these: the command line, a setting, the environment, the device, a checkpoint, a
# run directory, the files of a replay.
FATAL = frozenset(
    {
        ExitCode.USAGE,
        ExitCode.CONFIG,
        ExitCode.ENVIRONMENT,
        ExitCode.BACKEND,
        ExitCode.CHECKPOINT_READ,
        ExitCode.RUN_DIRECTORY,
        ExitCode.RESUME_REFUSED,
        ExitCode.REPLAY_FILES,
    }
)


class SeedbedError(Exception):
    """An error with a numbered exit code. Its message names the thing and what to do."""

    def __init__(self, code: ExitCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class ConfigError(SeedbedError):
    """Error in an experiment or a setting; the message names the key, or the file, and a cure."""

    def __init__(self, message: str) -> None:
        super().__init__(ExitCode.CONFIG, message)


class RunDirectoryError(SeedbedError):
    """Run directory that cannot be used; the message says why, and what to do."""

    def __init__(self, message: str) -> None:
        super().__init__(ExitCode.RUN_DIRECTORY, message)
