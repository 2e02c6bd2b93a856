"""OpenCompass: one model behind an OpenAI-compatible address, one data set of sums.

Imports become lazy objects here, so the environment is read with ``__import__``.
"""

from opencompass.datasets import CustomDataset
from opencompass.models import OpenAISDK
from opencompass.openicl.icl_evaluator import AccEvaluator
from opencompass.openicl.icl_inferencer import GenInferencer
from opencompass.openicl.icl_prompt_template import PromptTemplate
from opencompass.openicl.icl_retriever import ZeroRetriever

environ = __import__("os").environ

models = [
    {
        "abbr": "demo",
        "type": OpenAISDK,
        "path": environ["MODEL"],
        "openai_api_base": environ["OPENAI_BASE_URL"],
        "key": "none",
        # Without a local tokenizer it downloads one of OpenAI's, to count the prompt's tokens.
        "tokenizer_path": environ["TOKENIZER"],
        "meta_template": {
            "round": [{"role": "HUMAN", "api_role": "HUMAN"}, {"role": "BOT", "api_role": "BOT", "generate": True}]
        },
        "max_out_len": 16,
        "max_seq_len": 512,
        "batch_size": 8,
        "query_per_second": 50,
        "retry": 1,
        "temperature": 0,
    }
]

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

del environ  # every name that is left is written into the run's folder
