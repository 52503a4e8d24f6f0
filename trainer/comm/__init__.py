"""Communication between ranks, counted by kind, and the process grid."""
