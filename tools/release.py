"""Make a release: `python -m tools.release --out DIR --source URL --registry R` writes all of it.

charts/NAME-VERSION.tgz    packages with Artifact Hub's annotations; `.prov` with --key
wheel/                     the wheel, which has charts, too; both take their images from R
oci/NAME/                  an OCI layout of each chart, and of each image where buildah is
sbom/LOCK.cdx.json         CycloneDX, from the lock files that the images are made of
changelog.md               what CHANGELOG.md says of this version
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
CHARTS = ("seedbed", "seedbed-set", "seedbed-platform")
# Image, Dockerfile, arguments of the build.
IMAGES: tuple[tuple[str, str, list[str]], ...] = (
    ("seedbed-actor", "Dockerfile.actor", []),
    ("seedbed-cost", "Dockerfile.actor", ["--target=cost"]),
    ("seedbed-learner", "Dockerfile.learner", []),
    ("seedbed-learner-jax", "Dockerfile.learner", ["--build-arg=BACKEND=jax"]),
    ("seedbed-learner-gpu", "Dockerfile.learner", ["--build-arg=ACCELERATOR=gpu"]),
    (
        "seedbed-learner-jax-gpu",
        "Dockerfile.learner",
        ["--build-arg=BACKEND=jax", "--build-arg=ACCELERATOR=gpu"],
    ),
    (
        "seedbed-learner-jax-tpu",
        "Dockerfile.learner",
        ["--build-arg=BACKEND=jax", "--build-arg=ACCELERATOR=tpu"],
    ),
)
BASE = "docker.io/library/python"
BASE_TAG = "3.11-slim"
HELM = "application/vnd.cncf.helm."


def changes() -> list[str]:
    """Return the entries of the newest section of CHANGELOG.md, each as one line."""
    section = re.split(r"^## ", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)[1]
    entries = re.findall(r"^- (.+(?:\n  .+)*)", section, re.MULTILINE)
    return [" ".join(entry.split()) for entry in entries]


def name_registry(chart: Path, registry: str) -> None:
    """Make a registry the default of the chart's images; their tag is its appVersion."""
    values = chart / "values.yaml"
    text, found = re.subn(
        r"^(image:\n  registry: )localhost$", rf"\g<1>{registry}", values.read_text(), flags=re.M
    )
    assert found == 1, f"{values} has no image.registry: localhost"
    values.write_text(text)


def build_wheel(out: Path, registry: str) -> None:
    """Build the wheel of what git tracks, whose charts take their images from the registry."""
    with tempfile.TemporaryDirectory() as folder:
        _run("git", "-c", "safe.directory=*", "checkout-index", "--all", f"--prefix={folder}/")
        for chart in ("seedbed", "seedbed-set"):
            name_registry(Path(folder) / "helm" / chart, registry)
        build = ("-m", "build", "--no-isolation", "--wheel", f"--outdir={out}", folder)
        _run(sys.executable, *build, capture_output=True)


def package(chart: str, out: Path, source: str, registry: str, key: list[str]) -> Path:
    """Package a chart, with annotations, and sign it where a key is named.

    Args:
        chart: Folder under `helm/`.
        out: Folder of the package.
        source: Address of the repository.
        registry: Where its images are.
        key: Options of `helm package` that sign; [] does not.
    """
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(shutil.copytree(ROOT / "helm" / chart, Path(folder) / chart))
        meta: dict[str, Any] = yaml.safe_load((copy / "Chart.yaml").read_text())
        meta |= {"home": source, "sources": [source]}
        meta["annotations"] = {
            "artifacthub.io/license": "Apache-2.0",
            "artifacthub.io/changes": yaml.safe_dump(changes(), width=1000),
            "artifacthub.io/prerelease": str("-" in meta["version"]).lower(),
        }
        if chart == "seedbed-platform":
            values = copy / "values.yaml"
            url = f"{source}/blob/v{meta['version']}/docs/runbooks"
            values.write_text(values.read_text().replace("url: docs/runbooks", f"url: {url}"))
        else:
            name_registry(copy, registry)
        (copy / "Chart.yaml").write_text(yaml.safe_dump(meta, sort_keys=False))
        helm = shutil.which("helm") or str(ROOT / ".venv" / "kube" / "helm")
        subprocess.run([helm, "package", str(copy), "-d", str(out), *key], check=True)
    return out / f"{chart}-{meta['version']}.tgz"


