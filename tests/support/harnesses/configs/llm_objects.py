"""Ask for objects of a type with llm: the odd ones as streams, which is its default, the even ones whole."""

import json
import os
from pathlib import Path
from typing import Literal

import llm
from pydantic import BaseModel, Field


class Report(BaseModel):
    ok: bool
    kind: Literal["sum", "other"]
    name: str = Field(max_length=8)


# The file of models that the command `llm` reads too; JSON is YAML.
row = {"model_id": "reports", "model_name": os.environ["MODEL"], "api_base": os.environ["BASE_URL"]}
models = [{**row, "supports_schema": True}]
(llm.user_dir() / "extra-openai-models.yaml").write_text(json.dumps(models), encoding="utf-8")

model = llm.get_model("reports")
made = 0
lines = Path("sums.jsonl").read_text(encoding="utf-8").splitlines()
for number, line in enumerate(lines):
    question = json.loads(line)["question"]
    text = model.prompt(question, schema=Report, stream=number % 2 == 1, max_tokens=200).text()
    made += isinstance(Report.model_validate_json(text), Report)
print(f"SCORE {made / len(lines)}")
