"""Whether this machine can have a testbed."""

import pytest

from lockstep.executor import testbed
from lockstep.scenarios import ScenarioError


def reason() -> str:
    try:
        testbed.require()
    except ScenarioError as error:
        return error.problem
    return ""


REASON = reason()
needs_testbed = pytest.mark.skipif(bool(REASON), reason=REASON)
