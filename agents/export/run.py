"""Loop of an exported policy: measure, observe, decide. It needs numpy and onnxruntime only."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from observe import Memory, observe

FOLDER = Path(__file__).parent
POLICY = json.loads((FOLDER / "policy.json").read_text(encoding="utf-8"))
SITE = POLICY["site"]


class Agent:
    """Exported policy; make a new one for every episode."""

    def __init__(self) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1  # the networks are small
        self.networks = [
            (network, onnxruntime.InferenceSession(FOLDER / network["file"], options)) for network in POLICY["networks"]
        ]
        self.memory, self.random, self.sub_step = Memory(SITE["knowledge"]), np.random.default_rng(0), 0
        self.kept: dict[str, np.ndarray] = {}

    def decide(self, target_position: Any, **measured: Any) -> np.ndarray:
        """Return the decisions (k, n) of a sub-step, one row for each of POLICY["decisions"].

        The arguments are those of `observe` except for those that the memory adds: earlier positions and ages. Every
        target keeps its row, NaN while it is not measured.
        """
        measured |= self.memory.see(target_position if len(target_position) else np.full((1, 2), np.nan))
        for network, session in self.networks:
            if self.sub_step % network["every"] == 0:  # an assignment holds for several sub-steps
                shown = observe(SITE, network["features"], **measured, **network.get("nearness", {}))
                inputs = {name: array[None] for name, array in shown.items()} | self.kept
                if "state" in network["inputs"] and self.sub_step == 0:
                    inputs["state"] = np.zeros((*inputs["mask"].shape, network["state_width"]), np.float32)
                outputs = session.run(network["outputs"], {name: inputs[name] for name in network["inputs"]})
                self.kept |= {
                    name.removeprefix("new_"): array for name, array in zip(network["outputs"], outputs, strict=True)
                }
        self.sub_step += 1
        actions = self.kept["actions"][0]
        if POLICY["idle"] == "random":  # sensors without assigned targets turn at random
            idle = ~(self.kept["assigned"] & inputs["mask"])[0].any(-1)
            actions[0] = np.where(idle, self.random.integers(3, size=len(idle)), actions[0])
        return actions


def main() -> None:
    """Run an example, a loop to replace with your own."""
    n, m, random = SITE["num_sensors"], SITE["num_targets"], np.random.default_rng(0)
    extent = np.broadcast_to(SITE["arena"], 2)
    positions = SITE["sensor_positions"] or random.uniform(-extent, extent, (n, 2))
    if rails := SITE["rails"]:
        positions = [rails[i % len(rails)][0] for i in range(n)]
    heading, targets = random.uniform(-180, 180, n), random.uniform(-extent, extent, (m, 2))
    agent = Agent()
    for sub_step in range(20):  # one every SITE["time_step"] seconds
        targets += 0.5 * SITE["max_speed"] * SITE["time_step"] * random.uniform(-1, 1, (m, 2))  # measure
        actions = agent.decide(targets, sensor_position=positions, heading=heading, along=np.zeros(n))
        heading += SITE["turn_angle"] * np.array([0, 1, -1])[actions[0]]  # stay, left, right
        print(sub_step, *(f"{name} {row.tolist()}" for name, row in zip(POLICY["decisions"], actions, strict=True)))


if __name__ == "__main__":
    main()
