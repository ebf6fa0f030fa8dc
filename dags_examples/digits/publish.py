"""Put a model that passed the gate into the model folder of the volume, and point ``latest`` at it."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
from pathlib import Path

from results import report


def replace(path: Path, text: str) -> None:
    """Write a file so that readers see the old or the new one, never half of it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--registry", type=Path, required=True)
    parser.add_argument("--version", required=True)
    args = parser.parse_args()

    version = re.sub(r"[^A-Za-z0-9.+-]+", "_", args.version).strip("._") or "unnamed"
    target = args.registry / version
    target.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(args.model, target / "weights.npz")
    digest = hashlib.sha256((target / "weights.npz").read_bytes()).hexdigest()
    replace(target / "model.json", json.dumps({"version": version, "sha256": digest}))
    replace(args.registry / "latest", version)
    print(f"published {version}, sha256 {digest[:12]}", flush=True)
    report(version=version, sha256=digest, path=f"models/{version}/weights.npz")


if __name__ == "__main__":
    main()
