"""The manifests of ``deploy/kubernetes``: checked, and their probes and drain carried out with real processes."""
