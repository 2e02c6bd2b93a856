# A dataset of sums in OpenCompass's form: two sums of the train split stand before the question.
from opencompass.datasets import SumsDataset
from opencompass.openicl.icl_evaluator import AccEvaluator
from opencompass.openicl.icl_inferencer import GenInferencer
from opencompass.openicl.icl_prompt_template import PromptTemplate
from opencompass.openicl.icl_retriever import FixKRetriever

sums_reader_cfg = dict(input_columns='question hint', output_column='answer', train_split='train')

sums_infer_cfg = dict(
    ice_template=dict(
        type=PromptTemplate,
        template=dict(
            round=[dict(role='HUMAN', prompt='{question}'), dict(role='BOT', prompt='{answer}')],
        ),
    ),
    prompt_template=dict(
        type=PromptTemplate,
        template=dict(
            begin=[dict(role='SYSTEM', fallback_role='HUMAN', prompt='Add. {hint}'), '</E>'],
            round=[dict(role='HUMAN', prompt='{question} ({unit})'), dict(role='BOT', prompt='{answer}')],
        ),
        ice_token='</E>',
    ),
    retriever=dict(type=FixKRetriever, fix_id_list=[0, 3]),
    inferencer=dict(type=GenInferencer, max_out_len=16),
)

sums_datasets = [
    dict(
        abbr='Sums/small',
        type=SumsDataset,
        path='./data/sums',
        reader_cfg=sums_reader_cfg,
        infer_cfg=sums_infer_cfg,
        eval_cfg=dict(evaluator=dict(type=AccEvaluator)),
    )
]
