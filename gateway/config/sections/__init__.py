"""One file for each part of the configuration: server, tls, models, targets, policies (their parameters in a
file of their own), keys."""
