"""The scenarios of the node agent, below a real control plane."""

from tests.local import test_agent_pods
from tests.real_cluster.replay import scenarios_of

NOT_HERE: dict[str, str] = {}

globals().update(scenarios_of(test_agent_pods, not_here=NOT_HERE))
