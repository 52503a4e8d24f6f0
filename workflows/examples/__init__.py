"""Programs to copy: models, each one class that ``gnnloom train --model`` takes by its name, and loops of your own."""
