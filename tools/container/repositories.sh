#!/usr/bin/env bash
# Make bare clones of one commit, which devstack on a machine without network takes by
# GIT_BASE=file://TARGET.
#
#   tools/container/repositories.sh SOURCE TARGET BRANCH [NAME...]
#
# SOURCE has a git repository openstack/NAME or openstack/NAME.git, bare or not, for
# each NAME, with that branch and its history. TARGET gets openstack/NAME.git, whose
# HEAD has the name of the last tag before it: pbr takes the version from tags, and a
# clone of one commit has none.
set -euo pipefail

SOURCE=$1
TARGET=$2
BRANCH=$3
shift 3
# Git refuses repositories of other users.
export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*'

mkdir -p "$TARGET/openstack"
for name in "$@"; do
    source=
    for candidate in "$SOURCE/openstack/$name" "$SOURCE/openstack/$name.git"; do
        if [ -e "$candidate" ]; then
            source=$(readlink -f "$candidate")
        fi
    done
    [ -n "$source" ] || {
        echo "no git repository openstack/$name in $SOURCE (GIT_BASE)" >&2
        exit 1
    }
    git -C "$source" rev-parse -q --verify "$BRANCH^{commit}" >/dev/null || {
        echo "$source has no branch $BRANCH (--branch)" >&2
        exit 1
    }
    clone=$TARGET/openstack/$name.git
    rm -rf "$clone"
    git clone -q --bare --depth 1 --single-branch --branch "$BRANCH" "file://$source" "$clone"
    tag=$(git -C "$source" describe --tags --abbrev=0 "$BRANCH" 2>/dev/null) || tag=
    if [ -n "$tag" ]; then
        git -C "$clone" tag -f "$tag" HEAD >/dev/null
    fi
    echo "$name $BRANCH $(git -C "$clone" log -1 --format='%h %cs') ${tag:-no tag}"
done
