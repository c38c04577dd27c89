"""The console script `seedbed`: quiet on Ctrl-C from its first moment."""

import signal
import sys


def run() -> None:
    """Run `seedbed.cli.main`; a Ctrl-C while Python imports it ends the process without a word."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from seedbed.cli.main import main

    sys.exit(main())


if __name__ == "__main__":
    run()
