"""The clock of limits and measurements, which environments that stop Python's clock do not stop.

A simulator may replace `time.monotonic` and its like for its whole process, as freezegun does.
"""

import time
from functools import partial

# Seconds of the machine, for all its processes.
monotonic = partial(time.clock_gettime, time.CLOCK_MONOTONIC)
# Seconds of CPU of this process.
process_time = partial(time.clock_gettime, time.CLOCK_PROCESS_CPUTIME_ID)
