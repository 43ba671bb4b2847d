"""Episodes for the tests of agents."""

import numpy as np

from hitmac.agents import scripted_agent
from hitmac.envs.tasks import CoverageTask


def play(agent, scenario, steps, scenes=1, seed=0, **places):
    """Yield the task, the actions and the agent's state after every sub-step."""
    task = CoverageTask(scenario, scenes, seed, features=agent.features)
    task.reset(seed=seed, options=places)
    state, start = None, np.ones(scenes, bool)
    for _ in range(steps):
        actions, state = agent.predict(task.observe(), state, start)
        start = np.zeros(scenes, bool)
        task.step(actions)
        yield task, actions, state


def coverage(agent, scenario, steps, scenes, seed=9_200_000_000):
    """Mean coverage of an agent, or of a scripted agent by name."""
    agent = scripted_agent(agent, scenario) if isinstance(agent, str) else agent
    return np.mean([task.simulator.coverage.mean() for task, *_ in play(agent, scenario, steps, scenes, seed)])


def first_actions(agent, scenario, velocity=None, **places):
    """Actions of the agent in a scene of these places, at the first sub-step."""
    task = CoverageTask(scenario, 1, 0, features=agent.features)
    task.simulator.place(**places)
    if velocity is not None:
        task.simulator.state.velocity[:] = velocity
    return agent.predict(task.observe())[0][0].tolist()
