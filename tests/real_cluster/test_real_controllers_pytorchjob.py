"""The scenarios of the embedded PyTorchJob controller, on the one that it imitates."""

from tests.local import test_controllers_pytorchjob
from tests.real_cluster.replay import scenarios_of

NOT_HERE: dict[str, str] = {}

globals().update(scenarios_of(test_controllers_pytorchjob, not_here=NOT_HERE))
