"""Character classes in patterns, as sets of 128 bits: one for each ASCII character."""

import unicodedata
from collections.abc import Mapping
from typing import Final

ASCII_SIZE: Final = 128
ALL: Final = (1 << ASCII_SIZE) - 1


def chars_of(text: str) -> int:
    return sum(1 << ord(char) for char in set(text))


def char_range(low: int, high: int) -> int:
    """All ASCII characters from `low` to `high`, inclusive."""
    high = min(high, ASCII_SIZE - 1)
    return (1 << high + 1) - (1 << low) if low <= high else 0


LOWER: Final = char_range(ord("a"), ord("z"))
UPPER: Final = char_range(ord("A"), ord("Z"))
DIGIT: Final = char_range(ord("0"), ord("9"))
WORD: Final = LOWER | UPPER | DIGIT | chars_of("_")
SPACE: Final = chars_of("\t\n\f\r ")
NEWLINE: Final = chars_of("\n")
CASE_DISTANCE: Final = ord("a") - ord("A")
FOLDED_INTO_ASCII: Final[Mapping[int, int]] = {0x17F: chars_of("sS"), 0x212A: chars_of("kK")}
"""The long s and the Kelvin sign: case-insensitively they are s and k."""

PERL_CLASSES: Final[Mapping[str, int]] = {
    "d": DIGIT,
    "D": ALL & ~DIGIT,
    "s": SPACE,
    "S": ALL & ~SPACE,
    "w": WORD,
    "W": ALL & ~WORD,
}
POSIX_CLASSES: Final[Mapping[str, int]] = {
    "alnum": LOWER | UPPER | DIGIT,
    "alpha": LOWER | UPPER,
    "ascii": ALL,
    "blank": chars_of("\t "),
    "cntrl": char_range(0, 0x1F) | 1 << 0x7F,
    "digit": DIGIT,
    "graph": char_range(0x21, 0x7E),
    "lower": LOWER,
    "print": char_range(0x20, 0x7E),
    "punct": char_range(0x21, 0x2F) | char_range(0x3A, 0x40) | char_range(0x5B, 0x60) | char_range(0x7B, 0x7E),
    "space": SPACE | chars_of("\v"),
    "upper": UPPER,
    "word": WORD,
    "xdigit": DIGIT | char_range(ord("a"), ord("f")) | char_range(ord("A"), ord("F")),
}
CATEGORIES: Final = (
    "C Cc Cf Co Cs L Ll Lm Lo Lt Lu M Mc Me Mn N Nd Nl No P Pc Pd Pe Pf Pi Po Ps S Sc Sk Sm So Z Zl Zp Zs"
)
SCRIPTS: Final = (
    "Arabic Armenian Avestan Balinese Bamum Batak Bengali Bopomofo Brahmi Braille Buginese Buhid Canadian_Aboriginal "
    "Carian Cham Cherokee Common Coptic Cuneiform Cypriot Cyrillic Deseret Devanagari Egyptian_Hieroglyphs Ethiopic "
    "Georgian Glagolitic Gothic Greek Gujarati Gurmukhi Han Hangul Hanunoo Hebrew Hiragana Imperial_Aramaic Inherited "
    "Inscriptional_Pahlavi Inscriptional_Parthian Javanese Kaithi Kannada Katakana Kayah_Li Kharoshthi Khmer Lao Latin "
    "Lepcha Limbu Linear_B Lisu Lycian Lydian Malayalam Mandaic Meetei_Mayek Mongolian Myanmar New_Tai_Lue Nko Ogham "
    "Ol_Chiki Old_Italic Old_Persian Old_South_Arabian Old_Turkic Oriya Osmanya Phags_Pa Phoenician Rejang Runic "
    "Samaritan Saurashtra Shavian Sinhala Sundanese Syloti_Nagri Syriac Tagalog Tagbanwa Tai_Le Tai_Tham Tai_Viet "
    "Tamil Telugu Thaana Thai Tibetan Tifinagh Ugaritic Unknown Vai Yi"
)
"""The names in RE2/J 1.8; two of the scripts have ASCII characters."""


def unicode_class(name: str) -> int | None:
    """The ASCII part of a Unicode class, by its name; None if there is no such class."""
    if name == "Any":
        return ALL
    if name in CATEGORIES.split():
        return sum(1 << code for code in range(ASCII_SIZE) if unicodedata.category(chr(code)).startswith(name))
    if name not in SCRIPTS.split():
        return None
    letters = LOWER | UPPER
    return {"Latin": letters, "Common": ALL & ~letters}.get(name, 0)


def folded(chars: int) -> int:
    """The class with the other case of each character added."""
    return chars | (chars & UPPER) << CASE_DISTANCE | (chars & LOWER) >> CASE_DISTANCE


def contains(chars: int, char: str) -> bool:
    """Whether the class has this ASCII character."""
    return chars >> ord(char) & 1 == 1
