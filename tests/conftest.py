"""Set-up that every test shares."""

import asyncio

import pytest


@pytest.fixture(scope="session", autouse=True)
def _idle_loop():
    """Pytest plugins ask for the current event loop outside of any test and would leave those they make unclosed."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield
    asyncio.set_event_loop(None)
    loop.close()
