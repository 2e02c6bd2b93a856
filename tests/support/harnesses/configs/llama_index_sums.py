"""Ask every sum with LlamaIndex: the even ones whole, the odd ones as streams."""

import json
import os
from pathlib import Path

from llama_index.core.llms import ChatMessage
from llama_index.llms.openai_like import OpenAILike

model = OpenAILike(
    model=os.environ["MODEL"],
    api_base=os.environ["BASE_URL"],
    api_key="none",
    is_chat_model=True,
    temperature=0,
    max_tokens=16,
    max_retries=0,
)
right = 0
lines = Path("sums.jsonl").read_text(encoding="utf-8").splitlines()
for number, line in enumerate(lines):
    row = json.loads(line)
    messages = [ChatMessage(role="user", content=row["question"])]
    if number % 2:
        said = "".join(part.delta or "" for part in model.stream_chat(messages))
    else:
        said = model.chat(messages).message.content
    right += said == row["answer"]
print(f"SCORE {right / len(lines)}")
