"""Starting and ending a job: launching ranks, parsing their arguments, signals and exit codes."""
