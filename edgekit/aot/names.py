"""C identifiers made from a model's own names: readable, short, unique."""

from __future__ import annotations

import re
from collections.abc import Iterable

from edgekit.base.wording import unique_name

_LONGEST = 48
_KIND = re.compile(
    r"(biasadd|matmul|relu6?|add|mul|conv2d|depthwise|avgpool|maxpool|softmax)[0-9]*"
)
"""The operator's suffix of its layer's name."""
_LANGUAGE = (
    "alignas alignof and asm auto bool break case catch char class const continue default "
    "delete do double else enum explicit export extern false float for friend goto if inline "
    "int long main mutable namespace new not operator or private protected public register "
    "restrict return short signed sizeof static struct switch template this throw true try "
    "typedef typename typeof union unsigned using virtual void volatile wchar_t while xor "
    "linux unix i386 arm null eof errno assert stdin stdout stderr offsetof"
)
"""Words of C and C++, and macros of their compilers and headers."""
_MATHEMATICS = (
    "abs acos acosh asin asinh atan atan2 atanh cabs carg cbrt ceil cexp cimag clog conj copysign "
    "cos cosh cpow cproj creal csin csqrt ctan div drem erf erfc exp exp10 exp2 expm1 fabs fdim "
    "finite floor fma fmax fmin fmod frexp gamma hypot ilogb infinity isfinite isinf isnan "
    "isnormal j0 j1 jn ldexp lgamma llabs llrint llround log log10 log1p log2 logb lrint lround "
    "modf nan nearbyint nextafter nexttoward pow pow10 remainder remquo rint round scalb scalbln "
    "scalbn signbit significand signgam sin sincos sinh sqrt tan tanh tgamma trunc y0 y1 yn"
)
"""Functions that have variants for float and long double."""
_LIBRARY = (
    "abort access alarm alloca atexit atof atoi atol atoll bcmp bcopy bsearch bzero calloc "
    "clearerr clock close ctime dcgettext dgettext difftime execl execlp execle execv execve "
    "execvp exit fclose feof ferror ffs fflush fgetc fgetpos fgets fopen fork fprintf fputc "
    "fputs fread free freopen fscanf fseek fsetpos ftell fwrite getc getchar getenv gets "
    "gettext gmtime imaxabs index isalnum isalpha isascii isblank iscntrl isdigit isgraph "
    "islower isprint ispunct isspace isupper isxdigit iswalnum iswalpha iswblank iswcntrl "
    "iswdigit iswgraph iswlower iswprint iswpunct iswspace iswupper iswxdigit kill labs ldiv "
    "lldiv localeconv localtime longjmp malloc mblen mbtowc memccpy memchr memcmp memcpy "
    "memmove mempcpy memset mktime open perror pipe posix_memalign printf putc putchar puts "
    "qsort raise rand read realloc remove rename rewind rindex scanf select setbuf setjmp "
    "setlocale setvbuf signal sleep snprintf sprintf srand sscanf stat stpcpy stpncpy "
    "strcasecmp strcat strchr strcmp strcoll strcpy strcspn strdup strerror strfmon strftime "
    "strlen strncasecmp strncat strncmp strncpy strndup strpbrk strrchr strspn strstr strtod "
    "strtof strtok strtol strtold strtoll strtoul strtoull strxfrm system time tmpfile tmpnam "
    "toascii tolower toupper towlower towupper ungetc unlink va_arg va_copy va_end va_start "
    "vfprintf vfscanf vprintf vscanf vsnprintf vsprintf vsscanf wait wcstombs wctomb write"
)
"""Functions that compilers know by name or that common headers declare."""
_RESERVED = frozenset(
    (
        *_LANGUAGE.split(),
        *(f"{word}{suffix}" for word in _MATHEMATICS.split() for suffix in ("", "f", "l")),
        *_LIBRARY.split(),
    )
)


def identifier(text: str) -> str:
    """Return the letters, digits and underscores of the text, beginning with a letter."""
    plain = re.sub(r"[^0-9A-Za-z]+", "_", text).strip("_")
    if not plain or not plain[0].isalpha():
        plain = f"m_{plain}" if plain else "unnamed"
    return f"{plain}_" if plain.lower() in _RESERVED else plain


def is_identifier(text: str) -> bool:
    """Return whether names in C may begin with the text."""
    return len(text) <= _LONGEST and identifier(text) == text and text == text.strip("_")


def layer_identifier(layer: str) -> str:
    """Return the end of a layer's name: the beginning tells which part of the model it is in."""
    parts = [part for part in re.split(r"[/:.]+", _own_part(layer)) if part]
    if len(parts) > 1 and _KIND.fullmatch(parts[-1].lower()):
        parts.pop()
    if len(parts) > 1 and parts[0] in ("model", "sequential"):
        del parts[0]
    name = parts.pop() if parts else ""
    while parts and len(name) + len(parts[-1]) < _LONGEST:
        name = f"{parts.pop()}_{name}"
    return identifier(name[-_LONGEST:]).lower()


def _own_part(layer: str) -> str:
    """Return the part that says most: TFLite joins the names of all fused layers."""
    parts = [part for part in layer.split(";") if part]
    biased = [part for part in parts if part.endswith("/BiasAdd")]
    return [*biased, *parts[-1:], ""][0]


class Unique:
    """Gives each name out only once."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = set(taken)

    def name(self, wanted: str) -> str:
        return unique_name(wanted, self._taken)
