"""The pictures of reports: what they show, and their style."""
