#!/usr/bin/env bash
# Install the systems that `seedbed bench peers` measures, each into a virtual environment of its own
# in the folder of $1: about 10 GB. Further arguments name some of them: sample-factory rllib reverb.
set -euo pipefail

if [[ $# -lt 1 ]]; then
  echo "usage: tools/peers/install.sh FOLDER [sample-factory] [rllib] [reverb]" >&2
  exit 2
fi
folder=$1
shift
wanted=("${@:-}")
[[ -n ${wanted[0]} ]] || wanted=(sample-factory rllib reverb)
mkdir -p "$folder"

make_venv() { # NAME PACKAGE...: torch first, so that all take the same one
  python3.11 -m venv "$folder/$1"
  for packages in "${@:2}"; do
    # shellcheck disable=SC2086  # several packages of one step
    "$folder/$1/bin/pip" --quiet --no-input install --no-cache-dir $packages
  done
}

for name in "${wanted[@]}"; do
  case $name in
    sample-factory) make_venv "$name" torch==2.13.0 "sample-factory==2.1.1 ale-py==0.12.1" ;;
    rllib) make_venv "$name" torch==2.13.0 "ray[rllib]==2.60.0 ale-py==0.12.1 gymnasium opencv-python-headless" ;;
    reverb) make_venv "$name" "dm-reverb==0.14.0 tensorflow-cpu==2.14.1 numpy<2" ;;
    *)
      echo "tools/peers/install.sh: no system $name: sample-factory, rllib or reverb" >&2
      exit 2
      ;;
  esac
done
