"""``speaks: embedded``: a model folder of Hugging Face, computed in this process on the CPU (``docs/embedded.md``).

    backend        exchange → request to the engine; its output → events
    request        parameters of a call and options of a target, checked
    cache          the loaded models
    engine         the thread that computes all requests of one model
    generation     one choice, from its prompt to its last token
    sampling       scores → token
    llama          tokens → scores
    model_config   config.json
    weights        *.safetensors
    vocabulary     tokenizer.json

numpy and tokenizers are imported when the first model is loaded.
"""
