"""Generated from proto/seedbed/v1 by `make proto`. Nothing but this line is written by hand."""
