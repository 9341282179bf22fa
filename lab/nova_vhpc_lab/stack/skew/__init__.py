# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The demo, which ``tools/demo.sh`` runs: the main job once, on real parts.

Each part is one of the numbered steps of "the main job" in
doc/source/quickstart.rst. It prints what happened, and raises if something
else should have happened.
"""
