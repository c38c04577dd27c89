"""The console script `seedbed`: quiet on Ctrl-C from its first moment."""

import signal
import sys


def run() -> None:
    """Run `seedbed.cli.main`; a Ctrl-C while Python imports it ends the process without a word."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from seedbed.runtime.streams import keep_stdout, open_closed

    open_closed()
    from seedbed.cli.main import RESTARTED, RUNS_OTHER_CODE, main

    if sys.argv[1:2] and sys.argv[1] in RUNS_OTHER_CODE:
        from seedbed.cli.arguments import exit_with_parent_of
        from seedbed.runtime.guard import run_guarded

        exit_with_parent_of(sys.argv)

        def run_other_code() -> int:
            keep_stdout()
            return main()

        run_guarded(run_other_code, is_restarted=sys.argv[1] in RESTARTED)
    sys.exit(main())


if __name__ == "__main__":
    run()
