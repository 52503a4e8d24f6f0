"""Reports: what a run did, as one HTML page that needs nothing else, and as pictures."""
