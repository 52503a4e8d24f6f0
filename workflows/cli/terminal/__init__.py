"""What all commands share: their options and help, and how they print results and progress."""
