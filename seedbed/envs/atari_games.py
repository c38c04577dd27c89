"""Names and specs of Atari games: `atari:MontezumaRevenge` is the ROM `montezuma_revenge`."""

import difflib

from ale_py import roms

from seedbed.config.environment import Environment
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.spec import ArraySpec, EnvironmentSpec


def atari_spec(environment: Environment, actions: int) -> EnvironmentSpec:
    """Return the spec of a game: single gray images.

    Args:
        environment: the experiment's section.
        actions: A.
    """
    atari = environment.atari
    frame = ArraySpec((atari.height, atari.width, 1), "uint8")
    return EnvironmentSpec(environment.id, frame, actions, atari.frame_skip)


def rom_name(environment_id: str) -> str:
    """Return the ROM of an `atari:` id, in camel case or in snake case.

    Raises:
        SeedbedError: there is no such game; with the nearest names.
    """
    game = environment_id.removeprefix("atari:")
    names = {name.replace("_", ""): name for name in roms.get_all_rom_ids()}
    wanted = game.replace("_", "").lower()
    if wanted in names:
        return names[wanted]
    near = difflib.get_close_matches(wanted, names, n=3)
    advice = f"did you mean {', '.join(names[n] for n in near)}?" if near else "see ale_py.roms"
    raise SeedbedError(
        ExitCode.ENVIRONMENT,
        f"environment.id {environment_id!r}: there is no game {game!r} among the {len(names)} of "
        f"ale_py; {advice}",
    )
