"""Report a result to the platform: JSON in the container's termination message becomes the task's XCom."""

from __future__ import annotations

import json
import os
from pathlib import Path


def report(**values: object) -> None:
    """Write ``values`` to ``$MLXP_RESULT_PATH``; print them where no platform asks for them."""
    text = json.dumps(values)
    print(f"result: {text}", flush=True)
    path = os.environ.get("MLXP_RESULT_PATH")
    if path:
        Path(path).write_text(text, encoding="utf-8")
