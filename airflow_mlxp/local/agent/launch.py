"""From a container's spec to a command of this machine: environment, translated paths and names, the program on PATH."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_mlxp.local.agent import environment, volumes
from airflow_mlxp.local.agent.names import NameMap
from airflow_mlxp.local.agent.paths import PathMap
from airflow_mlxp.local.agent.process import Command

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_mlxp.local.agent.context import PodContext
    from airflow_mlxp.local.client import Object


class StartError(Exception):
    """The program can't be started; the text is the container runtime's."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Launch:
    """A container ready to start."""

    argv: Sequence[str]
    env: dict[str, str]
    folder: Path
    message_file: Path

    def command(self) -> Command:
        """The command with its program looked up on the container's PATH; StartError when there is none."""
        self.message_file.parent.mkdir(parents=True, exist_ok=True)
        self.message_file.write_bytes(b"")
        self.folder.mkdir(parents=True, exist_ok=True)
        if not self.argv:
            raise StartError("no command: the entrypoint of an image isn't known on this node; set the container's command")
        program = shutil.which(self.argv[0], path=self.env.get("PATH"))
        if program is None:
            why = "no such file or directory" if "/" in self.argv[0] else "executable file not found in $PATH"
            raise StartError(
                "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed: "
                f'unable to start container process: error during container init: exec: "{self.argv[0]}": {why}: unknown'
            )
        return Command(argv=(program, *self.argv[1:]), env=self.env, folder=self.folder)

    def termination_message(self, limit: int) -> str:
        """What the program left in its termination message file, at most ``limit`` bytes."""
        try:
            with self.message_file.open("rb") as file:
                return file.read(limit).decode("utf-8", "replace")
        except OSError:
            return ""


async def prepare(context: PodContext, spec: Object) -> Launch:
    """Resolve and translate; ConfigError when a Secret or ConfigMap is missing."""
    node, pod = context.node, context.pod
    image = node.images.find(spec.get("image", ""))
    message_file = context.scratch / f"{spec['name']}.termination"
    paths = PathMap(
        {
            path: str(node.aliases.plain(place))
            for path, place in {
                spec.get("terminationMessagePath") or "/dev/termination-log": message_file,
                **volumes.mount_paths(spec, context.folders),
            }.items()
        }
    )
    names = await NameMap.of(node.client, pod, node.ports)
    own = await environment.resolve(node.client, pod, spec)
    own = {key: paths.translate(value) for key, value in names.translate_environment(own).items()}
    words = [*(spec.get("command") or image.command), *(spec.get("args") or ())]
    argv = [paths.translate(names.translate_ports(environment.expand(names.translate(word), own))) for word in words]
    hostname = pod["spec"].get("hostname") or pod["metadata"]["name"]
    folder = node.aliases.plain(_working_folder(context, spec, paths))
    env = {**image.environment(), "HOSTNAME": hostname, "PWD": str(folder), **own}
    return Launch(argv=argv, env=env, folder=folder, message_file=message_file)


def _working_folder(context: PodContext, spec: Object, paths: PathMap) -> Path:
    """The working directory: in a volume, or one of this machine. One that exists only in the image is the pod's own folder."""
    wanted = spec.get("workingDir") or ""
    translated = paths.translate(wanted)
    if translated != wanted or (wanted and Path(wanted).is_dir()):
        return Path(translated)
    return context.scratch / "root"
