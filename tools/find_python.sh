#!/usr/bin/env bash
# Print the path of a Python that can make the virtual environment, or say what is missing.
#
# tools/find_python.sh           the first of 3.11, 3.12 and 3.13
# tools/find_python.sh PROGRAM   this one, if it is one of them
# tools/find_python.sh 3.12      this version
#
# A Python is there if it runs: a shim of pyenv has the name of each version that pyenv holds, and
# fails for those that are not chosen.
set -euo pipefail

versions=(3.11 3.12 3.13)

# Print the path of the program $1, if it is a Python of the version $2 (of any of them without);
# else leave the cause in `why`.
path_of() {
  local found
  found=$("$1" -c 'import sys; print("%d.%d" % sys.version_info[:2], sys.executable)' 2>/dev/null) ||
    found='no Python that runs'
  if [[ " ${2-${versions[*]}} " != *" ${found%% *} "* ]]; then
    why="'$1' is ${found%% /*}"
  elif ! "$1" -c 'import ensurepip, venv' >/dev/null 2>&1; then
    why="'$1' cannot make virtual environments: install its venv package (Debian 12: apt-get install python3.11-venv)"
  else
    echo "${found#* }"
    exit
  fi
}

why=
case ${1-} in
  '' | 3.*)
    for version in ${1:-${versions[@]}}; do
      command -v "python$version" >/dev/null && path_of "python$version" "$version"
      for held in $(pyenv versions --bare 2>/dev/null | grep "^${version//./\\.}\.[0-9]*$" || true); do
        export PYENV_VERSION=$held
        path_of "python$version" "$version"
        unset PYENV_VERSION
      done
    done
    text="Seedbed needs Python ${1:-3.11, 3.12 or 3.13}, and there is none here${why:+: $why}. Install one"
    [[ -n ${1-} ]] || text+=" (Debian 12: apt-get install python3.11 python3.11-venv)"
    ;;
  *)
    if command -v "$1" >/dev/null; then path_of "$1"; else why="there is no '$1' here"; fi
    text="Seedbed needs Python 3.11, 3.12 or 3.13, and $why"
    ;;
esac
echo "$text, or name another one: make PYTHON=/path/to/python3 ..." >&2
exit 1
