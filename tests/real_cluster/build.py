"""Builds the control plane from its Go modules, once, into a cache folder; ``python -m tests.real_cluster.build``."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

MODULES = Path(__file__).parent / "modules"
KUBERNETES_VERSION = "v1.34.2"
PROGRESS_INTERVAL = 15.0
"""Seconds between two lines of progress."""


class BuildError(Exception):
    """A program can't be built; the text holds the end of the compiler's output."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Module:
    """One folder of ``modules/``: a go.mod that pins the programs, in a module of its own since their dependencies differ."""

    name: str
    programs: Mapping[str, str]
    """Package by program name."""
    link_flags: str = ""
    manifests_of: str = ""
    """Path of the Go module whose ``manifests`` folder (CRDs, roles, webhooks) is kept beside the programs."""
    sums: tuple[str, ...] = field(default=("go.mod", "go.sum"))

    @property
    def folder(self) -> Path:
        """Where the programs lie once they are built: another folder whenever a pinned version changes."""
        digest = hashlib.sha256(self.link_flags.encode())
        for name in self.sums:
            digest.update((MODULES / self.name / name).read_bytes())
        return cache_folder() / f"{self.name}-{digest.hexdigest()[:16]}"

    @property
    def is_built(self) -> bool:
        """Whether nothing is left to do."""
        return self.folder.is_dir()


ETCD = Module(name="etcd", programs={"etcd": "go.etcd.io/etcd/server/v3"})
KUBERNETES = Module(
    name="kubernetes",
    programs={name: f"k8s.io/kubernetes/cmd/{name}" for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler")},
    # Without it the server tells a version that clients can't parse.
    link_flags=f"-X k8s.io/component-base/version.gitVersion={KUBERNETES_VERSION}",
)
TRAINING_OPERATORS = {
    version: Module(
        name=f"training-operator-{version}",
        programs={"training-operator": "github.com/kubeflow/training-operator/cmd/training-operator.v1"},
        manifests_of="github.com/kubeflow/training-operator",
    )
    for version in ("1.9.4", "1.9.3")
}
"""Two versions, for they treat pods differently when a limit is reached (``ControllerSettings.training_operator``)."""
ALL = (ETCD, KUBERNETES, *TRAINING_OPERATORS.values())


def cache_folder() -> Path:
    """Folder of all builds: ``$XDG_CACHE_HOME/airflow-mlxp/real-cluster``, by default under ``~/.cache``."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "airflow-mlxp" / "real-cluster"


def missing() -> str:
    """Why the control plane can't be started; empty when all is there."""
    absent = [module.name for module in ALL if not module.is_built]
    return f"not built: {', '.join(absent)} (`make test-real` builds them, which needs Go and takes minutes)" if absent else ""


def build_all() -> None:
    """Build what is missing."""
    for module in ALL:
        if not module.is_built:
            build(module)


def build(module: Module) -> None:
    """Build one module; a build that is interrupted leaves nothing in its place."""
    if shutil.which("go") is None:
        raise BuildError("the real control plane is built from source: install Go (see the go line of the go.mod files)")
    cache_folder().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache_folder(), prefix=".building-") as name:
        folder = Path(name, "done")
        folder.mkdir()
        for target, package in module.programs.items():
            _compile(module, package, folder / target)
        if module.manifests_of:
            _copy_manifests(module, folder)
        folder.rename(module.folder)


def _compile(module: Module, package: str, target: Path) -> None:
    started = time.monotonic()
    packages = len(_go(module, "list", "-deps", package).split())
    flags = ("-v", "-p", "2", "-mod=readonly", "-trimpath", "-ldflags", f"-s -w {module.link_flags}".strip())
    command = (*_NICE, "go", "build", *flags, "-o", str(target), package)
    with subprocess.Popen(
        command, cwd=MODULES / module.name, env=_environment(), stderr=subprocess.PIPE, text=True
    ) as process:  # fmt: skip
        tail = _show_progress(target.name, process.stderr or (), packages, started)
        code = process.wait()
    if code:
        raise BuildError(f"go build of {target.name} ended with exit code {code}:\n{''.join(tail)}")
    _say(f"{target.name}: built in {time.monotonic() - started:.0f} s")


def _show_progress(name: str, lines: Iterable[str], packages: int, started: float) -> list[str]:
    """Count the packages that the compiler names; the last lines, for an error."""
    tail: list[str] = []
    told = started
    for count, line in enumerate(lines, start=1):
        tail = [*tail[-19:], line]
        if time.monotonic() - told >= PROGRESS_INTERVAL:
            told = time.monotonic()
            _say(f"{name}: {count} of at most {packages} packages, {told - started:.0f} s")
    return tail


def _copy_manifests(module: Module, folder: Path) -> None:
    source = Path(_go(module, "list", "-m", "-f", "{{.Dir}}", module.manifests_of).strip())
    shutil.copytree(source / "manifests", folder / "manifests", copy_function=shutil.copyfile)
    for path in (folder / "manifests").rglob("*"):  # the module cache is read-only, and so would be the copied folders
        path.chmod(0o755 if path.is_dir() else 0o644)


def _go(module: Module, *arguments: str) -> str:
    done = subprocess.run(
        ("go", *arguments), cwd=MODULES / module.name, env=_environment(), capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise BuildError(f"go {' '.join(arguments)} failed:\n{done.stderr[-2000:]}")
    return done.stdout


def _environment() -> dict[str, str]:
    return {**os.environ, "CGO_ENABLED": "0", "GOWORK": "off"}


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201 - a program's progress


_NICE = ("nice", "-n", "10") if shutil.which("nice") else ()

if __name__ == "__main__":
    try:
        build_all()
    except BuildError as failure:
        sys.exit(str(failure))
