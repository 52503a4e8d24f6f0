"""stub"""
from typing import Any


def show_train_plan(config: Any, *, restart: bool, as_json: bool) -> None:
    raise NotImplementedError
