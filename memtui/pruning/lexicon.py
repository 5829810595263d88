"""The few words that likeness has to know: those that say nothing, negate, or count."""

from __future__ import annotations


def _split(words: str) -> frozenset[str]:
    return frozenset(words.split())


FILLERS = frozenset({"a", "an", "the", "really", "very", "quite", "also", "currently"})
"""Words whose absence changes nothing."""

SPEAKERS = frozenset({"user", "users"})
"""Subjects that a fact about the user need not name: "User prefers tea" is "Prefers tea"."""

NEGATIONS = _split(
    "not no never none nothing nobody neither nor without cannot except unless only avoid "
    "avoids stop stops stopped quit instead rather than over "
    "dont doesnt didnt isnt arent wasnt werent cant couldnt wont wouldnt shouldnt mustnt hasnt "
    "havent hadnt "
    "не нет ни никогда без нельзя кроме только ні ніколи "
    "nicht kein keine keinen nie niemals ohne nur "
    "ne pas jamais sans aucun aucune non seulement "
    "nunca jamás sin nada ningún ninguna solo sólo não nem sem senza mai "
    "nigdy bez niet geen nooit değil "
    "不 没 沒 無 无 非 未 别 勿 莫 只 لا ليس नहीं 않 안 못"
)
"""Words that turn round or limit what follows them; moved, they change the meaning."""

NUMBER_WORDS = _split(
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety "
    "hundred thousand million billion first second third fourth fifth sixth seventh eighth ninth "
    "tenth once twice thrice half quarter dozen "
    "ноль один одна одно два две три четыре пять шесть семь восемь девять десять сто тысяча "
    "一 二 三 四 五 六 七 八 九 十 百 千 万 两"
)
"""Numbers written as words, in the languages that need a list of them most."""
