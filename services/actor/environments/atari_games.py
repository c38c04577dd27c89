"""Names of Atari games: `atari:MontezumaRevenge` is the ROM `montezuma_revenge`."""

from __future__ import annotations

import difflib
import re

from ale_py import roms

from services.common.exit_codes import ExitCode, SeedbedError

PREFIX = "atari:"


def rom_name(environment_id: str) -> str:
    """The ROM of an `atari:` id, which may be in camel case or in snake case.

    Raises:
        SeedbedError: when there is no such game, with the nearest names.
    """
    game = environment_id.removeprefix(PREFIX)
    names = roms.get_all_rom_ids()
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", game).lower()
    for name in (game, snake, game.lower()):
        if name in names:
            return name
    near = difflib.get_close_matches(snake, names, n=3)
    advice = f"did you mean {', '.join(map(repr, near))}?" if near else "see ale_py.roms"
    raise SeedbedError(
        ExitCode.ENVIRONMENT,
        f"environment.id {environment_id!r}: there is no game {snake!r} among the {len(names)} "
        f"of ale_py; {advice}",
    )
