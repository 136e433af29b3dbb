"""The sentences of generated passages, as data, and how one is worded.

`[a|b|c]` is a choice, nestable; ``%(name)s`` a value of the passage. In sentences that state facts the first choice is
the plainest wording. Filler sentences state nothing that a question asks for.

Every alternative must go with every other: an article stands inside the choice of its noun (or in a value made with
one, `%(a_...)s`), and where one verb serves several subjects, they are all singular or all plural.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias

from grepseek_env.tasks.world.rng import Draw, mix64

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["FACT_SENTENCES", "FILLER_SENTENCES", "INTRODUCED", "ONE_FACT", "Wording"]

# What the opening sentence of a kind states; every other relation has a sentence of its own.
INTRODUCED: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "country": ("capital",),
        "city": ("country", "river"),
        "person": ("birth", "birthplace", "occupation"),
        "company": ("headquarters", "industry"),
        "work": ("creator", "release", "genre"),
        "school": ("campus",),
    }
)

# By kind: "intro", "again" for the start of a second passage, and the relations that have a sentence of their own.
FACT_SENTENCES: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "country": {
            "intro": (
                "%(name)s[ is a country whose capital is %(capital)s|, with its capital at %(capital)s, is "
                "[%(a_landscape)s country|a sovereign state|%(a_landscape)s republic]| is [%(a_landscape)s state|a "
                "republic] governed from %(capital)s, its capital]."
            ),
            "again": (
                "[The economy of %(name)s rests on|%(name)s lives mainly from|Exports from %(name)s include] "
                "%(goods)s[|, and the balance of trade has been positive since %(late)s|, sold mainly to its "
                "neighbours]."
            ),
            "currency": (
                "[Its currency is|The currency used there is|Prices are reckoned in] the %(currency)s[|, divided "
                "into a hundred [cents|parts|pennies]|, which replaced an older silver coinage]."
            ),
            "independence": (
                "[It became independent on|Independence was declared on|It gained its independence on|Foreign rule "
                "ended on] %(independence)s[| after [long talks|a short war|a referendum]]."
            ),
            "inhabitants": (
                "[It has a population of %(inhabitants)s|%(inhabitants)s people live there|The latest census counted "
                "%(inhabitants)s inhabitants][|, most of them [along the coast|in the lowlands|in towns]]."
            ),
        },
        "city": {
            "intro": (
                "%(name)s%(aka)s [is a city in %(country)s on the river %(river)s|lies on the river %(river)s in "
                "%(country)s|is a [river port|market town|cathedral city|district capital] of %(country)s, built "
                "along the river %(river)s|is a [large|busy|quiet|prosperous] town on the %(river)s, in [the "
                "[north|south|east|west] of |]%(country)s]."
            ),
            "settled": (
                "[It was founded in|The city was founded in|It was chartered in|Settlers laid it out in] "
                "%(settled)s[| as a [fort|trading post|ferry crossing|monastery estate]]."
            ),
            "residents": (
                "[It has a population of %(residents)s|%(residents)s people live there|The last census counted "
                "%(residents)s residents]."
            ),
        },
        "person": {
            "intro": (
                "%(name)s%(aka)s[ was %(an_occupation)s born on %(birth)s in %(birthplace)s|, born on %(birth)s in "
                "%(birthplace)s, was %(an_occupation)s| [is remembered as|became known as|was by profession] "
                "%(an_occupation)s and was born in %(birthplace)s on %(birth)s| (born %(birth)s in %(birthplace)s) "
                "[was|worked as|made a name as] %(an_occupation)s]."
            ),
            "again": (
                "[The later years of %(name)s are|The career of %(name)s is|The life of %(name)s is] [well "
                "documented|described in several memoirs|known mainly from letters]."
            ),
            "employer": (
                "%(He)s [worked for|spent [%(few)s years|most of %(his)s career] with|was [for many years |]employed "
                "by|joined the staff of] %(employer)s[|, where %(he)s [headed a small office|was well liked|earned a "
                "modest salary]]."
            ),
            "school": (
                "%(He)s [studied at|was educated at|attended|received a degree from] %(school)s[| and [left with "
                "honours|later gave lectures there|kept in touch with it all %(his)s life]]."
            ),
            "spouse": (
                "%(He)s [was married to|married|wed|shared %(his)s life with %(his)s spouse] %(spouse)s[|, and they "
                "had %(few)s children|, whom %(he)s had met [on a train|at a concert|through friends]]."
            ),
        },
        "company": {
            "intro": (
                "%(name)s%(aka)s[ is a company in the %(industry)s industry, headquartered in %(headquarters)s|, "
                "based in %(headquarters)s, is [a|an established] firm in the %(industry)s industry| [has its head "
                "office in|is run from] %(headquarters)s and belongs to the %(industry)s industry]."
            ),
            "again": (
                "[The fortunes of|Sales at|The order books of] %(name)s [have followed the general course of "
                "business|recovered after %(late)s|were described in the press as steady]."
            ),
            "founder": (
                "It was [founded|set up|established|started][| [with borrowed money|in a rented workshop|almost by "
                "accident]] by %(founder)s."
            ),
            "founded": (
                "[It was founded on|The founding date is|The papers were signed on|It opened for business on] "
                "%(founded)s."
            ),
            "employees": "[It has|It employs|The payroll lists|Its staff numbers] %(employees)s [employees|people].",
        },
        "work": {
            "intro": (
                "%(name)s is %(a_genre)s %(form)s [%(made)s by %(creator)s and released on %(release)s|by "
                "%(creator)s, released on %(release)s|that came out on %(release)s; it was %(made)s by %(creator)s]."
            ),
            "again": (
                "[Critics have returned to|Readers of the period knew|Few other titles were discussed as much as] "
                "%(name)s[| [more than once|for several seasons|since the war]]."
            ),
            "publisher": (
                "It was %(issued)s by %(publisher)s[|, [in a modest edition|after two refusals|against the advice of "
                "friends]]."
            ),
            "length": (
                "[It is %(length)s %(unit)s long|The whole runs to %(length)s %(unit)s|With its %(length)s %(unit)s "
                "it is [longer|shorter] than most]."
            ),
        },
        "school": {
            "intro": (
                "%(name)s is [a school in %(campus)s|located in %(campus)s|[an institution|a place] of higher "
                "learning in %(campus)s|an old foundation in the city of %(campus)s]."
            ),
            "opened": "It was [founded|opened|chartered|endowed] in %(opened)s.",
            "students": (
                "[It has|It teaches|The register lists|Some years ago it admitted a total of] %(students)s students."
            ),
        },
    }
)

FILLER_SENTENCES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "country": (
            (
                "The [interior|north|south|coast] is [mostly|largely|for the greater part] "
                "[forest|pasture|upland|marsh], and the [summers|winters|springs] are [mild|long|dry|wet]."
            ),
            (
                "[Railways|Canals|Roads|Ferries] [were extended|came|reached the interior] [in the "
                "%(decade)ss|late|only after a long dispute], which [changed|did little for] the "
                "[villages|markets|old towns]."
            ),
            (
                "[Schooling|Military service|Voting] is [compulsory|general|a matter of custom], and "
                "[newspapers|theatres|choirs] are [numerous|well supported|found everywhere]."
            ),
            (
                "Its [dialects|songs|laws|harvest feasts] have [interested|puzzled|delighted] "
                "[scholars|travellers|neighbours] [for generations|since the %(decade)ss|without pause]."
            ),
            (
                "[Mining|Fishing|Forestry|Dairy farming] [declined|grew|was reorganised] [after|before|around] "
                "%(late)s, [and many families moved|so that new ports were dug|which the government welcomed]."
            ),
        ),
        "city": (
            (
                "The [old centre|market square|upper town|harbour district] was [rebuilt|cleared|restored|paved] "
                "[after a fire|in the %(decade)ss|by order of the council|with public money]."
            ),
            (
                "[Visitors|Pilgrims|Merchants|Students] come for the [fair|baths|library|regatta|organ concerts] "
                "[every [spring|autumn|summer]|in great numbers|from far away]."
            ),
            (
                "[A tram line|A botanical garden|A covered market|An observatory|A swing bridge] [was opened|was "
                "planned|was closed] [in %(late)s|some decades ago|against much opposition]."
            ),
            (
                "Its [football club|brass band|chess society|rowing club] [won|lost|was barred from] the "
                "[regional|junior|summer] [championship|cup|contest] [%(few)s times|in %(late)s|more than once]."
            ),
            (
                "[Textiles|Bottles|Paper goods|Clocks|Leather goods] [were made here|gave work to most families|left "
                "by barge] [until|from|before] %(late)s, [when|after which] [the mills closed|prices fell|the trade "
                "moved away]."
            ),
            (
                "The [bishop|mayor|guild of weavers|garrison] [once|for a time|according to legend] "
                "[owned|taxed|guarded] the [mills|bridges|vineyards|city gates]."
            ),
        ),
        "person": (
            (
                "%(He)s [was|grew up as] the [eldest|youngest|second|last] of %(few)s [children|brothers and "
                "sisters], and [money was short|the house was full of books|music was made every evening]."
            ),
            (
                "[Friends|Colleagues|Neighbours|Critics] [described|remembered|praised|mocked] %(him)s as "
                "[patient|stubborn|a good listener|a gifted talker|shy] and [generous|careful with money|fond of "
                "long walks|easily bored]."
            ),
            (
                "[In %(late)s|During the %(decade)ss|For %(few)s years|In middle age] %(he)s [travelled|lived "
                "abroad|kept a diary|was ill|gave public lectures], [which|and this] [shaped %(his)s later "
                "work|left few traces|made %(him)s widely known]."
            ),
            (
                "%(His)s [letters|notebooks|papers|drawings] are [kept|held|catalogued] in [a private collection|the "
                "national library|two archives], [where they are seldom read|and a selection was printed in "
                "%(late)s]."
            ),
            (
                "%(He)s [collected|drew|photographed|wrote about] [beetles|stamps|roses|clocks|pigeons|old maps] and "
                "[played|taught|never gave up] [the cello|chess|the piano|tennis|fencing]."
            ),
            (
                "A [medal|prize|pension|street sign|plaque] [was given in %(his)s honour|followed in %(late)s|came "
                "late], and [the press took note|few people attended|%(he)s declined to speak]."
            ),
            (
                "%(His)s [first|second|best known] [essay|paper|lecture|project] was [refused|received coolly|widely "
                "read|translated] [at the time|in the %(decade)ss|by younger colleagues]."
            ),
        ),
        "company": (
            (
                "[Profits|Sales|Exports|Orders] [rose|fell|doubled|stagnated] [during the %(decade)ss|after "
                "%(late)s|for %(few)s years], and [new machines were bought|the board was replaced|two branches were "
                "closed]."
            ),
            (
                "[A strike|A fire|A flood|A lawsuit] [stopped work|cost a fortune|made headlines] in %(late)s, "
                "[but|and] the [owners|workers|insurers] [found|refused|proposed] [a settlement|new terms|a way out]."
            ),
            (
                "Its [catalogues|adverts|delivery vans|uniforms] were [green|striped|famous|printed in %(few)s "
                "languages] and [are collected today|appear in films|were copied by rivals]."
            ),
            (
                "[Apprentices|Clerks|Engineers|Drivers] [were trained|lived|ate] [on the premises|in company "
                "houses|at its expense], [a custom that lasted until %(late)s|a scheme that ended before "
                "%(late)s|which was unusual then]."
            ),
            (
                "[Shares|Bonds|Licences] were [sold|offered|issued] [%(few)s times|in %(late)s|at a discount], "
                "[mostly|partly|never] to [local savers|foreign banks|its own staff]."
            ),
        ),
        "work": (
            (
                "The [plot|story|subject] [concerns|follows|turns on] [a lost inheritance|two sisters|a failed "
                "harvest|a night journey|an unsigned letter], and [ends abruptly|the ending is open|little is "
                "explained]."
            ),
            (
                "[Reviewers|Audiences|Censors] [praised|disliked|barely noticed] the [dialogue|pace|last "
                "part|opening], [while|though] the [jokes|songs|landscapes] [were admired|divided opinion|went "
                "unnoticed]."
            ),
            (
                "[A revised version|A sequel|A stage adaptation|A translation] [followed|was planned|failed] in "
                "%(late)s, [with [new scenes|another ending|fewer characters]|without the consent of its maker]."
            ),
            (
                "The [manuscript|first copy|original cover] was [lost|auctioned|found again] [in the %(decade)ss|in "
                "a cellar|by a dealer] and [is now on show|has not been seen since|fetched a record price]."
            ),
            (
                "It [won|was shortlisted for|narrowly missed] a [national|regional|juried] [prize|award|medal], [the "
                "first|one of %(few)s|the last] of its kind."
            ),
        ),
        "school": (
            (
                "Its [library|chapel|laboratory|sports ground] [was rebuilt|was enlarged|burned down] [in "
                "%(late)s|during the %(decade)ss|after a bequest]."
            ),
            (
                "[Law|Medicine|Botany|Music|Engineering] [is|has long been|was once] the [strongest|largest|oldest] "
                "[faculty|subject|department], [and fees are low|and evening courses are offered|though places are "
                "few]."
            ),
            (
                "The [rowing|debating|chess|fencing] [team|club] [wears|is known for] [green|dark blue|striped] "
                "[jackets|scarves] and [wins|has won] [%(few)s|several|most] [cups|matches] a year."
            ),
            (
                "[Women|Evening students|Foreign students] were [admitted|first taught|given full rights] [in "
                "%(late)s|in the %(decade)ss|earlier than elsewhere]."
            ),
        ),
    }
)

ONE_FACT: Mapping[str, str] = MappingProxyType(
    {
        "birthplace": "%(s)s [was born in|comes from|is a native of] %(o)s.",
        "employer": "%(s)s [works for|is employed by|has a job at] %(o)s.",
        "country": "%(s)s [is located in|is a city of|lies in] %(o)s.",
        "headquarters": "%(s)s [is headquartered in|is based in|has its seat in] %(o)s.",
        "founder": "%(s)s [was founded by|was set up by|was started by] %(o)s.",
    }
)

_Node: TypeAlias = "str | tuple[_Node, ...] | list[_Node]"
_WORDINGS = 1024


def _parse(text: str) -> _Node:
    """Returns a sequence (tuple) of literals and choices (lists)."""
    stack: list[list[list[_Node]]] = [[[]]]
    start = 0
    for place, letter in enumerate(text):
        if letter not in "[|]" or (letter == "|" and len(stack) == 1):
            continue
        if start < place:
            stack[-1][-1].append(text[start:place])
        start = place + 1
        match letter:
            case "[":
                stack.append([[]])
            case "|":
                stack[-1].append([])
            case _:
                choice: list[_Node] = [tuple(option) for option in stack.pop()]
                stack[-1][-1].append(choice)
    if start < len(text):
        stack[-1][-1].append(text[start:])
    return tuple(stack[0][0])


class Wording:
    """Words sentences from templates; each has up to 1,024 wordings, expanded when first used.

    Args:
        key: 64-bit key; other keys number the wordings otherwise.
        variety: how often a choice is open, from 0 (always the first) to 1 (all alike).
    """

    def __init__(self, key: int, variety: float) -> None:
        self._key = key
        self._variety = variety
        self._parsed: dict[str, _Node] = {}
        self._worded: dict[tuple[str, int], str] = {}

    def __call__(self, template: str, number: int) -> str:
        """Returns the wording that goes with a random number, placeholders still in it."""
        number &= _WORDINGS - 1
        text = self._worded.get((template, number))
        if text is None:
            if template not in self._parsed:
                self._parsed[template] = _parse(template)
            pieces: list[str] = []
            self._expand(self._parsed[template], Draw(mix64(self._key ^ number)), pieces)
            text = self._worded[template, number] = "".join(pieces)
        return text

    def _expand(self, node: _Node, draw: Draw, pieces: list[str]) -> None:
        match node:
            case str():
                pieces.append(node)
            case list():
                choice = draw.below(len(node)) if self._variety >= 1 or draw.chance(self._variety) else 0
                self._expand(node[choice], draw, pieces)
            case _:
                for part in node:
                    self._expand(part, draw, pieces)
