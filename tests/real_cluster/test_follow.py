"""The scenarios of following, as the embedded platform passes them, on the real control plane.

The fixtures ``platform`` and ``client`` of this folder take the place of the embedded platform's.
"""

from tests.cluster import test_follow

NOT_HERE: dict[str, str] = {}
"""Scenarios that only the embedded platform can show, with the reason."""

globals().update({name: what for name, what in vars(test_follow).items() if name.startswith("test_") and name not in NOT_HERE})
