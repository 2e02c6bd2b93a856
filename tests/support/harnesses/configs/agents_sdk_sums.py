"""Ask every sum with OpenAI's Agents SDK: the even ones whole over chat, the odd ones as streams of responses."""

import asyncio
import json
import os
from pathlib import Path

from agents import Agent, ModelSettings, OpenAIProvider, RunConfig, Runner

chat, responses = (
    RunConfig(
        model_provider=OpenAIProvider(base_url=os.environ["BASE_URL"], api_key="none", use_responses=use),
        tracing_disabled=True,
    )
    for use in (False, True)
)
agent = Agent(name="sums", model=os.environ["MODEL"], model_settings=ModelSettings(max_tokens=16))
rows = [json.loads(line) for line in Path("sums.jsonl").read_text(encoding="utf-8").splitlines()]


async def main() -> float:
    right = 0
    for number, row in enumerate(rows):
        if number % 2:
            run = Runner.run_streamed(agent, row["question"], run_config=responses)
            async for _ in run.stream_events():
                pass
        else:
            run = await Runner.run(agent, row["question"], run_config=chat)
        right += run.final_output == row["answer"]
    return right / len(rows)


print(f"SCORE {asyncio.run(main())}")
