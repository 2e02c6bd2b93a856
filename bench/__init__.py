"""What does the gateway cost? ``python -m bench --help`` measures it beside its peers, on this machine."""
