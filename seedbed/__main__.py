"""`python -m seedbed`: the console script."""

from seedbed.cli.__main__ import run

if __name__ == "__main__":
    run()
