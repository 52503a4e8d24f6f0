"""Whether an installation works: `gnnloom doctor` and `gnnloom check`."""