def write_layout(packed: Path, chart: str, folder: Path) -> None:
    """Write a chart as an OCI image layout, as `helm push` would store it.

    Args:
        packed: The package, with its provenance beside it where there is one.
        chart: Name of the chart.
        folder: Folder of the layout.
    """
    blobs = folder / "blobs" / "sha256"
    blobs.mkdir(parents=True, exist_ok=True)

    def blob(media_type: str, content: bytes) -> dict[str, Any]:
        digest = hashlib.sha256(content).hexdigest()
        (blobs / digest).write_bytes(content)
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(content)}

    meta = yaml.safe_load((ROOT / "helm" / chart / "Chart.yaml").read_text())
    layers = [blob(f"{HELM}chart.content.v1.tar+gzip", packed.read_bytes())]
    provenance = packed.with_name(packed.name + ".prov")
    if provenance.exists():
        layers.append(blob(f"{HELM}chart.provenance.v1.prov", provenance.read_bytes()))
    manifest: dict[str, Any] = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": blob(f"{HELM}config.v1+json", json.dumps(meta).encode()),
        "layers": layers,
    }
    entry = blob(manifest["mediaType"], json.dumps(manifest).encode())
    entry["annotations"] = {"org.opencontainers.image.ref.name": meta["version"]}
    index = {"schemaVersion": 2, "manifests": [entry]}
    (folder / "index.json").write_text(json.dumps(index))
    (folder / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')


def bill_of_materials(lock: Path) -> dict[str, Any]:
    """Return the CycloneDX document of a lock file: names, versions and hashes."""
    found = re.findall(r"^([\w.-]+)==([^\s;\\]+)(.*(?:\n +--hash=.+)*)", lock.read_text(), re.M)
    components = [
        {
            "type": "library", "name": name, "version": version,
            "purl": f"pkg:pypi/{name.lower()}@{version}",
            "hashes": [{"alg": "SHA-256", "content": digest}
                       for digest in re.findall(r"sha256:(\w+)", rest)],
        }
        for name, version, rest in found
    ]  # fmt: skip
    return {"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1, "components": components}


def build_images(out: Path, version: str, source: str) -> None:
    """Build every image into an OCI layout, on a base named by its digest."""
    base = f"{BASE}:{BASE_TAG}"
    _run("buildah", "pull", "--policy=ifnewer", base)
    inspect = ("buildah", "inspect", "--type=image", "--format={{.FromImageDigest}}", base)
    labels = {
        "BASE": f"{BASE}@{_run(*inspect, capture_output=True)}",
        "SOURCE": source,
        "VERSION": version,
        "REVISION": _run("git", "rev-parse", "HEAD", capture_output=True),
    }
    given = [f"--build-arg={name}={value}" for name, value in labels.items()]
    for image, file, more in IMAGES:
        tag = f"localhost/{image}:{version}"
        _run("buildah", "bud", "-t", tag, "-f", file, *more, *given, ".")
        _run("buildah", "push", tag, f"oci:{out / image}:{version}")
        _run("buildah", "rmi", tag)  # one with CUDA takes 7 GB of disk


def _run(*command: str, **options: Any) -> str:
    done = subprocess.run(command, check=True, cwd=ROOT, text=True, **options)
    return (done.stdout or "").strip()


def main() -> int:
    """Make the release."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--source", required=True, help="address of the repository")
    text = "where images and charts go, such as ghcr.io/OWNER: the default of the chart's images"
    parser.add_argument("--registry", required=True, help=text)
    parser.add_argument("--tag", help="git's, which must be v and the chart's version")
    parser.add_argument("--key", help="name of the GnuPG key that signs the charts")
    parser.add_argument("--keyring", help="file of the secret key, as gpg --export-secret-keys")
    parser.add_argument("--no-images", action="store_true", help="charts and documents only")
    args = parser.parse_args()
    if not args.registry:
        parser.error(
            "--registry (make release REGISTRY=R) is empty: the chart's images come from it"
        )
    meta = yaml.safe_load((ROOT / "helm" / "seedbed" / "Chart.yaml").read_text())
    version, images = meta["version"], meta["appVersion"]
    if version != images or args.tag not in (None, f"v{version}"):
        parser.error(
            f"the chart is of version {version}, its images of {images}, the tag is {args.tag}: "
            "make them one in helm/seedbed/Chart.yaml"
        )
    for name in ("charts", "oci", "sbom"):
        (args.out / name).mkdir(parents=True, exist_ok=True)
    key = ["--sign", "--key", args.key, "--keyring", args.keyring] if args.key else []
    for chart in CHARTS:
        packed = package(chart, args.out / "charts", args.source.rstrip("/"), args.registry, key)
        write_layout(packed, chart, args.out / "oci" / f"chart-{chart}")
    for lock in sorted((ROOT / "requirements").glob("*.lock")):
        if lock.name.startswith(("learner-", "actor", "cost")):
            bill = json.dumps(bill_of_materials(lock), indent=1)
            (args.out / "sbom" / f"{lock.stem}.cdx.json").write_text(bill)
    (args.out / "changelog.md").write_text("".join(f"- {entry}\n" for entry in changes()))
    build_wheel(args.out / "wheel", args.registry)
    if args.no_images:
        return 0
    if shutil.which("buildah") is None:
        print("no images: buildah is not installed", file=sys.stderr)
        return 0
    build_images(args.out / "oci", version, args.source)
    return 0


if __name__ == "__main__":
    sys.exit(main())
