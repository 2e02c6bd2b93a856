"""Ask every sum with DSPy and measure with its evaluator, four at a time."""

import json
import os
from pathlib import Path
from typing import Any

import dspy


class Plain(dspy.Adapter):  # type: ignore[misc]  # DSPy is installed in an environment of its own
    """The question alone is the message, and the text alone the answer: the demo model knows no field markers."""

    def format(self, signature: Any, demos: Any, inputs: dict[str, Any]) -> list[dict[str, Any]]:
        return [{"role": "user", "content": inputs["question"]}]

    def parse(self, signature: Any, completion: str) -> dict[str, Any]:
        return {"answer": completion}


model = dspy.LM(
    f"openai/{os.environ['MODEL']}",
    api_base=os.environ["BASE_URL"],
    api_key="none",
    max_tokens=16,
    num_retries=0,
    cache=False,
)
dspy.configure(lm=model, adapter=Plain())
rows = [json.loads(line) for line in Path("sums.jsonl").read_text(encoding="utf-8").splitlines()]
sums = [dspy.Example(question=row["question"], answer=row["answer"]).with_inputs("question") for row in rows]
evaluate = dspy.Evaluate(devset=sums, metric=dspy.evaluate.answer_exact_match, num_threads=4)
print(f"SCORE {evaluate(dspy.Predict('question -> answer')).score / 100}")
