"""Ask for objects of a type with the openai package: over chat and over responses, whole and as streams."""

import json
import os
from pathlib import Path
from typing import Literal

from openai import OpenAI
from openai.types.chat import ChatCompletionMessageParam
from pydantic import BaseModel, Field


class Report(BaseModel):
    ok: bool
    kind: Literal["sum", "other"]
    name: str = Field(max_length=8)


client = OpenAI(base_url=os.environ["BASE_URL"], api_key="none", max_retries=0, timeout=60)
model = os.environ["MODEL"]


def chat(question: str) -> Report | None:
    messages: list[ChatCompletionMessageParam] = [{"role": "user", "content": question}]
    answer = client.chat.completions.parse(model=model, messages=messages, response_format=Report, max_tokens=200)
    return answer.choices[0].message.parsed


def chat_stream(question: str) -> Report | None:
    messages: list[ChatCompletionMessageParam] = [{"role": "user", "content": question}]
    with client.chat.completions.stream(
        model=model, messages=messages, response_format=Report, max_tokens=200
    ) as stream:
        return stream.get_final_completion().choices[0].message.parsed


def response(question: str) -> Report | None:
    answer = client.responses.parse(model=model, input=question, text_format=Report, max_output_tokens=200)
    return answer.output_parsed


def response_stream(question: str) -> Report | None:
    with client.responses.stream(model=model, input=question, text_format=Report, max_output_tokens=200) as stream:
        return stream.get_final_response().output_parsed


lines = Path("sums.jsonl").read_text(encoding="utf-8").splitlines()
made = 0
for number, line in enumerate(lines):
    ask = (chat, chat_stream, response, response_stream)[number % 4]
    made += isinstance(ask(json.loads(line)["question"]), Report)
print(f"SCORE {made / len(lines)}")
