"""What the controller of a set is about to do with each run, written down before it does it.

A controller that is killed between two calls finds here where it was. Each step can be done twice.
"""

import json
from dataclasses import asdict, dataclass, field
from functools import reduce
from pathlib import Path
from typing import Any, Literal

from seedbed.runtime.files import atomic_write
from seedbed.sets.needs import Limits

# waiting: no objects. starting: the learner is applied, with what its pod mounts. learner: its pod
# is awaited, before the meter and the actors are applied. awake: all is there. ending: the pods
# save and end. leaving: objects are deleted.
Phase = Literal["waiting", "starting", "learner", "awake", "ending", "leaving"]
# Volumes of a run that is over, where they are to be freed. freeing: they are deleted.
Volumes = Literal["", "freeing", "freed"]
# How a run leaves; "" of one that does not.
Outcome = Literal["", "finished", "failed", "paused", "refused", "bound", "limit"]


@dataclass
class Entry:
    """One run.

    Attributes:
        phase: What is being done with the run.
        end: How the run leaves, or has left last.
        why: Why it leaves, or why it waits, in words.
        code: Exit code of a failure.
        begun: When its objects were applied last, in Unix time.
        budget: US dollars at which its meter ends it, beside its own `stop.dollars`; 0 is none.
        dollars: Its bill so far, as last known.
        has_come: All its pods have been made since.
        refusals: Times in a row that the API server refused it.
        again: When it may be tried again after a refusal, in Unix time.
        retries: A person has asked for another try after a failure.
        learners: Learners that it takes while it is awake.
        actors: Actors.
        gpus: GPUs and TPU chips.
        volumes: What is being done with its volumes; "" keeps them.
        pods: When the newest pod of each name of its learner was made, and the pod's UID.
        let_go: UIDs of pods that ended with the run, when it left last.
        restarts: Failures of its learner that a restart has followed, by the pod's UID.
        preempted: UIDs of pods of its learner that something else than the run has taken.
    """

    phase: Phase = "waiting"
    end: Outcome = ""
    why: str = ""
    code: int = 0
    begun: float = 0.0
    budget: float = 0.0
    dollars: float = 0.0
    has_come: bool = False
    refusals: int = 0
    again: float = 0.0
    retries: bool = False
    learners: int = 0
    actors: int = 0
    gpus: int = 0
    volumes: Volumes = ""
    pods: dict[str, tuple[str, str]] = field(default_factory=dict)
    let_go: list[str] = field(default_factory=list)
    restarts: dict[str, int] = field(default_factory=dict)
    preempted: list[str] = field(default_factory=list)

    @property
    def needs(self) -> Limits:
        """What the run takes while it is awake."""
        return Limits(self.learners, self.actors, self.gpus)

    @property
    def is_up(self) -> bool:
        """Whether the run has objects, or is about to have some."""
        return self.phase != "waiting"


@dataclass
class Book:
    """The entries of a set, in a file.

    Attributes:
        file: The file.
        entries: Entries by the names of the runs.
        unsaved: Why the file does not have them; "" where it does.
    """

    file: Path
    entries: dict[str, Entry] = field(default_factory=dict)
    unsaved: str = ""

    @staticmethod
    def read(file: Path) -> "Book":
        """Return what a controller before this one has written.

        Raises:
            ValueError, TypeError: The file holds what no controller has written.
        """
        found: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
        return Book(file, {name: Entry(**entry) for name, entry in found.items()})

    def of(self, run: str) -> Entry:
        """Return the entry of a run, a new one where it has none."""
        return self.entries.setdefault(run, Entry())

    def up(self) -> dict[str, Entry]:
        """Return the entries of the runs that have objects."""
        return {name: entry for name, entry in self.entries.items() if entry.is_up}

    def taken(self) -> Limits:
        """Return what the runs that have objects take together."""
        return reduce(Limits.plus, (entry.needs for entry in self.up().values()), Limits())

    def save(self) -> None:
        """Write the file.

        Raises:
            OSError: It cannot be written.
        """
        found = {name: asdict(entry) for name, entry in self.entries.items()}
        try:
            atomic_write(self.file, json.dumps(found) + "\n")
        except OSError as error:
            self.unsaved = error.strerror or str(error)
            raise
        self.unsaved = ""
