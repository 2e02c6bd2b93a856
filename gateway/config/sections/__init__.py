"""One file for each part of the configuration: server, models, targets, templates, policies, prompts, keys."""
