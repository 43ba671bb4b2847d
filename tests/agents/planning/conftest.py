"""Planners on one thread: kernels for several threads are compiled separately, which takes ten seconds each."""

import pytest


@pytest.fixture
def use_threads(monkeypatch):
    """Return a function that sets the number of threads of planners and beliefs."""

    def use(number):
        for module in ("planning.planner", "tracking.beliefs"):
            monkeypatch.setattr(f"hitmac.agents.{module}.cores", lambda: number)

    return use


@pytest.fixture(autouse=True)
def _one_thread(use_threads):
    use_threads(1)
