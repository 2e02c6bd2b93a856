"""A task of inspect-ai: the answer must be the sum, exactly."""

from inspect_ai import Task, task
from inspect_ai.dataset import FieldSpec, json_dataset
from inspect_ai.scorer import exact
from inspect_ai.solver import generate


@task
def sums() -> Task:
    return Task(
        dataset=json_dataset("sums.jsonl", FieldSpec(input="question", target="answer")),
        solver=generate(),
        scorer=exact(),
    )
