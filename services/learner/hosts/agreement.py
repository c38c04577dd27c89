"""Agreement of the hosts of a learner: before each step, all have a batch, or all stop."""

import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from seedbed.backends.coordination import Coordination
from seedbed.gossip.exchange import ShuttingDown
from seedbed.runtime.exit_codes import ConfigError, ExitCode, SeedbedError

log = logging.getLogger(__name__)

# Longest wait for one word before the others are looked at again, in seconds.
_SLICE_S = 1.0
# A backend that loses a host ends the process within this time, in seconds.
_ABORT_S = 40.0
# A wait that is longer is logged, in seconds.
_LATE_S = 5.0
# Rounds whose words are deleted at once.
_BLOCK = 256
_GO = "go"


class StopNote(NamedTuple):
    """End of the run, as one host asks for it."""

    host: int
    reason: str
    condition: str | None = None  # key of the stop condition that is met

    def to_json(self) -> str:
        """Return the note as a text."""
        return json.dumps(self)


class Agreement:
    """Agreement of the hosts, in rounds, one before each step. One thread, except `share`.

    Each host writes one word a round: `go` once it has a batch, or a note that it stops. All read
    the same words, so all step, or all stop. A note is told beside the rounds, too, because a host
    without a batch looks at no words. No update begins before every host can take part in it, since
    a collective that one host misses keeps the others for ever.

    Args:
        coordination: the texts that the hosts share.
        tell: returns what this host tells the others, a JSON object.
        learn: takes what the hosts tell, by host.
        describe: says in words what a host is doing.
        note: returns why this host is to stop; None while it goes on.
        waiting: called with a text while this host waits for others, with "" when it goes on.
        meanwhile: called each second of such a wait.
        now: clock, in seconds.

    Attributes:
        decision: why all hosts stop; None before.
    """

    def __init__(
        self,
        coordination: Coordination,
        tell: Callable[[], dict[str, object]],
        learn: Callable[[Mapping[int, str]], None],
        describe: Callable[[int], str],
        note: Callable[[], StopNote | None],
        waiting: Callable[[str], None],
        meanwhile: Callable[[], None] = lambda: None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._shared, self._tell, self._learn, self._now = coordination, tell, learn, now
        self._describe, self._note, self._waiting = describe, note, waiting
        self._meanwhile = meanwhile
        self._round = 0
        self.decision: StopNote | None = None

    @property
    def host(self) -> int:
        """Number of this host, from 0."""
        return self._shared.host

    @property
    def hosts(self) -> int:
        """Number of hosts."""
        return self._shared.hosts

    def meet(self, built: str) -> None:
        """Wait until every host has built the same model.

        Args:
            built: what this host has built, in words.

        Raises:
            SeedbedError: CONFIG: another host has built something else.
            ShuttingDown: this host, or another one, stops.
        """
        self._shared.put(f"built/{self.host}", built)
        found = self._collect("built", "to build the model")
        if found is None:
            raise ShuttingDown
        for host, other in sorted(found.items()):
            if other != built:
                raise ConfigError(
                    f"host {host} has built {other}, and host {self.host} {built}: give all hosts "
                    "the same experiment"
                )

    def all_go(self, has_batch: bool) -> bool:
        """Return whether all hosts step now.

        Args:
            has_batch: this host has a batch. Then the wait is for all that have none. Without one,
                this host returns at once, and steps in no case.
        """
        if self.decision is not None:
            return False
        if not has_batch:
            return False
        self._shared.put(f"{self._folder}/{self.host}", _GO)
        if self._collect(self._folder, "to have a batch") is None:
            return False
        self._round += 1
        if self._round % _BLOCK == 0 and self.host == 0 and self._round > _BLOCK:
            # All hosts have passed the block before the last one.
            self._shared.delete(f"round/{self._round // _BLOCK - 2}")
        return True

    def word_of_first(self, word: str | None = None) -> str:
        """Return the word of the first host, for which all hosts wait after an update.

        Args:
            word: the word, which the first host gives.

        Raises:
            ShuttingDown: the first host stops instead.
        """
        folder = f"{self._folder}-first"
        if word is not None:
            self._shared.put(f"{folder}/0", word)
            return word
        words = self._collect(folder, "to exchange parameters", first_only=True)
        if words is None:
            raise ShuttingDown
        return words[0]

    def lost(self, error: BaseException) -> SeedbedError:
        """Return the failure of an update that the hosts make together.

        The backend ends this process within seconds if a host is lost, and names it. So this
        waits for it.
        """
        log.error("an update of all hosts failed: %s", error)
        time.sleep(_ABORT_S)
        first = str(error).partition("\n")[0]
        return SeedbedError(ExitCode.HOSTS_FAILED, f"an update of all hosts failed: {first}")

    def leave(self) -> None:
        """Tell the other hosts that this one steps no more."""
        note = self.decision = self.decision or self._note()
        if note is not None:
            self.share()
            self._shared.put(f"{self._folder}/{self.host}", note.to_json())

    def part(self, timeout_s: float) -> None:
        """Wait until no host steps any more, take the last counts of all, and disconnect.

        Args:
            timeout_s: longest wait for the others.

        Raises:
            SeedbedError: HOSTS_FAILED: a host did not come.
        """
        self.share()
        self._shared.barrier("end", timeout_s)
        self._learn({int(host): text for host, text in self._shared.texts("told").items()})
        self._shared.close()

    @property
    def _folder(self) -> str:
        return f"round/{self._round // _BLOCK}/{self._round}"

    def share(self) -> None:
        """Tell the counts of this host, learn those of the others, and whether one stops.

        Any thread: called twice a second, it is the sign of life that the other hosts look for.
        """
        note = self.decision or self._note()
        told = {**self._tell(), "stop": note, "time": time.time()}
        self._shared.put(f"told/{self.host}", json.dumps(told))
        texts = {int(host): text for host, text in self._shared.texts("told").items()}
        self._learn(texts)
        if self.decision is None:
            notes = [json.loads(text)["stop"] for host, text in texts.items() if host != self.host]
            self.decision = next((StopNote(*found) for found in sorted(filter(None, notes))), None)

    def _collect(self, folder: str, task: str, first_only: bool = False) -> dict[int, str] | None:
        """Return the words of all hosts, or None if one of them is a note, which is decided then.

        Args:
            folder: the folder of the words.
            task: what the hosts without a word have yet to do.
            first_only: wait for the word of the first host alone, or for its note.
        """
        since, logged = self._now(), False
        while True:
            words = {int(host): text for host, text in self._shared.texts(folder).items()}
            if first_only and not words:
                # It leaves before the next round, if it stops. Any other host's note is for later.
                left = self._shared.texts(self._folder).get("0", "")
                words = {0: left} if left.startswith("[") else {}
            if notes := sorted(text for text in words.values() if text.startswith("[")):
                self.decision = StopNote(*json.loads(notes[0]))
                break
            hosts = 1 if first_only else self.hosts
            missing = [host for host in range(hosts) if host not in words]
            if not missing:
                self._waiting("")
                return words
            if self._shared.wait(f"{folder}/{missing[0]}", _SLICE_S) is not None:
                continue
            text = f"waiting for {self._names(missing)} {task}"
            self._waiting(text)
            if not logged and self._now() - since > _LATE_S:
                logged = True
                log.warning("%s", text)
            self._meanwhile()
            if folder == "built" and (self.decision or self._note()):
                break
        self._waiting("")
        return None

    def _names(self, hosts: Sequence[int]) -> str:
        return " and ".join(self._describe(host) for host in hosts)
