"""Write the reference pages that are made from the code: the platform's defaults and the fields of the connection.

`--check` only compares, and ends with exit code 1 when a page is stale.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from airflow_mlxp import connection, profile, provider_info

REFERENCE = Path(__file__).resolve().parent.parent / "docs" / "reference"
NOTE = "This page is made from the code by `make docs`.\n"


def main() -> None:
    """Write or compare each page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    stale = [path for path, text in pages().items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    if args.check:
        sys.exit(f"stale, run `make docs`: {', '.join(path.name for path in stale)}" if stale else 0)
    for path in stale:
        path.write_text(pages()[path], encoding="utf-8")
        print(f"wrote {path.name}")


def pages() -> dict[Path, str]:
    """Text of each page."""
    return {REFERENCE / "defaults.md": defaults(), REFERENCE / "connection.md": connections()}


def defaults() -> str:
    """The profile as a table."""
    intro = (
        "Every value that a task does not name itself. Arguments of the operator win over the manifest, and both over these.\n"
        "For most arguments None removes a default. The section is that of the platform's guide *Train a model with kubectl*,\n"
        "or the source.\n"
    )
    rows = [(name, shown(d.value), d.path, d.section, d.reason) for name, d in profile.MLXP.defaults()]
    return page("Defaults of the platform", intro, ("default", "value", "where", "section", "why"), rows)


def connections() -> str:
    """The connection's fields and the configuration options as tables."""
    intro = (
        "Connection type `mlxp`, by default `mlxp_default`. One field names the API server: `host` (its URL; the password is\n"
        "the bearer token), `kube_config_path`, `kube_config` or `in_cluster`. Without any of them it is found as kubectl finds\n"
        "it: `KUBECONFIG`, `~/.kube/config`, or the pod that Airflow runs in. A `kubernetes` connection of the provider\n"
        "cncf.kubernetes works as well.\n"
    )
    fields = [(f"`{field.name}`", field.help + (" Kept secret." if field.secret else "")) for field in connection.FIELDS]
    config = provider_info.get_provider_info()["config"]["mlxp"]["options"]
    options = [(f"`{name}`", f"`{given['default']}`", given["description"]) for name, given in config.items()]
    first = page("The connection", intro, ("extra field", "meaning"), fields)
    return f"{first}\n## Airflow configuration, section `[mlxp]`\n\n{table(('option', 'default', 'meaning'), options)}"


def shown(value: Any) -> str:
    """A value as it is written in a manifest."""
    return f"`{value if isinstance(value, str) else json.dumps(value)}`"


def page(title: str, intro: str, head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """A page with one table."""
    return f"# {title}\n\n{NOTE}\n{intro}\n{table(head, rows)}"


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """A Markdown table."""
    lines = [head, tuple("---" for _ in head), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


if __name__ == "__main__":
    main()
