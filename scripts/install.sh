#!/bin/sh
# Sees that .venv holds what is needed: `install.sh run` for relevo itself, `install.sh dev` for the developer's tools too.
# A glance is enough while nothing changed; else a Python is looked for (or PYTHON taken) and scripts/install.py works.
set -eu
cd "$(dirname "$0")/.."
need=$1
PYTHON=${PYTHON:-}

identity='import sys; print(sys.base_prefix, sys.version)'
verdict='
import sys
word = "fit"
if sys.version_info < (3, 11):
    word = "old"
else:
    try:
        import ensurepip, venv
    except ImportError:
        word = "bare"
print("%s %d.%d.%d" % ((word,) + tuple(sys.version_info[:3])))'

# A stamp holds the place and the wishes it was made for (scripts/install.py writes it).
stamped() {
    [ -f ".venv/.stamp-$1" ] && [ "$(cat ".venv/.stamp-$1")" = "$(pwd -P && cat pyproject.toml constraints.txt)" ]
}

as_asked() {
    [ -z "$PYTHON" ] || [ "$("$PYTHON" -Ic "$identity" 2>/dev/null)" = "$(.venv/bin/python -Ic "$identity")" ]
}

ready() {
    { stamped dev || { [ "$need" = run ] && stamped run; }; } && [ ! -e .venv/.unfinished ] &&
        .venv/bin/python -Ic 'import pip' 2>/dev/null && as_asked
}

if ready; then exit 0; fi

if [ -n "$PYTHON" ]; then set -- "$PYTHON"; else set -- python3.14 python3.13 python3.12 python3.11 python3; fi
old='' bare=''
for candidate in "$@"; do
    # A name on PATH may still be an empty shell (pyenv's shims): only an answer counts.
    answer=$("$candidate" -c "$verdict" 2>/dev/null) || continue
    case $answer in
    fit*) exec "$candidate" scripts/install.py "$need" ;;
    old*) old="$candidate is Python ${answer#old }" ;;
    bare*) bare=${bare:-"${answer#bare } $candidate"} ;;
    esac
done

if [ -n "$bare" ]; then
    minor=${bare%% *} && minor=${minor%.*}
    echo "${bare#* } is Python ${bare%% *}, but its venv module is missing or incomplete."
    echo "Install it (Debian, Ubuntu: apt install python3-venv, or python$minor-venv), then run make again."
else
    echo "Relevo needs Python 3.11 or newer, but ${old:-no ${PYTHON:-python3} that runs was found}."
    echo "Install one (Debian, Ubuntu: apt install python3 python3-venv; Fedora: dnf install python3;"
    echo "macOS: brew install python), or name one: make PYTHON=/path/to/python3.12 …"
fi >&2
exit 1
