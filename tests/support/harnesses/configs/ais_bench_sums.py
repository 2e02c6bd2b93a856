"""AISBench: one model behind an OpenAI-compatible address, as chat in streams or as raw completions.

Imports become lazy objects here, so the environment is read with ``__import__``.
"""

from ais_bench.benchmark.datasets.custom import CustomDataset
from ais_bench.benchmark.models import VLLMCustomAPI, VLLMCustomAPIChat
from ais_bench.benchmark.openicl.icl_evaluator import AccEvaluator
from ais_bench.benchmark.openicl.icl_inferencer import GenInferencer
from ais_bench.benchmark.openicl.icl_prompt_template import PromptTemplate
from ais_bench.benchmark.openicl.icl_retriever import ZeroRetriever

environ = __import__("os").environ

service = {
    "attr": "service",
    "abbr": "demo",
    "path": "",
    "model": environ["MODEL"],
    "request_rate": 0,
    "retry": 1,
    "api_key": "",
    "url": environ["OPENAI_BASE_URL"].removesuffix("v1"),  # it adds v1/… itself
    "max_out_len": 16,
    "batch_size": 4,
    "trust_remote_code": False,
}
chat = dict(**service, type=VLLMCustomAPIChat, stream=True, generation_kwargs={"temperature": 0})
raw = dict(
    **service,
    type=VLLMCustomAPI,
    stream=False,
    generation_kwargs={"temperature": 0, "stop": ["<eob>"]},
    # Raw completions are not templated by the gateway: the format stands here.
    meta_template={
        "round": [
            {"role": "HUMAN", "begin": "<HUMAN>: ", "end": "<eoh>\n"},
            {"role": "BOT", "begin": "<BOT>: ", "end": "<eob>\n", "generate": True},
        ]
    },
)
models = [raw if environ["AIS_BENCH"] == "raw" else chat]

datasets = [
    {
        "abbr": "sums",
        "type": CustomDataset,
        "path": environ["PWD"],
        "file_name": "sums.jsonl",
        "reader_cfg": {"input_columns": ["question"], "output_column": "answer"},
        "infer_cfg": {
            "prompt_template": {
                "type": PromptTemplate,
                "template": {"round": [{"role": "HUMAN", "prompt": "{question}"}]},
            },
            "retriever": {"type": ZeroRetriever},
            "inferencer": {"type": GenInferencer},
        },
        "eval_cfg": {"evaluator": {"type": AccEvaluator}},
    }
]

summarizer = {"attr": "accuracy"}

del environ  # every name that is left is written into the run's folder
