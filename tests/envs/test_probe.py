"""The probe of an environment in a process of its own."""

from __future__ import annotations

from seedbed.config.environment import Environment
from seedbed.envs.probe import EnvironmentProbe
from seedbed.spec import ArraySpec, EnvironmentSpec


def never() -> bool:
    return False


def test_the_probe_reads_the_spec() -> None:
    probe = EnvironmentProbe(Environment(id="CartPole-v1"))
    expected = EnvironmentSpec("CartPole-v1", ArraySpec((4,), "float32"), 2, 1)
    assert probe.wait(never) == expected


def test_the_probe_tells_of_bounds_that_are_none() -> None:
    probe = EnvironmentProbe(Environment(id="tests.support.brought_environments:HardlyBounded"))
    assert probe.wait(never) is not None
    (warning,) = probe.warnings
    assert "6.81e+38 apart, which is no bound" in warning


def test_an_environment_that_is_not_installed_is_named() -> None:
    probe = EnvironmentProbe(Environment(id="not_here:make"))
    assert probe.wait(never) is None
    assert "No module named 'not_here'" in probe.failure


def test_the_probe_ends_when_the_learner_does() -> None:
    probe = EnvironmentProbe(Environment(id="time:sleep", kwargs={}))
    assert probe.wait(lambda: True) is None
