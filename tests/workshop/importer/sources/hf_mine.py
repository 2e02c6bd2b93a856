# A config as OpenCompass's own look: the template apart, the model below.
from opencompass.models import HuggingFaceCausalLM

END = "<|end|>\n"

_meta_template = dict(
    begin="<s>",
    end=None,
    round=[
        dict(role="HUMAN", begin="<|user|>" + "\n", end=END),
        dict(role="BOT", begin="<|bot|>" "\n", end=END, generate=True),
    ],
    reserved_roles=[dict(role="SYSTEM", begin="<|system|>\n", end=END)],
    tokens=5,
)

models = [
    dict(
        type=HuggingFaceCausalLM,
        abbr="mine-7b-hf",
        path="mine/7b-chat",
        tokenizer_path="mine/7b-chat",
        max_out_len=100,
        max_seq_len=2048,
        batch_size=8,
        meta_template=_meta_template,
        end_str="<|end|>",
        generation_kwargs=dict(stop_words=["<|user|>"], eos_token_id=2),
        run_cfg=dict(num_gpus=1, num_procs=1),
    )
]
