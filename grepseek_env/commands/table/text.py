"""head, tail, cat, wc, cut, uniq, tr and sort."""

from __future__ import annotations

from grepseek_env.commands.spec import Ban, Effect, Operands, ProgramSpec, Style
from grepseek_env.commands.table.make import (
    FOLLOWS,
    MEMORY,
    NOT_OFFERED,
    RANDOM,
    READS,
    RUNS,
    VERSION,
    WRITES,
    banned,
    flag,
    keep,
)

__all__ = ["CAT", "CUT", "HEAD", "SORT", "TAIL", "TR", "UNIQ", "WC"]

NUMBER = "NUM"
HELP = banned(VERSION, "--help", "--version")
DIGITS = banned(Ban("takes its number in another way", "write -n NUM"), *(f"-{digit}" for digit in "0123456789"))
ZERO = flag("-z --zero-terminated", "lines end in a zero byte")

HEAD = ProgramSpec(
    name="head",
    help="prints the first 10 lines",
    effect=Effect.HEAD,
    style=Style.GETOPT,
    operands=Operands.FILES,
    flags=(
        flag("-n --lines", "print NUM lines; with -NUM all but the last NUM", Effect.HEAD, NUMBER),
        flag("-c --bytes", "print NUM bytes; with -NUM all but the last NUM", Effect.HEAD, NUMBER),
        flag("-q --quiet --silent", "no file names between files", Effect.KEEP),
        flag("-v --verbose", "print the file name first"),
        ZERO,
        *HELP,
        *DIGITS,
        *banned(NOT_OFFERED, "---presume-input-pipe"),
    ),
    examples=(
        "head -n 3 corpus.jsonl",
        "rg -F 'Ulm' corpus.jsonl | head -n 5",
        "rg -F 'Ulm' corpus.jsonl | head -c 500",
    ),
)

TAIL = ProgramSpec(
    name="tail",
    help="prints the last 10 lines",
    effect=Effect.TAIL,
    style=Style.GETOPT,
    operands=Operands.FILES,
    flags=(
        flag("-n --lines", "print the last NUM lines; with +NUM from line NUM on", Effect.TAIL, NUMBER),
        flag("-c --bytes", "print the last NUM bytes; with +NUM from byte NUM on", Effect.TAIL, NUMBER),
        flag("-q --quiet --silent", "no file names between files", Effect.KEEP),
        flag("-v --verbose", "print the file name first"),
        ZERO,
        *HELP,
        *DIGITS,
        *banned(
            FOLLOWS,
            "-f --follow[=]",
            "-F",
            "--retry",
            "--pid=",
            "-s --sleep-interval=",
            "--max-unchanged-stats=",
            "---disable-inotify",
        ),
        *banned(NOT_OFFERED, "---presume-input-pipe", "--debug", "-b", "-l"),
    ),
    examples=("tail -n 2 corpus.jsonl", "rg -F 'Ulm' corpus.jsonl | tail -n +3 | head -n 2"),
)

CAT = ProgramSpec(
    name="cat",
    help="prints its input",
    effect=Effect.FILTER,
    style=Style.GETOPT,
    operands=Operands.FILES,
    flags=(
        flag("-n --number", "number all lines", Effect.OFFSET_LINES),
        flag("-b --number-nonblank", "number lines that are not empty"),
        flag("-s --squeeze-blank", "join runs of empty lines"),
        flag("-A --show-all", "the same as -vET", Effect.MAP),
        flag("-e", "the same as -vE", Effect.MAP),
        flag("-E --show-ends", "show $ at line ends", Effect.MAP),
        flag("-t", "the same as -vT", Effect.MAP),
        flag("-T --show-tabs", "show tabs as ^I", Effect.MAP),
        flag("-v --show-nonprinting", "show control characters", Effect.MAP),
        keep("-u", "changes nothing"),
        *HELP,
    ),
    examples=("cat corpus.jsonl | head -n 2", "rg -F 'Ulm' corpus.jsonl | cat -n | head -n 3"),
)

WC = ProgramSpec(
    name="wc",
    help="counts lines, words and bytes",
    effect=Effect.COUNT,
    style=Style.GETOPT,
    operands=Operands.FILES,
    flags=(
        flag("-l --lines", "count lines", Effect.COUNT),
        flag("-w --words", "count words", Effect.COUNT),
        flag("-c --bytes", "count bytes", Effect.COUNT),
        flag("-m --chars", "count characters", Effect.COUNT),
        flag("-L --max-line-length", "print the greatest line width"),
        *banned(READS, "--files0-from="),
        *HELP,
        *banned(NOT_OFFERED, "--debug", "--total="),
    ),
    examples=("wc -l corpus.jsonl", "rg -i 'einstein' corpus.jsonl | wc -l"),
)

CUT = ProgramSpec(
    name="cut",
    help="prints parts of each line",
    effect=Effect.MAP,
    style=Style.GETOPT,
    operands=Operands.FILES,
    flags=(
        flag("-c --characters", "print these characters, such as 1-100", Effect.MAP, "LIST", odd_bytes=True),
        flag("-b --bytes", "print these bytes", Effect.MAP, "LIST", odd_bytes=True),
        flag("-f --fields", "print these fields, such as 2,4-", Effect.MAP, "LIST"),
        flag(
            "-d --delimiter",
            "fields are separated by this character",
            Effect.MAP,
            "CHAR",
            opaque=("\n", ""),
            odd_bytes=True,
        ),
        flag("-s --only-delimited", "leave out lines without the delimiter", Effect.MAP),
        flag("--output-delimiter", "print TEXT between parts", Effect.MAP, "TEXT", opaque=("",)),
        flag("--complement", "print all other parts", Effect.MAP),
        keep("-n", "changes nothing"),
        ZERO,
        *HELP,
        *banned(NOT_OFFERED, "-w --whitespace-delimited[=]", "-F=", "-O=", "--no-partial"),
    ),
    examples=(
        "rg -F 'Ulm' corpus.jsonl | cut -c 1-200 | head -n 3",
        "rg -F 'Ulm' corpus.jsonl | cut -d '\"' -f 4 | head -n 3",
    ),
)

