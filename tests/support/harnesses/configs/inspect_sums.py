"""A task of inspect-ai: the answer must be the sum, exactly."""

from inspect_ai import Task, task
from inspect_ai.dataset import FieldSpec, json_dataset
from inspect_ai.scorer import exact
from inspect_ai.solver import generate


@task  # type: ignore[untyped-decorator]  # inspect-ai is installed in an environment of its own
def sums() -> Task:
    return Task(
        dataset=json_dataset("sums.jsonl", FieldSpec(input="question", target="answer")),
        solver=generate(),
        scorer=exact(),
    )
