"""Ask for objects of a type with instructor: the even ones whole, the odd ones as streams of partial objects."""

import json
import os
from pathlib import Path
from typing import Literal

import instructor
from openai import OpenAI
from pydantic import BaseModel, Field


class Report(BaseModel):
    ok: bool
    kind: Literal["sum", "other"]
    name: str = Field(max_length=8)


openai = OpenAI(base_url=os.environ["BASE_URL"], api_key="none", max_retries=0, timeout=60)
client = instructor.from_openai(openai, mode=instructor.Mode.JSON_SCHEMA)
made = 0
lines = Path("sums.jsonl").read_text(encoding="utf-8").splitlines()
for number, line in enumerate(lines):
    request = {
        "model": os.environ["MODEL"],
        "messages": [{"role": "user", "content": json.loads(line)["question"]}],
        "max_tokens": 200,
        "max_retries": 0,
        "response_model": Report,
    }
    if number % 2:
        *_, last = client.chat.completions.create_partial(**request)
        report = Report(**last.model_dump())
    else:
        report = client.chat.completions.create(**request)
    made += isinstance(report, Report)
print(f"SCORE {made / len(lines)}")
