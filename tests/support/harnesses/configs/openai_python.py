"""Ask every sum with the openai package: the even ones whole, the odd ones as a stream."""

import json
import os
from pathlib import Path

from openai import OpenAI
from openai.types.chat import ChatCompletionMessageParam

client = OpenAI(base_url=os.environ["BASE_URL"], api_key="none", max_retries=0, timeout=60)
model = os.environ["MODEL"]
right = 0
lines = Path("sums.jsonl").read_text(encoding="utf-8").splitlines()
for number, line in enumerate(lines):
    row = json.loads(line)
    messages: list[ChatCompletionMessageParam] = [{"role": "user", "content": row["question"]}]
    if number % 2:
        with client.chat.completions.create(model=model, messages=messages, max_tokens=16, stream=True) as stream:
            said = "".join(part.choices[0].delta.content or "" for part in stream if part.choices)
    else:
        answer = client.chat.completions.create(model=model, messages=messages, max_tokens=16)
        said = answer.choices[0].message.content or ""
    right += said == row["answer"]
assert model in [card.id for card in client.models.list()]
print(f"SCORE {right / len(lines)}")
