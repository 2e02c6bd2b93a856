"""Ask every sum with LiteLLM's SDK: the even ones in one batch, the odd ones as streams."""

import json
import os
from pathlib import Path
from typing import Any

import litellm

settings: dict[str, Any] = {
    "model": f"openai/{os.environ['MODEL']}",
    "api_base": os.environ["BASE_URL"],
    "api_key": "none",
    "max_tokens": 16,
    "max_retries": 0,
}
rows = [json.loads(line) for line in Path("sums.jsonl").read_text(encoding="utf-8").splitlines()]
batch, streams = rows[::2], rows[1::2]
messages = [[{"role": "user", "content": row["question"]}] for row in batch]
said = litellm.batch_completion(messages=messages, max_workers=4, **settings)
right = sum(answer.choices[0].message.content == row["answer"] for answer, row in zip(said, batch, strict=True))
for row in streams:
    stream = litellm.completion(messages=[{"role": "user", "content": row["question"]}], stream=True, **settings)
    right += "".join(chunk.choices[0].delta.content or "" for chunk in stream) == row["answer"]
print(f"SCORE {right / len(rows)}")
