"""The formats of local models, without a server: messages to the exact prompt, and a model's text to an answer.

The package imports nothing of ``gateway``.

``errors``           the errors of the package, without HTTP
``values``           conversation, prompt, events
``templates``        what all kinds of templates have in common
``meta``             ``kind: meta`` with ``turns: natural``, which keeps the order of the messages
``opencompass``      ``kind: meta`` with ``turns: opencompass``; and ``kind: base``, which joins the messages
``prompters``        ``kind: prompter``: the prompters of LazyLLM
``chat_templates``   ``kind: jinja``: the chat templates of Hugging Face
``datasets``         dataset prompts, which make the conversation of a row of a dataset
``markers``          markers of a template in texts of the input
``answers``          the text of a model: stops, reasoning, tool calls
``files``            files of templates and dataset prompts, and their checks
``tokenizer``        a model's tokenizer from a local file
``limited_process``  jobs in a subprocess with a time limit and a memory limit
``version``          the version
"""
