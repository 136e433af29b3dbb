"""Question sets and generated worlds."""

from grepseek_env.tasks.benchmarks import BENCHMARKS, load_benchmark
from grepseek_env.tasks.qa import QuestionSet, load_questions, write_questions
from grepseek_env.tasks.registry import (
    TASKS,
    Task,
    load_question_set,
    questions_from,
    register_task,
    resolve_corpus,
    resolve_questions,
    training_questions,
)
from grepseek_env.tasks.world import World, WorldConfig, generate_corpus

__all__ = [
    "BENCHMARKS",
    "TASKS",
    "QuestionSet",
    "Task",
    "World",
    "WorldConfig",
    "generate_corpus",
    "load_benchmark",
    "load_question_set",
    "load_questions",
    "questions_from",
    "register_task",
    "resolve_corpus",
    "resolve_questions",
    "training_questions",
    "write_questions",
]
