"""The scenarios of following: what a user sees of a workload, from its first pod to its outcome."""

from tests.cluster import test_follow
from tests.real_cluster.replay import scenarios_of

NOT_HERE: dict[str, str] = {}

globals().update(scenarios_of(test_follow, not_here=NOT_HERE))
