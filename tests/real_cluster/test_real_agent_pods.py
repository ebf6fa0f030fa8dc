"""The scenarios of the node agent, below a real control plane."""

from tests.local import test_agent_pods
from tests.real_cluster.replay import scenarios_of

NOT_HERE = {
    "test_claim_of_a_user_is_bound": "binding a claim without a volume takes a provisioner, which a bare control plane lacks",
}

globals().update(scenarios_of(test_agent_pods, not_here=NOT_HERE))
