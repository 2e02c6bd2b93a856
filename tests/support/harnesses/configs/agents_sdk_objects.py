"""Ask for objects of a type with OpenAI's Agents SDK: the even ones over chat, the odd ones as streams of responses."""

import asyncio
import json
import os
from pathlib import Path
from typing import Literal

from agents import Agent, ModelSettings, OpenAIProvider, RunConfig, Runner
from pydantic import BaseModel, Field


class Report(BaseModel):
    ok: bool
    kind: Literal["sum", "other"]
    name: str = Field(max_length=8)


chat, responses = (
    RunConfig(
        model_provider=OpenAIProvider(base_url=os.environ["BASE_URL"], api_key="none", use_responses=use),
        tracing_disabled=True,
    )
    for use in (False, True)
)
settings = ModelSettings(max_tokens=200)
agent = Agent(name="report", model=os.environ["MODEL"], model_settings=settings, output_type=Report)
rows = [json.loads(line) for line in Path("sums.jsonl").read_text(encoding="utf-8").splitlines()]


async def main() -> float:
    made = 0
    for number, row in enumerate(rows):
        if number % 2:
            run = Runner.run_streamed(agent, row["question"], run_config=responses)
            async for _ in run.stream_events():
                pass
        else:
            run = await Runner.run(agent, row["question"], run_config=chat)
        made += isinstance(run.final_output, Report)
    return made / len(rows)


print(f"SCORE {asyncio.run(main())}")
