"""The cause of an end is found in the last lines of a log."""

from __future__ import annotations

from seedbed.launch.supervisor import last_cause

ENDS = """12:00 I seedbed: begins
seedbed: x:Env: 10 failures of environments within ten minutes; the last one: ValueError: 3
seedbed: exit code 11 (ENVIRONMENT): The environment cannot be made: see the log.
"""
UNRAISABLE = """Exception ignored in: <function Env.__del__ at 0x7f>
Traceback (most recent call last):
  File "env.py", line 9, in __del__
    self.area.close()
AttributeError: 'NoneType' object has no attribute 'close'
"""


def test_what_python_prints_of_a_destructor_is_no_cause() -> None:
    cause = last_cause(ENDS)
    assert cause.startswith("seedbed: x:Env: 10 failures")
    assert cause.endswith("ValueError: 3")
    assert last_cause(ENDS + UNRAISABLE) == cause
    assert last_cause(ENDS + 2 * UNRAISABLE + "Exception ignored in sys.unraisablehook\n") == cause
    assert last_cause("a\n" + UNRAISABLE + "the last line\n") == "the last line"
