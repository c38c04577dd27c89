"""Run the controller of a set of runs on a cluster: the chart `seedbed-set` starts it."""

import argparse
import tempfile
import threading
from pathlib import Path

from seedbed.runtime.exit_codes import ConfigError
from seedbed.runtime.http import MetricsServer
from seedbed.runtime.metrics import StatsRegistry
from seedbed.runtime.signals import exit_on_sigterm, on_stop_signals
from seedbed.runtime.tokens import TOKEN_FILE_VARIABLE, Role, Tokens, token_file

# A round that takes so long is none.
_STALLED_S = 120.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command."""
    add = parser.add_argument
    add("--set", required=True, metavar="NAME", help="the Helm release of the set")
    add("--namespace", required=True, help="namespace of the set")
    text = "folder with sweep.yaml, experiment.yaml, limits.json and templates.json.gz, and with "
    text += "confirm.json where the set confirms"
    add("--spec", required=True, type=Path, metavar="DIR", help=text)
    add("--folder", required=True, type=Path, metavar="DIR", help="folder of the set")
    text = "let the runs go with the set's release"
    add("--owns-runs", action="store_true", help=text)
    text = f"tokens, one `ROLE SECRET` a line (default: {TOKEN_FILE_VARIABLE} of the environment, "
    text += "or a Secret that the controller makes)"
    add("--token-file", metavar="FILE", help=text)
    text = "delete the volumes of a finished or pruned run once its rows and its best checkpoint "
    text += "are in the folder"
    add("--free-volumes", action="store_true", help=text)
    add("--port", type=int, default=9093, help="port of HTTP (default %(default)s)")


def run(args: argparse.Namespace) -> None:
    """Run the controller until SIGTERM."""
    exit_on_sigterm()
    import time

    from seedbed.runtime.locks import Lock, LockHeld
    from seedbed.services.cost.token_secret import TokenSecret
    from seedbed.services.sets.api import SetApi
    from seedbed.services.sets.controller import SetController
    from seedbed.services.sets.metrics import SetMetrics
    from seedbed.services.sets.rows import RemoteLearner
    from seedbed.services.sets.spec import read_spec
    from seedbed.sets.folder import lock_file

    try:
        lock = Lock(lock_file(args.folder))
    except LockHeld as holder:
        raise ConfigError(f"{args.folder} is driven by {holder}") from None
    spec = read_spec(args.spec)
    api = SetApi(args.set, args.namespace)
    file, secret = token_file(args.token_file), None
    if file is None:
        file = str(Path(tempfile.mkdtemp(prefix="seedbed-")) / "tokens")
        name = f"{args.set}-set"
        # Where the runs outlive the release, so does what they mount.
        of = name if args.owns_runs else f"{name}-state"
        most = max(run.experiment.gossip.replicas for run in spec.wanted.joined(spec.fresh).runs)
        secret = TokenSecret(of, args.namespace, f"{name}-auth", most, (), Path(file))
        secret.wait()
    tokens = Tokens(file)
    tokens.secret(Role.OBSERVER)  # missing: it is said at the start
    controller = SetController(
        api,
        spec,
        args.folder,
        lambda url: RemoteLearner(url, tokens, keeps_best=args.free_volumes),
        api.owner() if args.owns_runs else None,
        secret.keep if secret else lambda: None,
        frees_volumes=args.free_volumes,
    )
    stopping = threading.Event()

    def stalled() -> str | None:
        since = time.time() - controller.reconciled_at
        return f"no round for {since:.0f} s" if since > _STALLED_S else None

    def unready() -> str | None:
        return None if controller.page.is_told else "no round yet"

    controller.reconciled_at = time.time()
    http = MetricsServer(
        args.port,
        StatsRegistry(SetMetrics(args.set, controller)),
        unhealthy=stalled,
        unready=unready,
        status=controller.page.status,
        tokens=tokens,
    )
    on_stop_signals(lambda _: stopping.set())
    controller.run(stopping)
    http.close()
    lock.release()
