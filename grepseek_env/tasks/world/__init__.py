"""Generated worlds: corpora and questions from a seed, without any download."""

from grepseek_env.tasks.world.bench import BENCH_OPTIONS, BenchText, bench_corpus, generate_corpus
from grepseek_env.tasks.world.config import (
    GENERATOR_VERSION,
    PRESETS,
    QUESTION_KINDS,
    WORLD_OPTIONS,
    Preset,
    WorldConfig,
    world_config,
)
from grepseek_env.tasks.world.text import CalibratedText
from grepseek_env.tasks.world.world import World

__all__ = [
    "BENCH_OPTIONS",
    "GENERATOR_VERSION",
    "PRESETS",
    "QUESTION_KINDS",
    "WORLD_OPTIONS",
    "BenchText",
    "CalibratedText",
    "Preset",
    "World",
    "WorldConfig",
    "bench_corpus",
    "generate_corpus",
    "world_config",
]
