"""Dollars and frames of a release by run, kept over restarts of the meter."""

import json
import logging
import math
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from seedbed.runtime.exit_codes import ConfigError

log = logging.getLogger(__name__)

SAVE_INTERVAL_S = 20.0
# Longest time without a meter that is charged: clocks are wrong, and machines are suspended.
MAX_GAP_S = 24 * 3600.0
# Cost of earlier releases on this volume; no breakdown is available.
EARLIER = "earlier/unknown"


@dataclass
class Run:
    """Bill and frames of one run.

    Attributes:
        dollars: US dollars since the run began.
        frames: Emulator frames of all learners, as last known.
        parts: The dollars by `component/tier`.
        lower: Lower bound of the dollars, where something has no certain price.
        upper: Upper bound of the dollars; infinite where there is none.
    """

    dollars: float = 0.0
    frames: int = 0
    parts: dict[str, float] = field(default_factory=dict)
    lower: float = 0.0
    upper: float = 0.0


@dataclass(frozen=True)
class Charge:
    """A pod's price.

    Attributes:
        part: Component and tier.
        rate: US dollars an hour.
        since: Start of the pod in Unix time; None where unknown.
        bounds: Lower and upper bound of the rate; None: it is certain.
    """

    part: tuple[str, str]
    rate: float
    since: float | None = None
    bounds: tuple[float, float] | None = None

    @property
    def between(self) -> tuple[float, float]:
        """Lower and upper bound of the rate; the rate twice where it is certain."""
        return self.bounds or (self.rate, self.rate)


