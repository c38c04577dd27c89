"""Names of the scenarios of Google Research Football, and the check that its package is there."""

import difflib
import importlib
import pkgutil

from seedbed.runtime.exit_codes import ExitCode, SeedbedError

INSTALL = "make football"


def check_scenario(name: str) -> None:
    """Check a scenario, because the package ends the process at an unknown one.

    Args:
        name: what follows `football:` in `environment.id`.

    Raises:
        SeedbedError: ENVIRONMENT: the package is missing, with the command that installs it; or it
            has no such scenario, with the nearest names.
    """
    scenarios = all_scenarios()
    if name in scenarios:
        return
    near = difflib.get_close_matches(name, scenarios, n=3)
    there = f"did you mean {', '.join(near)}?" if near else f"it has {', '.join(scenarios)}"
    raise SeedbedError(
        ExitCode.ENVIRONMENT,
        f"environment.id {'football:' + name!r}: there is no scenario {name!r} among the "
        f"{len(scenarios)} of gfootball; {there}",
    )


def all_scenarios() -> list[str]:
    """Return the names of all scenarios, sorted.

    Raises:
        SeedbedError: ENVIRONMENT: the package is missing.
    """
    try:
        importlib.import_module("gfootball_engine")
        scenarios = importlib.import_module("gfootball.scenarios")
    except ImportError as error:
        raise SeedbedError(
            ExitCode.ENVIRONMENT,
            f"Google Research Football cannot be imported ({error}): `{INSTALL}` in a checkout of "
            "Seedbed builds and installs it, on Debian 12 with Python 3.11; docs/football.md has "
            "the image",
        ) from error
    # Those of the package's own tests are no tasks.
    found = (module.name for module in pkgutil.iter_modules(scenarios.__path__))
    return sorted(name for name in found if not name.startswith("test"))
