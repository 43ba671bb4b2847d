"""A site of your own: cameras on a floor plan, people from CSV files, agents compared on days that no training saw.

``python examples/own_site.py`` covers 0.789 with planner-fast (random 0.426), 31 s on a 2-core AMD EPYC, no GPU.

`docs/site.md` trains on the same site. To use yours, replace the files in ``examples/site``: a scenario in YAML with
the cameras, walls and picture, and one CSV file of ``time,id,x,y`` for each recording.
"""

import time
from pathlib import Path

import tyro

from hitmac.agents.evaluate import evaluate, save_film, table
from hitmac.envs import load_scenario

SITE = Path(__file__).parent / "site"


def main(episodes: int = 20, film: Path | None = None):
    site = load_scenario(SITE / "site.yaml")  # its tracks are those of the first five days
    other_days = site.replace(tracks=[str(SITE / "tracks" / f"day-{day}.csv") for day in (6, 7, 8)])
    agents = ["planner-fast", "nearest", "pretrained:any-size", "greedy", "random", "still"]
    print(table(evaluate(agents, other_days, episodes=episodes, progress=False)))
    print(f"{time.process_time():.0f} s of processor time")
    if film is not None:
        save_film(film, agents[0], other_days, seed=0)


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