class Ledger:
    """Dollars of a release, by run. Time is measured by a clock that never jumps.

    Attributes:
        run: Name of the present run.
        runs: Bill and frames of each run, by name.
        rates: US dollars an hour from now on, by component and tier.
        bounds: Lower and upper bound of the sum of the rates.
        asked: Ranks of the learners that have reported what an earlier release has cost.
        bill: Name of this ledger, which no other release has had.
    """

    def __init__(self, state: Mapping[str, str], run: str, clock: float, bill: str = "") -> None:
        """Restore the ledger. The time without a meter is charged at the first look at the pods.

        Args:
            state: The output of `to_state`; {} for a new release.
            run: Name of the present run.
            clock: Time of the monotonic clock, in seconds.
            bill: Name of this ledger.

        Raises:
            SeedbedError: CONFIG, the state holds what no meter has written.
        """
        try:
            self.runs = _runs(state, run)
            self._saved: float | None = _number(state.get("unixTime"))
            self.asked = {int(rank) for rank in json.loads(state.get("askedLearners", "[]"))}
            if state.get("run", run) != run:
                self.asked = set()
        except (TypeError, ValueError, AttributeError, KeyError) as error:
            raise ConfigError(
                f"the ConfigMap of the state does not hold what a meter writes: {error}; "
                "correct or remove that key with kubectl edit configmap"
            ) from error
        self.run, self.bill = run, bill
        self.rates: dict[tuple[str, str], float] = {}
        self.bounds = (0.0, 0.0)
        self._clock = clock
        self._looked = False
        self._saved_at = -math.inf

    @property
    def present(self) -> Run:
        """Bill and frames of the present run."""
        return self.runs[self.run]

    @property
    def dollars(self) -> float:
        """US dollars of the present run."""
        return self.present.dollars

    @property
    def frames(self) -> int:
        """Emulator frames of the present run."""
        return self.present.frames

    @property
    def rate(self) -> float:
        """US dollars an hour."""
        return sum(self.rates.values())

    @property
    def dollars_per_billion_frames(self) -> float | None:
        """Dollars by frames of the present run; None before the first frame."""
        return self.dollars / self.frames * 1e9 if self.frames else None

    def reprice(self, charges: Collection[Charge], clock: float, now: float) -> None:
        """Charge the time since the last call at the old rates, and take the new ones.

        The first look charges the time without a meter: each pod from its start, or from the last
        save.

        Args:
            charges: The present pods.
            clock: Time of the monotonic clock, in seconds.
            now: Unix time, in seconds.
        """
        if not self._looked:
            self._looked = True
            self._charge_gap(charges, now)
            self._clock = clock
        self.charge(clock)
        self.rates = {}
        for charge in charges:
            self.rates[charge.part] = self.rates.get(charge.part, 0.0) + charge.rate
        between = [charge.between for charge in charges]
        self.bounds = (sum(lower for lower, _ in between), sum(upper for _, upper in between))

    def charge(self, clock: float) -> None:
        """Charge the time since the last call.

        Args:
            clock: Time of the monotonic clock, in seconds.
        """
        hours = max(0.0, clock - self._clock) / 3600
        self._clock = clock
        for part, rate in self.rates.items():
            self._add(part, hours * rate)
        self._widen(hours, self.bounds)

    def carry(self, dollars: float, earlier: float) -> None:
        """Take over what earlier releases have cost by a learner's report.

        All learners were told one bill, so the largest report counts.

        Args:
            dollars: The learner's count, which may include what this meter has told the learner.
            earlier: The dollars from before this ledger, as far as the learner can tell.
        """
        run = self.present
        known = run.parts.get(EARLIER, 0.0)
        more = max(earlier - known, dollars - run.dollars)
        if more > 0:
            run.parts[EARLIER] = known + more
            run.dollars += more
            run.lower, run.upper = run.lower + more, run.upper + more

    def is_due(self, clock: float) -> bool:
        """Return whether the ledger should be saved; before the first look there is nothing new.

        Args:
            clock: Time of the monotonic clock, in seconds.
        """
        return self._looked and clock - self._saved_at >= SAVE_INTERVAL_S

    def to_state(self, clock: float, now: float) -> dict[str, str | None]:
        """Return the keys that the release's ConfigMap stores.

        Args:
            clock: Time of the monotonic clock, in seconds.
            now: Unix time, in seconds.
        """
        self.charge(clock)
        if self._looked:
            self._saved = now
        self._saved_at = clock
        return {
            "run": self.run,
            "dollars": f"{self.dollars:.6f}",
            "dollarsPerHour": f"{self.rate:.6f}",
            "frames": str(self.frames),
            "unixTime": None if self._saved is None else f"{self._saved:.3f}",
            "askedLearners": json.dumps(sorted(self.asked)),
            "runs": json.dumps({name: _rounded(run) for name, run in self.runs.items()}),
        }

    def _charge_gap(self, charges: Collection[Charge], now: float) -> None:
        longest, total = 0.0, 0.0
        for charge in charges:
            times = [time for time in (self._saved, charge.since) if time is not None]
            gap = max(0.0, now - max(times, default=now))
            hours = min(gap, MAX_GAP_S) / 3600
            dollars = hours * charge.rate
            self._add(charge.part, dollars)
            self._widen(hours, charge.between)
            longest, total = max(longest, gap), total + dollars
        away = 0.0 if self._saved is None else now - self._saved
        if away >= SAVE_INTERVAL_S * 3 or longest > MAX_GAP_S:
            log.info(
                "%.0f s without a meter: %.6g dollars for the present pods, each from its start%s",
                max(away, longest),
                total,
                f", and for {MAX_GAP_S:.0f} s at most" if longest > MAX_GAP_S else "",
            )
        elif away < 0:
            log.warning("the clock is %.0f s behind the last save, which costs nothing", -away)

    def _add(self, part: tuple[str, str], dollars: float) -> None:
        run, name = self.present, "/".join(part)
        run.dollars += dollars
        run.parts[name] = run.parts.get(name, 0.0) + dollars

    def _widen(self, hours: float, bounds: tuple[float, float]) -> None:
        if hours:  # no time at an infinite rate costs nothing
            self.present.lower += hours * bounds[0]
            self.present.upper += hours * bounds[1]


def _runs(state: Mapping[str, str], run: str) -> dict[str, Run]:
    """Return the runs of a state, with the present one."""
    runs: dict[str, Run] = {}
    for name, saved in json.loads(state.get("runs", "{}")).items():
        parts = {part: _number(dollars) or 0.0 for part, dollars in saved["parts"].items()}
        bounds = [float(saved[bound]) for bound in ("lower", "upper")]
        runs[name] = Run(_number(saved["dollars"]) or 0.0, int(saved["frames"]), parts, *bounds)
    runs.setdefault(run, Run())
    return runs


def _number(value: Any) -> float | None:
    if value is None:
        return None
    number = float(value)
    if not (math.isfinite(number) and number >= 0):
        raise ValueError(f"{value!r} is no finite number from 0")
    return number


def _rounded(run: Run) -> dict[str, Any]:
    parts = {name: round(dollars, 6) for name, dollars in run.parts.items()}
    bounds = {"lower": round(run.lower, 6), "upper": round(run.upper, 6)}
    return {**asdict(run), **bounds, "dollars": round(run.dollars, 6), "parts": parts}
