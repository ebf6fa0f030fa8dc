"""The scenarios of the embedded Job controller, on the one that it imitates."""

from tests.local import test_controllers_job
from tests.real_cluster.replay import scenarios_of

NOT_HERE: dict[str, str] = {}

globals().update(scenarios_of(test_controllers_job, not_here=NOT_HERE))
