"""Let a model call a function with OpenAI's Agents SDK: once whole over chat, once as streams of responses."""

import asyncio
import os
from typing import Any

from agents import Agent, OpenAIProvider, RunConfig, Runner, function_tool


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


chat, responses = (
    RunConfig(
        model_provider=OpenAIProvider(base_url=os.environ["BASE_URL"], api_key="none", use_responses=use),
        tracing_disabled=True,
    )
    for use in (False, True)
)
agent = Agent(name="sums", model=os.environ["MODEL"], tools=[function_tool(add)])


async def main() -> float:
    whole = await Runner.run(agent, "12+34=?", run_config=chat, max_turns=2)
    streamed = Runner.run_streamed(agent, "12+34=?", run_config=responses, max_turns=2)
    async for _ in streamed.stream_events():
        pass
    return sum(is_right(run) for run in (whole, streamed)) / 2


def is_right(run: Any) -> bool:
    """Whether the function was called, and the answer has its result."""
    return "tool_call_output_item" in [item.type for item in run.new_items] and run.final_output == "46"


print(f"SCORE {asyncio.run(main())}")
