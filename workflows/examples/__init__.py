"""Programs to copy: models, each a class whose name ``gnnloom train --model`` takes, and your own training loops."""
