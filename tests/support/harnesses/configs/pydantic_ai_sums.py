"""Ask every sum with Pydantic AI: the even ones whole, the odd ones as streams."""

import asyncio
import json
import os
from pathlib import Path

from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

provider = OpenAIProvider(base_url=os.environ["BASE_URL"], api_key="none")
agent = Agent(OpenAIChatModel(os.environ["MODEL"], provider=provider), model_settings={"max_tokens": 16})
rows = [json.loads(line) for line in Path("sums.jsonl").read_text(encoding="utf-8").splitlines()]


async def main() -> float:
    right = 0
    for number, row in enumerate(rows):
        if number % 2:
            async with agent.run_stream(row["question"]) as run:
                said = await run.get_output()
        else:
            said = (await agent.run(row["question"])).output
        right += said == row["answer"]
    return right / len(rows)


print(f"SCORE {asyncio.run(main())}")
