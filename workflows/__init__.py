"""The command line and what runs whole workflows."""
