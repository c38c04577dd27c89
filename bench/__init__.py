"""`seedbed bench`: one file a measurement, and the processes that they measure."""
