"""The difference between an argument that was not given and one that is None."""

from __future__ import annotations

from enum import Enum
from typing import Final


class Unset(Enum):
    """Type of ``UNSET``."""

    UNSET = "UNSET"

    def __str__(self) -> str:
        """As Airflow shows it among the rendered arguments."""
        return "not given"


UNSET: Final = Unset.UNSET
"""Not given: the manifest's value or the profile's default stays. None removes both."""
