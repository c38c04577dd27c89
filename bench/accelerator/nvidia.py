"""NVIDIA GPUs of this machine, as the driver names them."""

import shutil
import subprocess

_QUERY = "name,memory.total,driver_version,pcie.link.gen.current,pcie.link.width.current"


def nvidia() -> list[str]:
    """Return a line for each NVIDIA GPU: name, memory, driver, bus; empty without any."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    arguments = [program, f"--query-gpu={_QUERY}", "--format=csv,noheader"]
    try:
        done = subprocess.run(arguments, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return done.stdout.splitlines() if done.returncode == 0 else []
