"""One file for each part of the configuration: server, tls, models, targets, templates, policies, prompts, keys."""
