"""One file for each part of the configuration: server, tls, models, targets, network, policies (their parameters in a
file of their own), keys."""
