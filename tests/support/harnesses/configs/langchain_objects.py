"""Ask for objects of a type with langchain-openai: the even ones in one batch, the odd ones as streams."""

import json
import os
from pathlib import Path
from typing import Literal

from langchain_openai import ChatOpenAI
from pydantic import BaseModel, Field


class Report(BaseModel):
    ok: bool
    kind: Literal["sum", "other"]
    name: str = Field(max_length=8)


model = ChatOpenAI(
    model=os.environ["MODEL"],
    base_url=os.environ["BASE_URL"],
    api_key="none",
    max_tokens=200,
    max_retries=0,
    timeout=60,
).with_structured_output(Report, method="json_schema")
questions = [json.loads(line)["question"] for line in Path("sums.jsonl").read_text(encoding="utf-8").splitlines()]
reports = model.batch(questions[::2], config={"max_concurrency": 4})
reports += [list(model.stream(question))[-1] for question in questions[1::2]]
print(f"SCORE {sum(isinstance(report, Report) for report in reports) / len(questions)}")
