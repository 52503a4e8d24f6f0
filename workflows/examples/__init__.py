"""Models of your own, to copy: each is one class that ``gnnloom train --model`` takes by its name."""
