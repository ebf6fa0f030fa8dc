"""What a user chooses when the platform is started, in a form that can be handed to another process."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

from airflow_mlxp.errors import InvalidArgument
from airflow_mlxp.local import images
from airflow_mlxp.local.platform import PlatformSettings
from airflow_mlxp.local.settings import AgentSettings


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """The options of ``airflow-mlxp local up``."""

    projects: tuple[str, ...] = ("demo",)
    volumes: tuple[str, ...] = ()
    """NAME or NAME=FOLDER each."""

    images: tuple[str, ...] = ()
    """NAME=FOLDER each, before the rows of the table."""

    image_table: str = ""
    """Path of a YAML or JSON file."""

    gpus: int = 0
    zones: tuple[str, ...] = ()

    def settings(self, folder: Path) -> PlatformSettings:
        """The platform's settings; InvalidArgument names the option that is wrong."""
        table = images.ImageTable()
        if self.image_table:
            table = images.ImageTable.from_file(Path(self.image_table))
        return PlatformSettings(
            folder=folder,
            projects=self.projects,
            volumes=dict(map(_volume, self.volumes)),
            images=table.extended(map(images.parse_option, self.images)),
            agent=AgentSettings(gpus=self.gpus, zones=self.zones),
        )

    def to_json(self) -> str:
        """The options as JSON."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def from_json(cls, text: str) -> Options:
        """The options that ``to_json`` wrote."""
        return msgspec.json.decode(text, type=cls)


def _volume(text: str) -> tuple[str, Path | None]:
    name, separator, folder = text.partition("=")
    if not name or (separator and not folder):
        raise InvalidArgument("--volume", text, expected="NAME or NAME=FOLDER, for example mnist-data=./data")
    return name, Path(folder).expanduser().absolute() if separator else None
