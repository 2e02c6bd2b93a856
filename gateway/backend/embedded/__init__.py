"""``speaks: embedded``: a model folder of Hugging Face, computed in this process on the CPU (``docs/embedded.md``).

    backend        exchange → engine request; engine output → events
    request        one call as tokens, with checked parameters
    cache          the loaded models
    engine         the task that computes all requests of one model
    generation     one choice, from its prompt to its last token
    sampling       scores → token
    llama          tokens → scores
    model_folder   config.json and model.safetensors
    vocabulary     tokenizer.json

numpy and tokenizers are imported when the first model is loaded.
"""
