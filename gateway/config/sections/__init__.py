"""One file for each part of the configuration: server, tls, models, targets, templates, policies (their parameters in a
file of their own), prompts, keys."""
