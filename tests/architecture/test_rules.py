"""Rules that no linter knows: where kinds may be named, how long a module is, what a test may not do."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "airflow_mlxp"
KIND_BLIND = [*(PACKAGE / "cluster").rglob("*.py"), *(PACKAGE / "triggers").rglob("*.py"), PACKAGE / "cli" / "follow.py"]
KIND_BLIND += [
    path for path in (PACKAGE / "diagnosis").rglob("*.py") if path.name != "advice.py"
]  # it names sections of the guide
KIND = re.compile(r"""["']?\b(PyTorchJob|pytorchjobs?)\b["']?|["']Job["']|["']jobs["']""")


def matches(pattern: str, path: Path) -> list[str]:
    lines = path.read_text(encoding="utf-8").splitlines()
    return [f"{path.relative_to(ROOT)}:{number}" for number, line in enumerate(lines, 1) if re.search(pattern, line)]


def test_kinds_are_named_only_where_they_are_described():
    text = {path: re.sub(r'help="[^"]*"|"""(?s:.*?)"""', "", path.read_text(encoding="utf-8")) for path in KIND_BLIND}
    named = {str(path.relative_to(ROOT)): KIND.findall(code) for path, code in text.items() if KIND.search(code)}
    assert named == {}


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_module_has_one_responsibility(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 400


def test_no_test_sleeps_instead_of_waiting_for_a_condition():
    # A poll of a condition pauses for less than a second; virtual time costs none.
    assert [m for path in (ROOT / "tests").rglob("*.py") for m in matches(r"asyncio\.sleep\([1-9](?!.*virtual time)", path)] == []


def test_nothing_is_left_for_later():
    assert [m for path in PACKAGE.rglob("*.py") for m in matches(r"\b(TODO|FIXME|XXX)\b", path)] == []


def test_the_repository_names_no_folder_of_one_machine():
    home = re.escape(str(Path.home())) if str(Path.home()) != "/" else "/home/nobody"
    pattern = f"{home}/|{re.escape(str(ROOT))}/"
    files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False).stdout.split("\0")
    texts = [ROOT / name for name in files if name.endswith((".py", ".md", ".toml", ".yaml", ".json", "Makefile", "run"))]
    assert [m for path in texts if path.is_file() for m in matches(pattern, path)] == []
