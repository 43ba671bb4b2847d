"""A trained policy by onnxruntime, in a process in which torch is never imported.

``python examples/onnx_without_torch.py`` covers 0.838 (still 0.298) by pretrained:flat, 16 s on a 2-core AMD EPYC, no
GPU.
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import gymnasium
import numpy as np
import onnxruntime
import tyro


def main(agent: str = "pretrained:flat", episodes: int = 20, steps: int = 1010):
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "policy"  # made once, where torch is, and then copied to where it is used
        subprocess.run(
            [sys.executable, "-m", "hitmac", "export", agent, "--to", folder], check=True, capture_output=True
        )
        network = json.loads((folder / "policy.json").read_text(encoding="utf-8"))["networks"][0]
        session = onnxruntime.InferenceSession((folder / network["file"]).read_bytes())
    for name in (agent, "still"):
        scenes = gymnasium.make_vec(
            "hitmac:dsn/Coverage-v0", num_envs=episodes, features=network["features"], max_episode_steps=steps
        )
        observation, _ = scenes.reset(seed=0)
        coverage, began = np.zeros(episodes), time.process_time()
        for _ in range(steps):
            actions = np.zeros(scenes.action_space.shape, int)
            if name == agent:
                actions = session.run(["actions"], observation)[0][:, 0]  # the first of the decisions: turns
            observation, _, _, _, info = scenes.step(actions)
            coverage += info["coverage"] / steps
        used = 1000 * (time.process_time() - began) / (episodes * steps)
        print(f"{name:16} coverage {coverage.mean():.3f}, {used:.3f} ms of processor time for a scene's sub-step")
    assert "torch" not in sys.modules


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
