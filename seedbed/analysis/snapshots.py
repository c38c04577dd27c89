"""Snapshots and gradients of the learners: true distances and cosine similarities."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from seedbed.runtime.exit_codes import RunDirectoryError

Array = NDArray[np.float64]
Norm = Literal["frobenius", "spread"]
NORMS: tuple[Norm, ...] = ("frobenius", "spread")
# Parameters in memory as float64 at a time.
_CHUNK = 1 << 18


def numbered(run_dir: Path, learners: int, kind: str) -> list[dict[int, Path]]:
    """Return each learner's files KIND-N.npy by their number N.

    Args:
        run_dir: Folder of learner-0, learner-1 ...
        learners: Number of learners.
        kind: "snapshot" or "gradient".
    """
    pattern = re.compile(rf"{kind}-(\d+)\.npy")
    found: list[dict[int, Path]] = []
    for learner in range(learners):
        folder = run_dir / f"learner-{learner}" / "gossip"
        matches = (pattern.fullmatch(path.name) for path in folder.glob(f"{kind}-*.npy"))
        found.append({int(match[1]): folder / match[0] for match in matches if match})
    return found


def common(files: Sequence[dict[int, Path]]) -> list[int]:
    """Return the numbers of which every learner has a file, rising."""
    return sorted(set.intersection(*(set(of_learner) for of_learner in files)))


def read_flat(files: Sequence[Path]) -> list[NDArray[np.float32]]:
    """Map vectors of one length d, float32 [d] each, into memory.

    Raises:
        SeedbedError: RUN_DIRECTORY; a file is no such array, or the lengths differ.
    """
    vectors: list[NDArray[np.float32]] = []
    for file in files:
        try:
            vector = np.load(file, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise RunDirectoryError(
                f"{file} is no whole array ({error}): delete it, and analyze again without it"
            ) from error
        if vector.ndim != 1 or len(vector) != len(vectors[0] if vectors else vector):
            raise RunDirectoryError(
                f"{file} has the shape {vector.shape}, and {files[0]} has "
                f"{vectors[0].shape if vectors else '[d]'}: are the learners of one experiment?"
            )
        vectors.append(vector)
    return vectors


def gram(files: Sequence[Path]) -> Array:
    """Return (X − X̄)(X − X̄)ᵀ [n, n] of the parameters X [n, d] in n files."""
    vectors = read_flat(files)
    total = np.zeros((len(vectors), len(vectors)))
    for start in range(0, len(vectors[0]), _CHUNK):
        part = np.stack([vector[start : start + _CHUNK] for vector in vectors]).astype(np.float64)
        part -= part.mean(axis=0)
        total += part @ part.T
    return total


def frobenius(rows: Array, inner: Array) -> float:
    """Return ‖Y − Ȳ‖_F of Y = rows · X.

    Args:
        rows: Weights [m, n], each row of which sums to 1.
        inner: `gram` of X [n, n].
    """
    centred = rows - rows.mean(axis=0)
    return float(np.sqrt(max(0.0, np.einsum("ij,jk,ik->", centred, inner, centred))))


def spread(rows: Array, inner: Array) -> float:
    """Return max_ij ‖y_i − y_j‖_2 of Y = rows · X.

    Args:
        rows: Weights [m, n].
        inner: `gram` of X [n, n].
    """
    apart = rows[:, None] - rows[None]
    squares = np.einsum("abj,jk,abk->ab", apart, inner, apart)
    return float(np.sqrt(max(0.0, squares.max())))


# Distance of the learners in each norm, from the weights of the rows and the Gram matrix.
DISTANCES: dict[Norm, Callable[[Array, Array], float]] = {"frobenius": frobenius, "spread": spread}


def cosine_similarity(files: Sequence[dict[int, Path]]) -> tuple[Array, list[int]]:
    """Compare the learners' gradients (Assran et al. 2019, Figure 2b).

    A gradient that is all zero has no direction, so it is left out of the average.

    Args:
        files: Each learner's gradients by their local iteration.

    Returns:
        The cosine similarity [n, n] of two learners' gradients of the same local iteration,
        averaged over the iterations of which all learners have one, NaN for a pair without any;
        and these iterations.
    """
    iterations = common(files)
    total, count = np.zeros((2, len(files), len(files)))
    for iteration in iterations:
        vectors = read_flat([of_learner[iteration] for of_learner in files])
        gradients = np.stack(vectors).astype(np.float64)
        sizes = np.linalg.norm(gradients, axis=1)
        has = np.outer(sizes > 0, sizes > 0)
        gradients /= np.where(sizes > 0, sizes, 1.0)[:, None]
        total += np.where(has, gradients @ gradients.T, 0.0)
        count += has
    with np.errstate(invalid="ignore"):
        return total / count, iterations
