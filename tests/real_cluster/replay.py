"""Runs scenarios that were written for the embedded platform on the real control plane: one suite, two targets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import ModuleType


def scenarios_of(module: ModuleType, *, not_here: Mapping[str, str]) -> dict[str, Any]:
    """The tests of a module by name, to be bound in another one, whose fixtures they then use.

    ``not_here`` names those that can't pass on a real control plane, each with the reason; a name that is no test any more is
    an error, so that the list can only shrink by itself.
    """
    tests = {name: what for name, what in vars(module).items() if name.startswith("test_")}
    unknown = not_here.keys() - tests.keys()
    if unknown:
        raise LookupError(f"{module.__name__} has no {', '.join(sorted(unknown))}")
    return {name: what for name, what in tests.items() if name not in not_here}
