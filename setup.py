"""Compiles the kernels' sources at the same time, one on each core; pyproject.toml has everything else."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from setuptools import setup
from setuptools.command.build_ext import build_ext


class ParallelBuild(build_ext):
    """setuptools compiles several extensions at a time, but the sources of each one after the other."""

    def build_extensions(self) -> None:
        compiled = self.compiler.compile

        def compile_all(sources: list[str], **options: Any) -> list[str]:
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                objects = pool.map(lambda source: compiled([source], **options), sources)
                return [name for found in objects for name in found]

        self.compiler.compile = compile_all
        super().build_extensions()


setup(cmdclass={"build_ext": ParallelBuild})
