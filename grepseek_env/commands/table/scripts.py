"""sed and awk: what they do is decided by their scripts."""

from __future__ import annotations

from grepseek_env.commands.spec import Effect, Operands, ProgramSpec, Style, ValueKind
from grepseek_env.commands.table.make import NOT_OFFERED, READS, VERSION, WRITES, banned, flag, keep

__all__ = ["AWK", "SED"]

SED = ProgramSpec(
    name="sed",
    help="edits lines with a script",
    effect=Effect.SCRIPT,
    style=Style.GETOPT,
    operands=Operands.SCRIPT_FILES,
    flags=(
        flag("-n --quiet --silent", "print only what the script prints", Effect.SCRIPT),
        flag(
            "-e --expression",
            "a piece of the script; may be given several times",
            Effect.SCRIPT,
            "SCRIPT",
            kind=ValueKind.SCRIPT,
        ),
        keep("-E -r --regexp-extended", "extended syntax: + ? | ( ) without backslashes"),
        keep("-s --separate", "number the lines of each file by themselves"),
        keep("-u --unbuffered", "write each line at once"),
        flag("-l --line-length", "line width of the l command", Effect.OPAQUE, "NUM"),
        flag("-z --null-data --zero-terminated", "lines end in a zero byte"),
        keep("--sandbox", "reject commands that read, write or run (as everywhere here)"),
        *banned(READS, "-f --file="),
        *banned(WRITES, "-i --in-place[=]"),
        *banned(NOT_OFFERED, "-b --binary", "--posix", "--debug", "--follow-symlinks", "-V="),
        *banned(VERSION, "--help", "--version"),
    ),
    examples=(
        "rg -F 'Ulm' corpus.jsonl | sed 's/\\\\n/ /g' | head -n 3",
        "sed -n '5,7p' corpus.jsonl",
        "rg -F 'Ulm' corpus.jsonl | sed -E 's/.*\"contents\": //' | head -n 3",
    ),
)

AWK = ProgramSpec(
    name="awk",
    help="runs a program on the fields of each line",
    effect=Effect.SCRIPT,
    style=Style.AWK,
    operands=Operands.SCRIPT_FILES,
    flags=(
        flag("-F", "separator of fields", Effect.SCRIPT, "SEP"),
        flag("-v", "set a variable before the program starts", Effect.SCRIPT, "NAME=TEXT", kind=ValueKind.ASSIGNMENT),
        *banned(READS, "-f --file=", "-E --exec=", "-i --include=", "-l --load="),
        *banned(WRITES, "-d --dump-variables[=]", "-o --pretty-print[=]", "-p --profile[=]"),
        *banned(VERSION, "-h --help", "-V --version"),
        *banned(NOT_OFFERED, "-W="),
    ),
    examples=(
        "awk -F '\"' '{print $4}' corpus.jsonl | head -n 3",
        "awk '/Einstein/ {n++} END {print n}' corpus.jsonl",
        "rg -F 'Ulm' corpus.jsonl | awk '{print length($0)}' | sort -n | tail -n 1",
    ),
)
