#!/usr/bin/env bash
# The one entry: ./spark-submit.sh [Spark's options] JOB [options]. A wheel starts it as the command `groupledger`.
#
# It finds a Python for bootstrap.py, which makes what is missing (set_up.py) and starts the job.
set -euo pipefail

path=${BASH_SOURCE[0]}
while [[ -L $path ]]; do
    folder=$(cd -P -- "$(dirname -- "$path")" && pwd)
    path=$(readlink -- "$path")
    [[ $path == /* ]] || path=$folder/$path
done
root=$(cd -P -- "$(dirname -- "$path")" && pwd)

# bootstrap.py needs the standard library alone: neither packages (-S) nor variables of a user's Python (-I) change it
for python in "$root/.venv/bin/python" "${GROUPLEDGER_PYTHON:-}" python3.11 python3.12 python3.13 python3 python; do
    if "$python" -I -S -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
        exec "$python" -I -S "$root/bootstrap.py" "$@"
    fi
done
# the user's shell asks what may follow a word: where nothing is set up, it gets no answer
[[ -z ${_GROUPLEDGER_COMPLETE:-} ]] || exit 1
echo "error: no Python 3.11, 3.12 or 3.13 with venv: install one (Debian, Ubuntu: apt install python3.11-venv; macOS: brew install python@3.11), or name it in GROUPLEDGER_PYTHON" >&2
exit 2
