"""The learners' parameters as they were: the true distances."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from seedbed.runtime.exit_codes import ExitCode, SeedbedError

Array = NDArray[np.float64]
_CHUNK = 1 << 18  # parameters that are in memory as float64 at a time


def numbered(run_dir: Path, learners: int, kind: str) -> list[dict[int, Path]]:
    """Each learner's files KIND-N.npy by their number N."""
    pattern = re.compile(rf"{kind}-(\d+)\.npy")
    found: list[dict[int, Path]] = []
    for learner in range(learners):
        folder = run_dir / f"learner-{learner}" / "gossip"
        matches = (pattern.fullmatch(path.name) for path in folder.glob(f"{kind}-*.npy"))
        found.append({int(match[1]): folder / match[0] for match in matches if match})
    return found


def common(files: Sequence[dict[int, Path]]) -> list[int]:
    """The numbers of which every learner has a file, rising."""
    return sorted(set.intersection(*(set(of_learner) for of_learner in files)))


def read_flat(files: Sequence[Path]) -> list[NDArray[np.float32]]:
    """Vectors of one length d, float32 [d] each, mapped and not yet read.

    Raises:
        SeedbedError: RUN_DIRECTORY; a file is no such array, or their lengths differ.
    """
    vectors: list[NDArray[np.float32]] = []
    for file in files:
        try:
            vector = np.load(file, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise SeedbedError(
                ExitCode.RUN_DIRECTORY,
                f"{file} is no whole array ({error}): delete it, and report again without it",
            ) from error
        if vector.ndim != 1 or len(vector) != len(vectors[0] if vectors else vector):
            raise SeedbedError(
                ExitCode.RUN_DIRECTORY,
                f"{file} has the shape {vector.shape}, and {files[0]} has "
                f"{vectors[0].shape if vectors else '[d]'}: are the learners of one experiment?",
            )
        vectors.append(vector)
    return vectors


def gram(files: Sequence[Path]) -> Array:
    """[n, n] inner products of the learners' distances to their average: (X−X̄)(X−X̄)ᵀ."""
    vectors = read_flat(files)
    total = np.zeros((len(vectors), len(vectors)))
    for start in range(0, len(vectors[0]), _CHUNK):
        part = np.stack([vector[start : start + _CHUNK] for vector in vectors]).astype(np.float64)
        part -= part.mean(axis=0)
        total += part @ part.T
    return total


def frobenius(rows: Array, inner: Array) -> float:
    """‖Y − Ȳ‖_F of Y = rows · X, where `inner` is `gram` of X and each row sums to 1."""
    centred = rows - rows.mean(axis=0)
    return float(np.sqrt(max(0.0, np.einsum("ij,jk,ik->", centred, inner, centred))))


def spread(rows: Array, inner: Array) -> float:
    """max_ij ‖y_i − y_j‖_2 of Y = rows · X, where `inner` is `gram` of X."""
    apart = rows[:, None] - rows[None]
    squares = np.einsum("abj,jk,abk->ab", apart, inner, apart)
    return float(np.sqrt(max(0.0, squares.max())))
