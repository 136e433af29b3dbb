"""SQuAD answer normalisation, the form in which answers are compared.

It is kept to the letter, since published scores depend on it: only ASCII punctuation is dropped (an en dash stays), and
accents stay. What differs from SQuAD is the one case in which its normalisation leaves nothing; see `comparable`.
"""

from __future__ import annotations

import re
import string

__all__ = ["comparable", "normalize_answer"]

_DROP_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")


def normalize_answer(text: str) -> str:
    """Returns `text` in lower case, without ASCII punctuation and a/an/the, white space collapsed."""
    bare = text.lower().translate(_DROP_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", bare).split())


def comparable(prediction: str, golden: str) -> tuple[str, str]:
    """Returns the two texts in the form in which they are compared.

    That is their normalised form, except where normalisation empties both of them: 'A' and 'The' or ')' and '---' must
    not count as the same answer, and 'A' must equal 'A', so these are compared in lower case with all their signs.
    """
    left, right = normalize_answer(prediction), normalize_answer(golden)
    if left or right:
        return left, right
    return " ".join(prediction.lower().split()), " ".join(golden.lower().split())
