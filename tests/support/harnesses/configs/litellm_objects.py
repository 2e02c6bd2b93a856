"""Ask for objects of a type with LiteLLM's SDK: the even ones in one batch, the odd ones as streams."""

import json
import os
from pathlib import Path
from typing import Any, Literal

import litellm
from pydantic import BaseModel, Field


class Report(BaseModel):
    ok: bool
    kind: Literal["sum", "other"]
    name: str = Field(max_length=8)


settings: dict[str, Any] = {
    "model": f"openai/{os.environ['MODEL']}",
    "api_base": os.environ["BASE_URL"],
    "api_key": "none",
    "max_tokens": 200,
    "max_retries": 0,
    "response_format": Report,
}
rows = [json.loads(line) for line in Path("sums.jsonl").read_text(encoding="utf-8").splitlines()]
messages = [[{"role": "user", "content": row["question"]}] for row in rows]
answers = litellm.batch_completion(messages=messages[::2], max_workers=4, **settings)
texts = [answer.choices[0].message.content for answer in answers]
for question in messages[1::2]:
    stream = litellm.completion(messages=question, stream=True, **settings)
    texts.append("".join(chunk.choices[0].delta.content or "" for chunk in stream))
made = [Report.model_validate_json(text) for text in texts]
print(f"SCORE {len(made) / len(rows)}")
