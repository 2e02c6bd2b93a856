"""Inputs that are compared with another implementation. Programs to run by hand; tests run them with few cases.

compare-engines      published chat templates, rendered here and by other engines
compare-tokens       the tokens of calls to vLLM, compared with those that it would make itself
make-tiny-model      a model with a published chat template, for an engine such as vLLM
fuzz-http            requests and answers, compared with h11
fuzz-lazyllm         prompters and answers, compared with an installed LazyLLM
fuzz-opencompass     dataset prompts, compared with an installed OpenCompass and AISBench
fuzz-markers         texts that try to forge a turn, with tokenizers as judges
fuzz-tool-formats    tool calls that published templates write, compared with the parsers of other projects
lazyllm_cases        recorded and random cases of LazyLLM, as calls of the gateway
dataset_cases        recorded and random cases of datasets, as calls of the gateway
product_path         recorded cases as a prompt file and a request
tool_format_oracles  the parsers of other projects, run by fuzz-tool-formats
"""
