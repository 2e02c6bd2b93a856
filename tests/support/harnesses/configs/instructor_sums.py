"""Ask every sum with instructor, without a response model: the even ones whole, the odd ones as streams."""

import json
import os
from pathlib import Path

import instructor
from openai import OpenAI

client = instructor.from_openai(OpenAI(base_url=os.environ["BASE_URL"], api_key="none", max_retries=0, timeout=60))
right = 0
lines = Path("sums.jsonl").read_text(encoding="utf-8").splitlines()
for number, line in enumerate(lines):
    row = json.loads(line)
    request = {
        "model": os.environ["MODEL"],
        "messages": [{"role": "user", "content": row["question"]}],
        "max_tokens": 16,
        "response_model": None,
    }
    if number % 2:
        stream = client.chat.completions.create(**request, stream=True)
        said = "".join(part.choices[0].delta.content or "" for part in stream if part.choices)
    else:
        said = client.chat.completions.create(**request).choices[0].message.content
    right += said == row["answer"]
print(f"SCORE {right / len(lines)}")
