"""Command line: one module a subcommand of `seedbed`."""