UNIQ = ProgramSpec(
    name="uniq",
    help="joins equal lines that follow one another",
    effect=Effect.UNIQ,
    style=Style.GETOPT,
    operands=Operands.ONE_FILE,
    flags=(
        flag("-c --count", "print how often each line came", Effect.UNIQ),
        flag("-d --repeated", "print only lines that came more than once", Effect.UNIQ),
        flag("-u --unique", "print only lines that came once", Effect.UNIQ),
        flag("-i --ignore-case", "ignore case", Effect.KEY),
        flag("-f --skip-fields", "do not compare the first NUM fields", Effect.KEY, NUMBER),
        flag("-s --skip-chars", "do not compare the first NUM characters", Effect.KEY, NUMBER),
        flag("-w --check-chars", "compare only NUM characters", Effect.KEY, NUMBER),
        flag("-D", "print all lines that came more than once"),
        flag("--all-repeated", "the same, with empty lines between: none, prepend or separate", Effect.OPAQUE, "[HOW]"),
        flag("--group", "print all lines, groups apart: separate, prepend, append or both", Effect.OPAQUE, "[HOW]"),
        ZERO,
        *HELP,
        *banned(NOT_OFFERED, *(f"-{digit}" for digit in "0123456789")),
    ),
    examples=("rg -oN '[0-9]{4}' corpus.jsonl | sort | uniq -c | sort -rn | head -n 5",),
)

TR = ProgramSpec(
    name="tr",
    help="replaces or deletes single bytes; reads only the pipe",
    effect=Effect.SCRIPT,
    style=Style.GETOPT_IN_ORDER,
    operands=Operands.SETS,
    odd_bytes=True,
    flags=(
        flag("-d --delete", "delete the bytes of SET1", Effect.SCRIPT),
        flag("-s --squeeze-repeats", "join runs of one byte", Effect.SCRIPT),
        flag("-c -C --complement", "take the bytes that are not in SET1", Effect.SCRIPT),
        flag("-t --truncate-set1", "shorten SET1 to the length of SET2", Effect.SCRIPT),
        *HELP,
        *banned(NOT_OFFERED, "-A"),
    ),
    examples=(
        "rg -F 'Ulm' corpus.jsonl | tr 'A-Z' 'a-z' | head -n 3",
        "rg -F 'Ulm' corpus.jsonl | tr -d '\"' | head -n 3",
    ),
)

SORT = ProgramSpec(
    name="sort",
    help="sorts lines",
    effect=Effect.SORT,
    style=Style.GETOPT,
    operands=Operands.FILES,
    flags=(
        flag("-n --numeric-sort", "by number", Effect.KEY),
        flag("-r --reverse", "in reverse", Effect.KEY),
        flag("-u --unique", "print equal lines once", Effect.KEY),
        flag(
            "-k --key",
            "by fields, such as 2,2 or 3n",
            Effect.KEY,
            "KEY",
            accepts="[^R]*",
            expected="a key without R, the random order,",
        ),
        flag("-t --field-separator", "fields are separated by this character", Effect.KEY, "CHAR"),
        flag("-f --ignore-case", "ignore case", Effect.KEY),
        flag("-b --ignore-leading-blanks", "ignore leading blanks", Effect.KEY),
        flag("-d --dictionary-order", "heed only blanks, letters and digits", Effect.KEY),
        flag("-i --ignore-nonprinting", "heed only printable characters", Effect.KEY),
        flag("-g --general-numeric-sort", "by floating-point number", Effect.KEY),
        flag("-h --human-numeric-sort", "by numbers such as 2K", Effect.KEY),
        flag("-M --month-sort", "by month name", Effect.KEY),
        flag("-V --version-sort", "by version number", Effect.KEY),
        flag("-s --stable", "keep the order of equal lines", Effect.KEY),
        flag(
            "--sort",
            "by general-numeric, human-numeric, month, numeric or version",
            Effect.KEY,
            "HOW",
            accepts="general-numeric|human-numeric|month|numeric|version",
            expected="general-numeric, human-numeric, month, numeric or version",
        ),
        flag("-c", "check whether the input is sorted"),
        flag("-C", "the same without a message"),
        flag("--check", "check whether the input is sorted", Effect.OPAQUE, "[HOW]"),
        flag("-m --merge", "merge sorted files"),
        ZERO,
        *banned(WRITES, "-o --output="),
        *banned(READS, "--files0-from=", "--random-source="),
        *banned(RUNS, "--compress-program="),
        *banned(RANDOM, "-R --random-sort"),
        *banned(MEMORY, "-S --buffer-size=", "-T --temporary-directory=", "--parallel=", "--batch-size=", "-y="),
        *banned(NOT_OFFERED, "--debug"),
        *HELP,
    ),
    examples=("rg -oN 'born in [0-9]{4}' corpus.jsonl | sort -u | head -n 5", "rg -c '' corpus.jsonl | sort -rn"),
)
