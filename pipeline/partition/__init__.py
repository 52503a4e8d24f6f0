"""The partition stage: hypergraph models, partitioners, and the exact measure of a partition's quality."""
