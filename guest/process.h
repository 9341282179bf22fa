/* SPDX-FileCopyrightText: nova-vhpc developers
 * SPDX-License-Identifier: Apache-2.0
 *
 * The rule with clocks, naps and the environment of this process. */
#ifndef VHPC_PROCESS_H
#define VHPC_PROCESS_H

#include "rule.h"

int64_t vhpc_now(void);

/* Begin a blocking call; the first one reads VHPC_WAIT (auto, passive, active). */
void vhpc_begin(struct vhpc_wait *, int64_t bytes);

/* Nap if the rule says so, after a poll that began at `begin_ns` in vain. */
void vhpc_polled(struct vhpc_wait *, int64_t begin_ns);

/* Append what was counted to the file that VHPC_WAIT_STATS names. */
void vhpc_report(void);

#endif
