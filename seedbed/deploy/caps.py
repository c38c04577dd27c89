"""How far the awake runs of a set may pass its bound while no controller is there to end them."""

from seedbed.deploy.plan import cap_of
from seedbed.deploy.set_releases import set_there
from seedbed.runtime.formats import money
from seedbed.runtime.text import counted


def told_of_caps(name: str, namespace: str, dollars: float) -> str:
    """Return that the awake runs of a set may pass its bound, each by the cap of its own meter.

    The caps are those of the runs' starts, which may be of an earlier, larger bound.

    Args:
        name: Name of the set.
        namespace: Its namespace.
        dollars: Its bound in US dollars; 0 is none.

    Returns:
        A sentence with both numbers; empty where they cannot pass it.

    Raises:
        SeedbedError: As `set_there`.
    """
    one = set_there(name, namespace)
    if not dollars or one is None or not one.awake:
        return ""
    caps = [cap_of(run.objects) for run in one.awake.values()]
    spent = sum(x.get("dollars") or 0.0 for run, x in one.runs.items() if run not in one.awake)
    if all(caps) and spent + sum(caps) <= dollars:
        return ""
    most = money(spent + sum(caps)) if all(caps) else "any sum"
    return (
        f"until a controller is there, {counted(len(caps), 'awake run')} of it may bring its bill "
        f"to {most} by the caps of their start, of {money(dollars)} that bound it now: `seedbed "
        f"stop {name} -n {namespace}` lets them save and end"
    )
