"""Closed word lists of the language rules; domain words of a team do not belong here."""

from __future__ import annotations

from typing import Final


def to_word_set(text: str) -> frozenset[str]:
    """Return the words of `text` as a set."""
    return frozenset(text.split())


GENERIC_REQUEST_VERBS: Final = to_word_set(
    "arrange check compare find get give go help include list like look love make need organise "
    "organize plan prefer prepare recommend search see send show suggest take tell try want wants"
)

REQUEST_VERBS: Final = GENERIC_REQUEST_VERBS | to_word_set(
    "book buy drink eat enjoy explain explore fly order read rent reserve sleep stay summarise "
    "summarize travel visit write"
)

QUESTION_OPENERS: Final = to_word_set(
    "what which who whom whose where when why how is are was were do does did has have"
)
"""Words that open a question, which is no request to act."""

CONNECTIVES: Final = to_word_set(
    "but however so instead then though although because since while whereas plus"
)

AND_CLAUSE_OPENERS: Final = REQUEST_VERBS | to_word_set(
    "i we you they he she it please lets what where which how "
    "am is are can could would will should do does did"
)
"""Words before which an "and" or "or" begins a new clause."""

TASK_VERBS: Final = REQUEST_VERBS | to_word_set(
    "add analyse analyze approve assemble assign attach bake boil bring build calculate choose "
    "clean close collect come compile compute configure convert copy create cut debug decorate "
    "delete deliver deploy describe determine download draw edit estimate evaluate export extract "
    "feed fetch fill fix forward generate identify import improve inform install invent "
    "investigate invite learn mend merge mow notify paint pay peel pick prove publish refactor "
    "register reject remove rename repair replace rewrite sell sew sing solve sort stop submit sum "
    "teach test throw tidy translate try uninstall update upgrade upload validate verify wait wash "
    "weld"
)

VERBS_BEFORE_AND: Final = to_word_set("come copy cut find go pick search try")
"""Verbs that often share their object with the next one: "in the file, find and replace …"."""

OBJECT_OPENERS: Final = to_word_set(
    "a an the my your our his their these those me us him them it some"
)

BEFORE_BARE_VERB: Final = to_word_set(
    "to please lets can could will would must should may might i we you they and or"
)
"""Words between which and an "and" stands a verb without an object: "can you search and …"."""

NO_REQUEST_BEFORE: Final = to_word_set(
    "have has had ive weve already dont doesnt didnt wont wouldnt not never how"
)
"""Words of a statement or a refusal, whose second verb requests nothing either."""

NON_VERB_ENDINGS: Final = ("s", "ed", "ly")
"""Endings of words that are no requests: "flights", "baked", "possibly"."""

NON_VERBS: Final = to_word_set(
    "maybe perhaps later afterwards finally tomorrow today tonight yesterday next once twice even "
    "half double quite rather near around beside behind inside outside opposite across along "
    "toward towards within despite instead bought got went made took sent found gave wrote built "
    "sold ate drank saw had left lost kept read became began taught"
)
"""Words that stand between "and" and "a" or "the" without being a request."""

TIME_ADJECTIVES: Final = to_word_set("next whole same following other last first")

FILLERS: Final = to_word_set("also then now please just only still")
AFTER_SUBJECT: Final = to_word_set("have has had not is are was were i we they")
"""Words before a "just" that belongs to a verb: "we have just booked"."""

NEGATORS: Final = to_word_set(
    "no without except excluding exclude excludes skip omit ignore neither nor minus avoid hate "
    "dislike neednt"
)

NEGATING_PAIRS: Final = to_word_set(
    "instead-of rather-than apart-from aside-from other-than leave-out nothing-about anything-but "
    "not-interested not-looking forget-about forget-the never-mind not-need not-want"
)

DENIALS: Final = to_word_set("dont doesnt didnt wont wouldnt not")
REFUSABLE_VERBS: Final = to_word_set(
    "need want require like care wish bother include book show suggest recommend add search "
    "look give plan worry eat drink"
)
ADVERBS: Final = to_word_set(
    "really even actually currently particularly already now just also all"
)
VERBS_NEVER_REFUSED: Final = to_word_set("miss forget skip avoid lose mind")
"""Verbs whose negation requests the thing: "we don't want to miss the opera"."""

