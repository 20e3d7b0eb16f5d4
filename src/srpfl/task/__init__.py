"""Tasks: what a model's outputs mean."""

from typing import Any

from srpfl.errors import unknown
from srpfl.task.base import Task, summed
from srpfl.task.classification import Classification
from srpfl.task.multi_label import MultiLabel
from srpfl.task.next_token import NextToken
from srpfl.task.regression import Regression
from srpfl.task.scored import Scored

TASKS: dict[str, type[Task]] = {
    "classification": Classification,
    "regression": Regression,
    "multi-label": MultiLabel,
    "next-token": NextToken,
}


def task_named(name: str) -> Task:
    """A task by name, as the command and data sets have it."""
    if name not in TASKS:
        raise unknown("task", name, TASKS)
    return TASKS[name]()


def task_of(data: object) -> Any:
    """The task that data are for: their own, by name or as an object, or else classification."""
    own = getattr(data, "task", "classification")
    return task_named(own) if isinstance(own, str) else own


__all__ = [
    "TASKS",
    "Classification",
    "MultiLabel",
    "NextToken",
    "Regression",
    "Scored",
    "Task",
    "summed",
    "task_named",
    "task_of",
]
