"""Ask for objects of a type with Pydantic AI: the even ones whole, the odd ones as streams."""

import asyncio
import json
import os
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, Field
from pydantic_ai import Agent, NativeOutput
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider


class Report(BaseModel):
    ok: bool
    kind: Literal["sum", "other"]
    name: str = Field(max_length=8)


provider = OpenAIProvider(base_url=os.environ["BASE_URL"], api_key="none")
model = OpenAIChatModel(os.environ["MODEL"], provider=provider)
agent = Agent(model, output_type=NativeOutput(Report), model_settings={"max_tokens": 200}, retries=0)
rows = [json.loads(line) for line in Path("sums.jsonl").read_text(encoding="utf-8").splitlines()]


async def main() -> float:
    made = 0
    for number, row in enumerate(rows):
        if number % 2:
            async with agent.run_stream(row["question"]) as run:
                report = await run.get_output()
        else:
            report = (await agent.run(row["question"])).output
        made += isinstance(report, Report)
    return made / len(rows)


print(f"SCORE {asyncio.run(main())}")