HARMLESS_AFTER_NO: Final = to_word_set(
    "idea ideas problem problems matter doubt rush preference preferences one later earlier less "
    "fewer i we you it they please thanks thank more fail delay"
)
"""Words after "no" or "without" that refuse nothing: "no problem", "no later"."""

REFUSED_AFTER_NO: Final = to_word_set("need interest use")
"""Words after "no" that refuse what follows them: "no need for a hotel"."""

HARMLESS_AFTER_NOT: Final = to_word_set(
    "only just sure yet too far very so that more less later earlier least necessarily "
    "expensive cheap a an until before after"
)
REFUSING_BEFORE_NOT: Final = to_word_set("but and or please definitely absolutely certainly")
POSSESSION_WORDS: Final = to_word_set("have has had got is are there theres")
REFUSAL_ENDS: Final = to_word_set("with including includes include that which")
"""Words that end a refusal: "no hotels, with museums"."""

CONDITION_WORDS: Final = to_word_set(
    "can could should may might will would shall do does did if when where what how which "
    "whether unless until once"
)
"""Words before "we have" that make it a question or a condition."""

SETTLED_PARTICIPLES: Final = to_word_set(
    "booked reserved bought arranged sorted got paid organised organized settled secured covered "
    "handled fixed"
)
SETTLED_STATES: Final = SETTLED_PARTICIPLES | to_word_set("done taken ready set")
FORMS_OF_BE: Final = to_word_set("is are was were been be")
OPINION_WORDS: Final = to_word_set(
    "know love like want decided agreed told asked said excited think"
)
CIRCUMSTANCE_NOUNS: Final = to_word_set(
    "to no not never been any day days week weeks weekend hour hours night nights afternoon "
    "evening morning time month months year years euro euros dollar dollars pound pounds budget "
    "kid kids child children people friend friends free question questions idea ideas interest "
    "interests craving passion taste wish dream plan plans mind chance request appetite"
)
"""Words after "we have" that are circumstances, not things already obtained."""
PRONOUNS: Final = to_word_set("i we they he she who")
STATEMENT_OPENERS: Final = PRONOUNS | to_word_set("with")

SHOW_OBJECTS: Final = to_word_set(
    "me us him her them what which where how all the some any available"
)
"""Words after "show" that make it the verb and not a performance."""

NAME_PARTICLES: Final = to_word_set(
    "de del della dell di da do dos das la le les of the van der upon sur am"
)
"""Small words inside a name: "Rio de Janeiro", "Isle of Man"."""

SENTENCE_OPENERS: Final = to_word_set(
    "hello hi hey dear thanks thank ok okay yes yeah sure good great maybe perhaps anything "
    "everything something someone things tips ideas cheap best nice tomorrow today"
)
"""Words that are capitalised at the start of a sentence without being names."""

NON_PLACE_WORDS: Final = to_word_set(
    "general total advance particular order case time addition fact future past mind detail "
    "details english italian french german spanish euro euros dollar dollars person people budget "
    "morning afternoon evening night day days week weeks month months year years weekend spring "
    "summer autumn winter dinner lunch breakfast bed home work sleep date trip journey travel "
    "ticket tickets transfer route way return town two three four five six seven eight nine ten"
)
"""Words that follow "in", "to" or "from", or are capitalised, and are no places."""

MORE_VERBS: Final = to_word_set(
    "be become begin bring call celebrate change choose come cook discover do experience hear hire "
    "join know learn leave live meet move pay play relax return ride run say share shop sit spend "
    "start stop swim talk taste think use wait walk watch work answer ask attend cancel continue"
)
"""More verbs that may follow "to", where a place could also stand."""

NON_NAME_ENDINGS: Final = ("ed", "ing", "ly", "est", "able", "ful", "ous", "ive")
"""Endings of words that begin a sentence without being names."""
