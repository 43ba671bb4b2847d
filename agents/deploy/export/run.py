"""Loop of an exported policy: measure, observe, decide. It needs numpy and onnxruntime only."""

import json
from collections.abc import Hashable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

if __package__:  # a part of hitmac
    from hitmac.envs.deployment import Memory, observe
    from hitmac.envs.features import wrapped
else:
    from features import wrapped  # type: ignore[no-redef]
    from observe import Memory, observe  # type: ignore[no-redef]

FOLDER = Path(__file__).parent
TURNS = np.array([0, 1, -1])  # signs of the decisions: stay, left, right


class Agent:
    """Exported policy of a folder; make a new one for every episode.

    Attributes:
        card: content of ``policy.json``.
        site: its parameters of the site.
        memory: the targets; ``memory.rows`` has the row of each id.
    """

    def __init__(self, folder: Path = FOLDER) -> None:
        self.card = json.loads((folder / "policy.json").read_text(encoding="utf-8-sig"))
        self.site = self.card["site"]
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1  # the networks are small
        self.networks = [
            (network, onnxruntime.InferenceSession(folder / network["file"], options))
            for network in self.card["networks"]
        ]
        self.memory, self.random = Memory(self.site["knowledge"], self.site["num_targets"]), np.random.default_rng(0)
        self.sub_step, self.kept = 0, dict[str, np.ndarray]()

    def decide(
        self,
        target_position: Any,
        ids: Iterable[Hashable] | None = None,
        left: Iterable[Hashable] = (),
        *,
        heading: Any,
        target_before: Any = None,
        seen: Any = None,
        **measured: Any,
    ) -> np.ndarray:
        """Return the decisions (k, n) of a sub-step, one row for each of card["decisions"].

        The arguments are those of `observe`, for the targets measured now, of any number. Turns beyond the pan limits
        of the site become 0.

        Args:
            target_position: (m, 2) of the targets measured now.
            ids: names of these targets, any hashable objects, the same in every call; None: their indices.
            left: ids to forget, such as those seen leaving. Where knowledge is shared, the others keep their last
                positions, until a new target needs the row of the oldest.
            heading: (n,) of the sensors.
            target_before: (m, 2), positions one time step earlier, if velocities are measured; None: those of the last
                call.
            seen: (n, m), see `observe`.
            **measured: other arguments of `observe`.
        """
        ids = list(range(len(target_position)) if ids is None else ids)
        rows_before = dict(self.memory.rows)
        measured |= self.memory.see(target_position, left, ids=ids, target_before=target_before)
        rows = self.memory.rows
        if new := [row for one, row in rows.items() if rows_before.get(one) != row]:
            self._clear(new, len(measured["age"]))
        if seen is not None:
            measured["seen"] = np.zeros((len(seen), len(measured["age"])), np.bool_)
            measured["seen"][:, [rows[one] for one in ids]] = seen
        for network, session in self.networks:
            if self.sub_step % network["every"] == 0:  # an assignment holds for several sub-steps
                nearness = network.get("nearness", {})
                shown = observe(self.site, network["features"], heading=heading, **measured, **nearness)
                inputs = {name: array[None] for name, array in shown.items()} | self.kept
                if "state" in network["inputs"] and self.sub_step == 0:
                    inputs["state"] = np.zeros((*inputs["mask"].shape, network["state_width"]), np.float32)
                outputs = session.run(network["outputs"], {name: inputs[name] for name in network["inputs"]})
                self.kept |= {
                    name.removeprefix("new_"): array for name, array in zip(network["outputs"], outputs, strict=True)
                }
        self.sub_step += 1
        actions = self.kept["actions"][0]
        if self.card["idle"] == "random":  # sensors without assigned targets turn at random
            idle = ~(self.kept["assigned"] & inputs["mask"])[0].any(-1)
            turns = self.random.integers(3, size=len(idle))
            if actions.dtype.kind == "f":  # shares
                turns = TURNS[turns] * np.minimum(self.site["turn_angle"] / highest(self.site), 1.0)
            actions[0] = np.where(idle, turns, actions[0])
        if self.site["pan_limits"]:
            actions[0] = np.where(beyond_limits(self.site, heading, actions[0]), 0, actions[0])
        return actions

    def _clear(self, rows: list[int], m: int) -> None:
        """Clear the assignments and the recurrent states of rows with new targets, out of `m` rows."""
        for name in {"assigned", "state"} & set(self.kept):
            before = self.kept[name]
            self.kept[name] = np.zeros((*before.shape[:2], m, *before.shape[3:]), before.dtype)
            self.kept[name][:, :, : before.shape[2]] = before
            self.kept[name][:, :, rows] = 0


def beyond_limits(site: dict[str, Any], heading: Any, turns: np.ndarray) -> np.ndarray:
    """Return a mask (n,) of the turns that lead beyond the pan limits; a range of a whole turn has none."""
    low, high = np.transpose(site["pan_limits"])
    middle, way = (low + high) / 2, angles(site, turns)
    heading = wrapped(np.asarray(heading), middle) + way
    outside = (heading > high + 1e-9) & (way > 0) | (heading < low - 1e-9) & (way < 0)
    return outside & (high - low < 360)


def angles(site: dict[str, Any], turns: np.ndarray) -> Any:
    """Return the angles (n,) of turns in a time step, degrees: of steps, or of shares of the highest rate."""
    return TURNS[turns] * site["turn_angle"] if turns.dtype.kind == "i" else turns * highest(site)


def highest(site: dict[str, Any]) -> Any:
    """Return the angle of the share 1 in a time step, degrees: by the highest rate, or without motors of a turn."""
    return np.max(site["turn_rates"]) * site["time_step"] or np.asarray(site["turn_angle"])


def main() -> None:
    """Run an example, a loop to replace with your own."""
    agent, random = Agent(), np.random.default_rng(0)
    site = agent.site
    n, m = site["num_sensors"], site["num_targets"]
    extent = np.broadcast_to(site["arena"], 2)
    positions = site["sensor_positions"] or random.uniform(-extent, extent, (n, 2))
    if rails := site["rails"]:
        positions = [rails[i % len(rails)][0] for i in range(n)]
    low, high = np.broadcast_to(site["pan_limits"] or (-180, 180), (n, 2)).T
    heading = np.array(site["sensor_headings"] or random.uniform(low, high), float)
    targets = random.uniform(-extent, extent, (m, 2))
    for sub_step in range(20):  # one every site["time_step"] seconds
        targets += 0.5 * site["max_speed"] * site["time_step"] * random.uniform(-1, 1, (m, 2))  # measure
        actions = agent.decide(targets, sensor_position=positions, heading=heading, along=np.zeros(n))
        heading += angles(site, actions[0])
        print(sub_step, *(f"{name} {row.tolist()}" for name, row in zip(agent.card["decisions"], actions, strict=True)))


if __name__ == "__main__":
    main()
