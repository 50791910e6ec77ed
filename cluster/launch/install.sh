#!/usr/bin/env bash
# Run on every node by the setup_commands of local.yaml, aws.yaml and gcp.yaml: installs the project from the wheel that
# file_mounts brought, into an environment of its own, and lets `ray` and `python` be those of this environment.
#   install.sh [PACKAGE...]     packages to install beside it (a cloud's client library, for the autoscaler on the head)
set -euo pipefail
cd "$HOME/sortition-testbed"

# A shell that Ray opens reads ~/.bashrc: one line there, the rest in a file of our own.
cat > environment <<'ENVIRONMENT'
export PATH="$HOME/sortition-testbed/venv/bin:$PATH"
export PYTHONPATH="$HOME/sortition-testbed${PYTHONPATH:+:$PYTHONPATH}"   # user-defined classes, beside the experiments
export RAY_AUTH_MODE=token                                               # the token is in ~/.ray/auth_token
ENVIRONMENT
touch "$HOME/.bashrc"
grep -qF sortition-testbed/environment "$HOME/.bashrc" ||
    printf '%s\n' '. "$HOME/sortition-testbed/environment"' >> "$HOME/.bashrc"
chmod 600 "$HOME/.ray/auth_token"

shopt -s nullglob
wheels=(dist/sortition_testbed-*.whl)
if [ "${#wheels[@]}" -ne 1 ]; then
    echo "sortition-testbed/dist holds ${#wheels[@]} wheels of the testbed, not one: run \`make wheel\`, then \`ray up\` again" >&2
    exit 1
fi
PYTHON="${PYTHON:-python3}"
"$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: install it, and name it in the setup command: PYTHON=python3.12 bash ...")'
[ -x venv/bin/python ] || "$PYTHON" -m venv venv
pip=(venv/bin/python -m pip --disable-pip-version-check install --quiet)
"${pip[@]}" --constraint constraints.txt "${wheels[0]}[all]" "$@"
"${pip[@]}" --force-reinstall --no-deps "${wheels[0]}"   # pip would keep an older build of the same version
venv/bin/testbed --version
