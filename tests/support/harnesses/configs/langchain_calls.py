"""Let a model call a function with langchain-openai: once whole, once as streams."""

import operator
import os
from functools import reduce

from langchain_core.messages import AnyMessage, HumanMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


model = ChatOpenAI(
    model=os.environ["MODEL"], base_url=os.environ["BASE_URL"], api_key="none", max_retries=0, timeout=60
).bind_tools([add])


def is_right(*, stream: bool) -> bool:
    messages: list[AnyMessage] = [HumanMessage("12+34=?")]
    for _ in range(2):
        said = reduce(operator.add, model.stream(messages)) if stream else model.invoke(messages)
        messages += [said, *map(tool(add).invoke, said.tool_calls)]
    return len(messages) == 4 and messages[-1].content == "46"


print(f"SCORE {(is_right(stream=False) + is_right(stream=True)) / 2}")
