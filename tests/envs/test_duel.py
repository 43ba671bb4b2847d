"""Games of two teams: equal to single scenes, continued from states."""

import pickle

import numpy as np

from hitmac.envs import Duel


def test_a_batch_is_its_single_scenes_and_copies_have_its_future():
    """Bit for bit, on any number of threads, with resets of some scenes."""
    batch = Duel("mate-4v8-9", 300, seed=40, num_threads=2)
    everyone = [(batch, slice(None)), *((Duel("mate-4v8-9", 1, seed=40 + b), slice(b, b + 1)) for b in (0, 7, 299))]
    rng = np.random.default_rng(3)
    for step in range(40):
        action, targets = rng.uniform(-6, 6, (300, 4, 2)), rng.uniform(-20, 20, (300, 8, 2))
        mask = np.arange(300) % 7 == 0
        for duel, scenes in everyone:
            duel.step(action[scenes], target_action=targets[scenes] if step % 2 else None)
            if step in (12, 25):
                duel.reset(mask=mask[scenes])
        if step == 18:
            saved, late = batch.get_state(), Duel("mate-4v8-9", 300, seed=9, num_threads=1)
            late.set_state(saved)
            everyone += [(copy, slice(None)) for copy in (late, batch.clone(), pickle.loads(pickle.dumps(batch)))]
    state = batch.get_state()
    assert any((state[name] != saved[name]).any() for name in state if name.startswith("cargo"))
    for duel, scenes in everyone:
        np.testing.assert_equal(duel.get_state(), {name: array[scenes] for name, array in state.items()})
