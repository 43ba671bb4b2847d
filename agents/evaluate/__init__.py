"""Evaluation: comparison of agents on the same new episodes, with intervals, tables, figures and films."""

from hitmac.agents.evaluate.compare import evaluate, evaluate_executors, save_evaluation
from hitmac.agents.evaluate.figures import save_pictures
from hitmac.agents.evaluate.film import save_film
from hitmac.agents.evaluate.tables import table

__all__ = ["evaluate", "evaluate_executors", "save_evaluation", "save_film", "save_pictures", "table"]
