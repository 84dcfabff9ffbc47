#!/bin/sh
# What a Ray job of a study runs: `sh study/submission/on_cluster.sh [--python PYTHON] ARGUMENTS of study.run`.
# Ray may have been started from an environment that is not active, where `python` on PATH is none or another one:
# the interpreter that runs Ray is named in the command line of the raylet, an ancestor of this process.

of_ray() {
    pid=$$
    while [ "${pid:-0}" -gt 1 ]; do
        found=$(tr '\0' '\n' < "/proc/$pid/cmdline" 2> /dev/null | sed -n \
            -e 's/^--python_worker_command="\([^"]*\)".*/\1/p' -e 's/^--python_worker_command=\([^" ][^ ]*\).*/\1/p')
        [ -n "$found" ] && { printf '%s\n' "$found"; return; }
        pid=$(sed -n 's/^PPid:[[:space:]]*//p' "/proc/$pid/status" 2> /dev/null)
    done
    command -v python3 || command -v python
}

refuse() {
    printf 'error: %s\n' "$1" >&2
    exit 2
}

if [ "$1" = --python ]; then
    python=$2
    shift 2
    command -v "$python" > /dev/null || refuse "--python $python: there is no such interpreter on $(uname -n)"
else
    python=$(of_ray) || refuse "no Python interpreter was found on $(uname -n); name the one of the cluster with --python"
fi

missing=$("$python" - << 'END'
from importlib.util import find_spec

packages = "ray", "torch", "transformers", "optuna", "mlflow", "pydantic", "datasets", "bm25s", "rich"
print(", ".join(package for package in packages if find_spec(package) is None))
END
) || refuse "$python on $(uname -n) cannot be run; name another interpreter with --python"
[ -z "$missing" ] || refuse "$python on $(uname -n) lacks $missing; name another interpreter with --python, or the \
packages with --pip or --uv"

exec "$python" -m study.run "$@"
