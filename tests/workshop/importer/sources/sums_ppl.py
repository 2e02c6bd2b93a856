# Two datasets of sums. The prompt of each label is scored.
from opencompass.openicl import PPLInferencer, PromptTemplate, ZeroRetriever

_reader_cfg = dict(input_columns=['question', 'A', 'B'], output_column='answer')
_small = 'A small sum.\n'
_large = 'A very large sum.\n'
small_datasets = [
    dict(
        abbr='sums-small',
        reader_cfg=_reader_cfg,
        infer_cfg=dict(
            prompt_template=dict(
                type=PromptTemplate,
                template={'A': _small + '{question} {A}', 'B': _small + '{question} {B}'},
            ),
            retriever=dict(type=ZeroRetriever),
            inferencer=dict(type=PPLInferencer),
        ),
    )
]
large_datasets = [
    dict(
        abbr='sums-very_large',
        reader_cfg=_reader_cfg,
        infer_cfg=dict(
            prompt_template=dict(
                type=PromptTemplate,
                template={'A': _large + '{question} {A}', 'B': _large + '{question} {B}'},
            ),
            retriever=dict(type=ZeroRetriever),
            inferencer=dict(type=PPLInferencer),
        ),
    )
]
sums_datasets = [*small_datasets]
sums_datasets += large_datasets
