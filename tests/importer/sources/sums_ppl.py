# One dataset for each size of sums, made by a loop. The prompt of each label is scored.
from opencompass.openicl import PPLInferencer, PromptTemplate, ZeroRetriever

sums_datasets = []
for _size in ['small', 'very_large']:
    _hint = f'A {_size.replace("_", " ")} sum.'
    sums_infer_cfg = dict(
        prompt_template=dict(
            type=PromptTemplate,
            template={label: f'{_hint}\n{{question}} {{{label}}}' for label in ['A', 'B']},
        ),
        retriever=dict(type=ZeroRetriever),
        inferencer=dict(type=PPLInferencer),
    )
    sums_datasets.append(
        dict(
            abbr='sums-' + _size,
            reader_cfg=dict(input_columns=['question', 'A', 'B'], output_column='answer'),
            infer_cfg=sums_infer_cfg,
        )
    )

del _size, _hint
