"""Make or refresh a virtual environment that holds this project, at the versions and hashes of constraints.txt.

Needs only Python 3.11 or newer. Uses the uv on PATH, or installs the uv that constraints.txt names into the environment.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CONSTRAINTS = ROOT / "constraints.txt"


def main() -> None:
    """Parse arguments, and install unless the environment is up to date already."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--venv", type=Path, required=True, help="folder of the environment")
    parser.add_argument("--extras", default="", help="comma-separated extras of pyproject.toml")
    args = parser.parse_args()
    if sys.version_info < (3, 11):  # noqa: UP036 - this very script is what tells so
        have = f"{sys.version.split()[0]} at {sys.executable}"
        sys.exit(f"Python 3.11 or newer is needed, this is {have}: name another one, as in `make demo PYTHON=python3.12`")

    folder: Path = args.venv.resolve()
    stamp = folder / "airflow-mlxp.stamp"
    wanted = fingerprint(args.extras)
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == wanted:
        return
    print(f"Preparing {os.path.relpath(folder)} (downloads about 200 MB the first time) …", flush=True)
    stamp.unlink(missing_ok=True)
    uv = shutil.which("uv") or uv_inside(folder)
    if not (folder / "bin" / "python").exists():
        subprocess.run([uv, "venv", "--quiet", "--allow-existing", "--python", sys.executable, str(folder)], check=True)
    target = f"{ROOT}[{args.extras}]" if args.extras else str(ROOT)
    install = [uv, "pip", "install", "--python", str(folder / "bin" / "python"), "--constraints", str(CONSTRAINTS)]
    quiet = [] if sys.stderr.isatty() else ["--quiet"]  # a terminal shows uv's progress
    subprocess.run([*install, "--build-constraints", str(CONSTRAINTS), *quiet, "--editable", target], check=True)
    # As an installer does for a wheel: DAG files are parsed often, also where Python may write no bytecode.
    subprocess.run([str(folder / "bin" / "python"), "-m", "compileall", "-q", str(ROOT / "airflow_mlxp")], check=True)
    stamp.write_text(wanted, encoding="utf-8")


def fingerprint(extras: str) -> str:
    """What the environment is made from; a change of it makes the environment stale."""
    digest = hashlib.sha256(f"{sys.version}\n{ROOT}\n{extras}\n".encode())
    for path in (ROOT / "pyproject.toml", CONSTRAINTS):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def uv_inside(folder: Path) -> str:
    """Make the environment with the standard library and install the pinned uv into it."""
    pinned = re.search(r"^uv==[^\n]+(?:\n    --hash=[^\n]+)*", CONSTRAINTS.read_text(encoding="utf-8"), re.MULTILINE)
    if pinned is None:
        sys.exit("constraints.txt has no entry for uv: run `make constraints`")
    try:
        venv.create(folder, with_pip=True, symlinks=True)
    except subprocess.CalledProcessError:
        sys.exit("This Python can't make virtual environments with pip: install python3-venv, or uv, and try again.")
    with tempfile.TemporaryDirectory() as temporary:
        requirement = Path(temporary) / "uv.txt"
        requirement.write_text(pinned.group(0) + "\n", encoding="utf-8")
        pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--require-hashes", "--requirement"]
        subprocess.run([*pip, str(requirement)], check=True)
    return str(folder / "bin" / "uv")


if __name__ == "__main__":
    try:
        main()
    except subprocess.CalledProcessError as error:
        sys.exit(f"Setting up the environment failed: {' '.join(map(str, error.cmd))} ended with exit code {error.returncode}")
    except KeyboardInterrupt:
        sys.exit(130)
