#!/usr/bin/env bash
# Build sdist and wheel as a release does, and check their content.
set -euo pipefail
# shellcheck source=tools/lib.sh
source "$(dirname "$0")/lib.sh"
cd "$TOP_DIR"
export PATH=$VENV/bin:$PATH

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python -m build -q --outdir "$work/dist" . >"$work/log" 2>&1 || {
    tail -n 30 "$work/log" >&2
    die "python -m build failed"
}
twine check --strict "$work"/dist/*
python -m zipfile -l "$work"/dist/*.whl >"$work/wheel"
tar tzf "$work"/dist/*.tar.gz >"$work/sdist"
for want in nova_vhpc/py.typed nova_vhpc/scheduler/filters.py \
    etc/nova-vhpc/nova-vhpc-agent.service \
    etc/nova-vhpc/nova-vhpc-vendordata.service etc/nova-vhpc/libvirt-qemu-hook \
    etc/nova-vhpc/grafana-dashboard.json etc/nova-vhpc/prometheus-alerts.yaml \
    etc/nova-vhpc/nova-vhpc.conf.sample \
    share/nova-vhpc/devstack/plugin.sh; do
    grep -q "$want" "$work/wheel" || die "the wheel lacks $want"
done
if grep -E 'nova_vhpc/tests/|nova_vhpc_lab' "$work/wheel"; then
    die "the wheel has tests or the laboratory in it"
fi
for want in tox.ini bindep.txt constraints.txt constraints-2026.1.txt tools/test.sh devstack/plugin.sh \
    doc/source/index.rst releasenotes/source/index.rst; do
    grep -q "/$want\$" "$work/sdist" || die "the sdist lacks $want"
done
# A new environment that finds the installed nova, but not this checkout.
python -m venv --system-site-packages "$work/venv"
python - >"$work/venv/lib/python$(python -c 'import sys; print("%d.%d" % sys.version_info[:2])')/site-packages/base.pth" <<'PY'
import sysconfig
print(sysconfig.get_path('purelib'))
PY
"$work/venv/bin/pip" install -q --no-deps --force-reinstall "$work"/dist/*.whl
(
    cd "$work"
    for program in agent ctl explain flavor hook status top vendordata; do
        "$work/venv/bin/nova-vhpc-$program" --help >"$work/help" 2>&1 || {
            cat "$work/help" >&2
            die "nova-vhpc-$program --help of the installed wheel failed"
        }
    done
    ls "$work"/venv/etc/nova-vhpc/nova-vhpc-agent.service >/dev/null ||
        die "the wheel does not install its data files"
)
# A controller has the base only: no headers of libvirt, and no compiler.
python -m venv "$work/base"
CC=false PKG_CONFIG_LIBDIR=$work "$work/base/bin/pip" install -q \
    -c "$CONSTRAINTS" "$work"/dist/*.whl || die "the base wheel does not install"
(
    cd "$work"
    for program in agent ctl explain flavor hook top vendordata; do
        "$work/base/bin/nova-vhpc-$program" --help >"$work/help" 2>&1 || true
        if [ "$(wc -l <"$work/help")" != 1 ] || ! grep -q "pip install 'nova-vhpc\[" "$work/help"; then
            cat "$work/help" >&2
            die "nova-vhpc-$program of the base wheel does not name its extra"
        fi
    done
    # It fails where there is no cloud, and must not end with a traceback.
    "$work/base/bin/nova-vhpc-status" upgrade check >"$work/help" 2>&1 || true
    if ! grep -q 'Check: Known traps' "$work/help" || grep -q Traceback "$work/help"; then
        cat "$work/help" >&2
        die "nova-vhpc-status upgrade check of the base wheel failed"
    fi
)
echo "package: $(basename "$work"/dist/*.whl) and sdist are complete"
